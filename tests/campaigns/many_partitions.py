"""`python -m tests.campaigns.many_partitions`: 100,000 partitions in 1,000 topics on one node.

A node alone gets the topics, then the requests of a client that uses all of them: Metadata, pages of
DescribeTopicPartitions, ListOffsets, DescribeConfigs, DescribeLogDirs, a Fetch session, a record into each
partition. It is killed and started again, stopped and started again, and every topic is deleted. Another
process asks for ApiVersions all the while: `others_ms` is the longest that it waited during a step, which
shows for how long the loop served nobody else. Adds to docs/evidence/many_partitions.json; ends with 1 when
a response is incomplete, or a step held others up for longer than `--limit` ms.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import psutil

from compat_tests.raw import ConnectionClosed, RawConnection, batch
from compat_tests.targets import LockstepTarget
from lockstep.protocol.api import response_header_version
from lockstep.protocol.compiler import decode
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from lockstep.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from lockstep.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from lockstep.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.wire import frame
from tests.campaigns import evidence

LOOPBACK: Final = "127.0.0.1"
PER_REQUEST: Final = 10_000
"""The most partitions of one CreateTopics request, as in Kafka."""
EARLIEST, LATEST = -2, -1
TIMEOUT_S: Final = 300
_KEYS: Final = {request: (key, response) for key, (request, response) in MESSAGES.items()}


class _Bystander:
    """Another client in a process of its own, which notes how long each of its requests took."""

    def __init__(self, port: int) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawning.Pipe()
        self._process = spawning.Process(target=_ask_again_and_again, args=(port, theirs), daemon=True)
        self._process.start()
        self._pipe.recv()

    def longest_ms(self, begin: float, end: float) -> float:
        """The longest wait that overlaps these monotonic times."""
        self._pipe.send((begin, end))
        return float(self._pipe.recv())

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


def _ask_again_and_again(port: int, pipe: Connection) -> None:
    samples: list[tuple[float, float]] = []
    pipe.send(None)
    connection: RawConnection | None = None
    while True:
        if pipe.poll():
            begin, end = pipe.recv()
            waits = [took for at, took in samples if at < end and at + took > begin]
            pipe.send(max(waits, default=0.0) * 1000)
            samples.clear()
        at = time.monotonic()
        try:
            if connection is None:
                connection = RawConnection(LOOPBACK, port, TIMEOUT_S)
            connection.call("api_versions", 0)
            samples.append((at, time.monotonic() - at))
        except (OSError, ConnectionClosed):
            connection = None
        time.sleep(0.002)


class _Run:
    """One broker with its topics; `steps` are the figures so far."""

    def __init__(self, target: LockstepTarget, topics: int, partitions: int) -> None:
        self.target = target
        self.names = [f"topic-{number:05}" for number in range(topics)]
        self.partitions = partitions
        self.steps: dict[str, dict[str, Any]] = {}
        self.problems: list[str] = []
        self._bystander = _Bystander(target.port)
        self._connection = RawConnection(LOOPBACK, target.port, TIMEOUT_S)
        self.topic_ids: dict[str, bytes] = {}

    @property
    def total(self) -> int:
        return len(self.names) * self.partitions

    def close(self) -> None:
        self._bystander.close()
        self._connection.close()

    def reconnect(self) -> None:
        self._connection.close()
        self._connection = RawConnection(LOOPBACK, self.target.port, TIMEOUT_S)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Times a step; what the caller puts into the dictionary is kept with it."""
        figures: dict[str, Any] = {}
        cpu = self._cpu_s()
        begin = time.monotonic()
        yield figures
        end = time.monotonic()
        figures["seconds"] = round(end - begin, 3)
        figures["cpu_s"] = round(self._cpu_s() - cpu, 2)
        figures["others_ms"] = round(self._bystander.longest_ms(begin, end), 1)
        figures["rss_mib"] = round(self.target.rss_bytes() / 2**20, 1)
        self.steps[name] = figures
        print(f"{name}: {json.dumps(figures)}", flush=True)

    def _cpu_s(self) -> float:
        used = psutil.Process(self.target.pid).cpu_times()
        return float(used.user + used.system)

    def ask(self, request: Struct, version: int) -> tuple[Any, int]:
        """The response to a request, and the bytes of its frame."""
        self._connection.send_bytes(frame(request, version))
        raw = self._connection.receive_frame()
        key, response = _KEYS[type(request)]
        return decode(response, version, raw, 5 if response_header_version(key, version) else 4), len(raw)

    def check(self, what: str, found: int, expected: int) -> None:
        if found != expected:
            self.problems.append(f"{what}: {found}, expected {expected}")

    # --- the steps ----------------------------------------------------------------------------------------

    def create(self) -> None:
        at_once = max(1, PER_REQUEST // self.partitions)
        with self.step("create"):
            for first in range(0, len(self.names), at_once):
                topics = [
                    CreatableTopic(name=name, num_partitions=self.partitions, replication_factor=1)
                    for name in self.names[first : first + at_once]
                ]
                response, _ = self.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
                failed = [each for each in response.topics if each.error_code]
                self.check("topics that were not created", len(failed), 0)

    def metadata(self, step: str) -> None:
        with self.step(step) as figures:
            response, figures["bytes"] = self.ask(MetadataRequest(topics=None), 12)
        partitions = [each for topic in response.topics for each in topic.partitions]
        self.check(step, sum(each.leader_id == 1 for each in partitions), self.total)
        self.topic_ids = {topic.name: bytes(topic.topic_id) for topic in response.topics}

    def metadata_of_each(self) -> None:
        """As a client asks that uses all topics by name."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in self.names])
        with self.step("metadata of each name") as figures:
            response, figures["bytes"] = self.ask(request, 12)
        self.check("named", sum(len(topic.partitions) for topic in response.topics), self.total)

    def describe(self) -> None:
        found = pages = 0
        longest = 0.0
        cursor = None
        with self.step("describe_topic_partitions") as figures:
            while True:
                began = time.monotonic()
                request = DescribeTopicPartitionsRequest(topics=[], cursor=cursor)
                response, _ = self.ask(request, 0)
                longest = max(longest, time.monotonic() - began)
                pages += 1
                found += sum(len(topic.partitions) for topic in response.topics)
                cursor = response.next_cursor
                if cursor is None:
                    break
            figures["pages"], figures["slowest_page_ms"] = pages, round(longest * 1000, 1)
        self.check("described", found, self.total)

    def list_offsets(self, step: str, timestamp: int, expected: int) -> None:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                        for index in range(self.partitions)
                    ],
                )
                for name in self.names
            ],
        )
        with self.step(step):
            response, _ = self.ask(request, 10)
        found = [each for topic in response.topics for each in topic.partitions]
        self.check(step, sum(not each.error_code and each.offset == expected for each in found), self.total)

    def describe_configs(self) -> None:
        resources = [
            DescribeConfigsResource(
                resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=None
            )
            for name in self.names
        ]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
        with self.step("describe_configs") as figures:
            response, figures["bytes"] = self.ask(request, 4)
        found = sum(bool(each.configs) for each in response.results)
        self.check("described configurations", found, len(self.names))

    def describe_log_dirs(self) -> None:
        with self.step("describe_log_dirs") as figures:
            response, figures["bytes"] = self.ask(DescribeLogDirsRequest(topics=None), 4)
        found = sum(len(topic.partitions) for each in response.results for topic in each.topics)
        self.check("log directories", found, self.total)

    def write(self) -> None:
        records = batch([b"v" * 100])
        with self.step("a record into each"):
            for name in self.names:
                data = [
                    PartitionProduceData(index=index, records=records) for index in range(self.partitions)
                ]
                request = ProduceRequest(
                    acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=name, partition_data=data)]
                )
                response, _ = self.ask(request, 9)
                found = [each for topic in response.responses for each in topic.partition_responses]
                self.check(name, sum(not each.error_code for each in found), self.partitions)

    def fetch(self) -> None:
        topics = [
            FetchTopic(
                topic_id=self.topic_ids[name],
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                    for index in range(self.partitions)
                ],
            )
            for name in self.names
        ]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics)
        with self.step("fetch, a new session") as figures:
            response, figures["bytes"] = self.ask(request, 13)
        found = [each for topic in response.responses for each in topic.partitions]
        self.check("fetched", sum(bool(each.records) for each in found), self.total)
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=response.session_id, session_epoch=1)
        with self.step("fetch, of the session") as figures:
            response, figures["bytes"] = self.ask(request, 13)
        self.check("error of the session", response.error_code, 0)

    def start(self, step: str) -> None:
        """Until a client has the metadata of all topics."""
        began = time.monotonic()
        ready_s = self.target.start()
        self.reconnect()
        response, _ = self.ask(MetadataRequest(topics=None), 12)
        figures = {
            "ready_s": round(ready_s, 2),
            "all_metadata_s": round(time.monotonic() - began, 2),
            "cpu_s": round(self._cpu_s(), 2),
            "rss_mib": round(self.target.rss_bytes() / 2**20, 1),
        }
        self.steps[step] = figures
        print(f"{step}: {json.dumps(figures)}", flush=True)
        found = [each for topic in response.topics for each in topic.partitions]
        self.check(step, sum(each.leader_id == 1 for each in found), self.total)

    def delete(self) -> None:
        with self.step("delete"):
            for first in range(0, len(self.names), 100):
                states = [DeleteTopicState(name=name) for name in self.names[first : first + 100]]
                response, _ = self.ask(DeleteTopicsRequest(topics=states, timeout_ms=60_000), 6)
                failed = [each for each in response.responses if each.error_code]
                self.check("topics that were not deleted", len(failed), 0)
        response, _ = self.ask(MetadataRequest(topics=None), 12)
        self.check("topics left", len(response.topics), 0)


def _files(target: LockstepTarget) -> dict[str, int]:
    return {
        "descriptors": len(list(Path(f"/proc/{target.pid}/fd").iterdir())),
        "files": sum(each.is_file() for each in target.data_dir.rglob("*")),
    }


def run(topics: int, partitions: int, limit_ms: float) -> dict[str, Any]:
    """The figures, with the problems among them."""
    settings = {"lockstep.max.partitions": str(2 * topics * partitions + 1000)}
    with LockstepTarget(settings) as target:
        run_ = _Run(target, topics, partitions)
        empty_mib = round(target.rss_bytes() / 2**20, 1)
        try:
            run_.create()
            files = {"empty": _files(target)}
            run_.metadata("metadata of all, first")
            run_.metadata("metadata of all, again")
            run_.metadata_of_each()
            run_.describe()
            run_.describe_configs()
            run_.describe_log_dirs()
            run_.list_offsets("list_offsets, latest", LATEST, 0)
            run_.write()
            run_.list_offsets("list_offsets, of records", LATEST, 1)
            run_.list_offsets("list_offsets, earliest", EARLIEST, 0)
            run_.fetch()
            files["with a record each"] = _files(target)
            target.kill9()
            run_.start("restart after kill -9")
            target.stop()
            run_.start("restart after a stop")
            run_.list_offsets("list_offsets, restarted", LATEST, 1)
            run_.delete()
        finally:
            run_.close()
    for name, figures in run_.steps.items():
        if figures.get("others_ms", 0) > limit_ms:
            run_.problems.append(f"{name}: others waited for {figures['others_ms']} ms")
    return {
        "topics": topics,
        "partitions": partitions,
        "empty_rss_mib": empty_mib,
        "files": files,
        "steps": run_.steps,
        "problems": run_.problems,
    }


def main(words: Sequence[str] | None = None) -> int:
    """The campaign as a command; 1 when something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.many_partitions", description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=100, help="of each topic")
    parser.add_argument("--limit", type=float, default=250, help="ms that others may wait")
    parser.add_argument("--no-evidence", action="store_true")
    options = parser.parse_args(words)
    figures = run(options.topics, options.partitions, options.limit)
    print(json.dumps(figures, indent=2))
    if not options.no_evidence:
        evidence.add_run("many_partitions", figures)
    return 1 if figures["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
