"""`python -m tests.torture.failover --kills 30`: from a leader's kill -9 to the next acknowledgement.

Two clocks run at once, both from the kill. `bare`: a connection by hand that asks the living nodes who leads
and produces there, again and again - what the cluster itself takes. `client`: a confluent-kafka producer with
its default settings that sends every 10 ms - what a user sees; only records sent after the kill count.
Between two kills the node comes back and is in sync, so each kill hits a whole cluster. Three nodes on
loopback, replication factor 3, acks=all, min.insync.replicas 2; `--target kafka` is Apache Kafka 4.4.0.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compat_tests.clusters import Cluster, KafkaCluster, LockstepCluster
from compat_tests.raw import RawConnection, batch
from tests.campaigns import evidence
from tests.campaigns.brokers import raise_on_term
from tests.campaigns.partition_client import FAILED

TOPIC = "failover"
HOST = "127.0.0.1"
SEND_EVERY_S = 0.01
DEADLINE_S = 60.0


class Steady:
    """The user's producer: `acknowledged_after(t)` is when a record sent after t was first acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        import confluent_kafka

        settings = {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0}
        self._producer = confluent_kafka.Producer(settings)
        self._stop = threading.Event()
        self._acknowledged: list[tuple[float, float]] = []
        """(sent, acknowledged)."""
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def acknowledged_after(self, moment: float) -> float | None:
        """None as long as there is none."""
        return min((ended for begun, ended in list(self._acknowledged) if begun >= moment), default=None)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(10)

    def _send(self) -> None:
        while not self._stop.is_set():
            begun = time.monotonic()

            def told(error: Any, _message: Any, begun: float = begun) -> None:
                if error is None:
                    self._acknowledged.append((begun, time.monotonic()))

            with contextlib.suppress(BufferError):
                self._producer.produce(TOPIC, b"steady", partition=0, on_delivery=told)
            self._producer.poll(SEND_EVERY_S)


class Bare:
    """Who leads, and one record to them, by hand. Connections are kept while they answer."""

    def __init__(self, ports: dict[int, int]) -> None:
        self._ports = ports
        self._raw: dict[int, RawConnection] = {}

    def partition(self, asked: int) -> dict[str, Any] | None:
        """Partition 0 as this node sees it."""
        try:
            if asked not in self._raw:
                self._raw[asked] = RawConnection(HOST, self._ports[asked], timeout_s=2.0)
            topics = [{"name": TOPIC}]
            answer = self._raw[asked].call("metadata", 9, topics=topics, allow_auto_topic_creation=False)
            rows: list[dict[str, Any]] = answer["topics"][0]["partitions"]
        except FAILED:
            self.forget(asked)
            return None
        return rows[0] if rows else None

    def forget(self, node_id: int) -> None:
        raw = self._raw.pop(node_id, None)
        if raw is not None:
            raw.socket.close()

    def produce(self, leader: int) -> bool:
        """Whether one record was acknowledged there."""
        try:
            with RawConnection(HOST, self._ports[leader], 2.0) as raw:
                return bool(raw.produce(TOPIC, batch([b"bare"]))["error_code"] == 0)
        except FAILED:
            return False


class Failover:
    """The kills of one cluster and how long each took."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._bare = Bare({node_id: node.port for node_id, node in cluster.nodes.items()})
        self.bare_s: list[float] = []
        self.client_s: list[float] = []

    def run(self, kills: int) -> None:
        """TimeoutError when no record is acknowledged within DEADLINE_S of a kill."""
        self._create()
        steady = Steady(self._cluster.bootstrap)
        try:
            for number in range(kills):
                self._in_sync()
                time.sleep(self._rng.uniform(1.0, 2.0))
                self._kill(steady)
                print(
                    f"kill {number + 1}: bare {self.bare_s[-1]:.3f} s, client {self.client_s[-1]:.3f} s",
                    flush=True,
                )
        finally:
            steady.close()

    def _create(self) -> None:
        topic = {
            "name": TOPIC,
            "num_partitions": 1,
            "replication_factor": len(self._cluster.nodes),
            "assignments": [],
            "configs": [],
        }
        deadline = time.monotonic() + DEADLINE_S
        while self._leader() is None:
            for node in self._cluster.nodes.values():
                with contextlib.suppress(*FAILED):
                    raw = RawConnection(HOST, node.port)
                    raw.call("create_topics", 5, topics=[topic], timeout=5000, validate_only=False)
                    raw.socket.close()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{TOPIC} has no leader after {DEADLINE_S} s")

    def _alive(self) -> list[int]:
        return [node_id for node_id, node in self._cluster.nodes.items() if node.running]

    def _leader(self) -> int | None:
        for node_id in self._alive():
            found = self._bare.partition(node_id)
            if found is not None and found["leader_id"] in self._alive():
                return int(found["leader_id"])
        return None

    def _in_sync(self) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            seen = [self._bare.partition(node_id) for node_id in self._cluster.nodes]
            if all(each is not None and len(each["isr_nodes"]) == len(seen) for each in seen):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not in sync after {DEADLINE_S} s: {seen}")
            time.sleep(0.1)

    def _kill(self, steady: Steady) -> None:
        leader = self._leader()
        while leader is None:
            leader = self._leader()
        killed = time.monotonic()
        self._cluster.kill9(leader)
        self._bare.forget(leader)
        self.bare_s.append(self._until_acknowledged(killed) - killed)
        while (at := steady.acknowledged_after(killed)) is None:
            if time.monotonic() > killed + DEADLINE_S:
                raise TimeoutError(f"the client got nothing acknowledged for {DEADLINE_S} s")
            time.sleep(0.005)
        self.client_s.append(at - killed)
        self._cluster.restart(leader)

    def _until_acknowledged(self, killed: float) -> float:
        while time.monotonic() < killed + DEADLINE_S:
            leader = self._leader()
            if leader is not None and self._bare.produce(leader):
                return time.monotonic()
            time.sleep(0.005)
        raise TimeoutError(f"nothing acknowledged for {DEADLINE_S} s after the kill")


def figures(target: str, failover: Failover, seed: int) -> dict[str, Any]:
    """What is written with --json."""
    return {
        "target": target,
        "seed": seed,
        "kills": len(failover.bare_s),
        "bare": {
            **evidence.percentiles(failover.bare_s),
            "all_ms": [round(value * 1000, 1) for value in failover.bare_s],
        },
        "client": {
            **evidence.percentiles(failover.client_s),
            "all_ms": [round(value * 1000, 1) for value in failover.client_s],
        },
        "source": evidence.source_digest(),
        "machine": evidence.machine(),
    }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--target", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker settings")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--record", action="store_true", help="add them to docs/evidence/failover.json")
    arguments = parser.parse_args(words)
    raise_on_term()
    settings = dict(word.split("=", 1) for word in arguments.set)
    if arguments.target == "kafka":
        made: Cluster = KafkaCluster(arguments.nodes, settings, heap="512M")
    else:
        made = LockstepCluster(arguments.nodes, settings)
    with made as cluster:
        failover = Failover(cluster, arguments.seed)
        failover.run(arguments.kills)
    measured = figures(arguments.target, failover, arguments.seed)
    print(json.dumps(measured), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n")
    if arguments.record:
        evidence.add_run("failover", measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
