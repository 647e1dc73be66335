"""`python -m bench micro`: what single steps of the produce, replicate and fetch paths cost.

Owns: the list of steps; no sockets but those of the "delivery" rows, which are loopback.
`--record` adds them to a history by commit, which names the commit that a step became slower with.
Figures are for looking at one's own change before and after, on one machine; nothing is compared with another
broker and no durability is claimed ("flush" rows say what the disk under --directory takes). References tell
how fast the machine itself is: they are measured before and after the other steps. What the data log alone
asks of the device, and how long it takes to open: `python -m tests.storage.log.log_costs`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from tabulate import tabulate

from bench import argument_types
from bench.exit_status import EXIT_FAILED, log_progress
from bench.load.wire import ProduceTemplate, record_batch
from bench.machine.facts import Origin
from bench.machine.process import REPEATS, microseconds
from bench.micro import history
from bench.micro.follower import follower_steps
from bench.micro.raft import raft_steps
from bench.micro.requests import request_steps
from bench.settings import FILL_BATCH_RECORDS, RECORD_BYTES
from compat_tests.probe import HOST
from lockstep.protocol.api import read_request_header
from lockstep.protocol.compiler import decode, encode, encode_bytes
from lockstep.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lockstep.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lockstep.protocol.records.batch import read_header, verify
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.segment_files import SEGMENT_SUFFIX
from lockstep.storage.log_group import GroupOptions, LogGroup
from lockstep.storage.peers.envelope import message_in, pack_message, unpack
from lockstep.storage.peers.network import PeerNetwork
from lockstep.storage.raft.messages import Append, AppendResponse, Message

READ_BYTES = 1 << 20
READ_BATCHES = 4096
DELIVERIES = 200
TOPIC_ID = b"t" * 16

Step = tuple[str, Callable[[], object]]


class _Counted:
    """Something with an attribute."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


def _python() -> int:
    """Attributes, a dict and ints. Never to be changed: records are compared by it."""
    counted = _Counted()
    places: dict[int, int] = {}
    for number in range(200):
        counted.count += number & 7
        places[number & 31] = places.get(number & 31, 0) + counted.count
    return counted.count + len(places)


def reference_steps() -> Iterator[Step]:
    """The reference steps: plain Python, and the checksum of a C library."""
    yield f"{history.REFERENCE}attributes, a dict and ints", _python
    batch = record_batch(1, RECORD_BYTES, 1_700_000_000_000)
    large = record_batch(FILL_BATCH_RECORDS, RECORD_BYTES, 1_700_000_000_000)
    header, large_header = read_header(batch), read_header(large)
    yield "CRC-32C of 1 KB", lambda: verify(batch, 0, header)
    yield "CRC-32C of 15 KB", lambda: verify(large, 0, large_header)


def codec_steps() -> Iterator[Step]:
    """Produce v9 with one 1 KB record in, its response out; Fetch v13 in, its response with 64 KB out."""
    batch = record_batch(1, RECORD_BYTES, 1_700_000_000_000)
    frame = memoryview(bytes(ProduceTemplate("bench-topic", {0: batch}, 1).request))[4:]
    _, body = read_request_header(frame)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="bench-topic", partition_responses=[PartitionProduceResponse(index=0, base_offset=7)]
            )
        ]
    )
    yield "request header", lambda: read_request_header(frame)
    yield "decode Produce v9, 1 record", lambda: decode(ProduceRequest, 9, frame, body)
    yield "encode its response", lambda: encode(response, 9)
    yield "batch header", lambda: read_header(batch)
    yield "copy 1 KB out of the receive buffer", lambda: bytearray(batch)
    partitions = [FetchPartition(partition=3, fetch_offset=123_456, partition_max_bytes=1 << 20)]
    encoded = encode_bytes(FetchRequest(topics=[FetchTopic(topic_id=TOPIC_ID, partitions=partitions)]), 13)
    read = PartitionData(partition_index=3, high_watermark=123_456, records=[bytes(16_384)] * 4)
    answer = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[read])])
    yield "decode Fetch v13, 1 partition", lambda: decode(FetchRequest, 13, memoryview(encoded))
    yield "encode its response, 64 KB", lambda: encode(answer, 13)


async def _turns(
    directory: Path, flush: bool, batches: int, records: int = 1, *, recycled: bool = False
) -> float:
    """Microseconds of one group turn with `batches` appends of `records` of 1 KB, from append to waiter.

    Args:
        recycled: the page cache has nothing of the segment's file, as of one whose former life is long past.
    """
    failed: list[BaseException] = []
    group = await LogGroup.open(
        directory,
        GroupOptions(1, 1, LogOptions(flush=flush)),
        clock_ms=lambda: time.time_ns() // 1_000_000,
        on_fatal=failed.append,
    )
    (partition,) = await group.open_partitions([(b"\x01" * 16, 0)])
    batch = record_batch(records, RECORD_BYTES, 1_700_000_000_000)
    header = read_header(batch)
    if recycled:
        _forget(directory)
    means = []
    for _ in range(REPEATS):
        count = max(20, 1500 // batches // records)
        began = time.perf_counter()
        for _ in range(count):
            for _ in range(batches):
                group.append(partition, bytearray(batch), header)
            await group.committed()
        means.append((time.perf_counter() - began) / count)
    await group.close()
    if failed:
        raise failed[0]
    return statistics.median(means) * 1e6


def _forget(directory: Path) -> None:
    """Drop a log's segments from the page cache."""
    for path in directory.rglob(f"*{SEGMENT_SUFFIX}"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _append(size: int) -> Append:
    """One entry of one batch, as a leader sends it."""
    return Append(1, 2, 7, 1000, 7, [(1001, 7)], 1001, [], 1000, 123_456, [bytes(100), bytearray(size)], 99)


def envelope_steps() -> Iterator[Step]:
    """Messages between nodes to bytes and back."""
    answer = AppendResponse(2, 1, 7, 1001, 1000, 0, 0, 123_456)
    messages: list[tuple[str, Message]] = [
        ("Append, 1 KB", _append(1 << 10)),
        ("Append, 100 KB", _append(100 << 10)),
        ("AppendResponse", answer),
    ]
    for name, message in messages:
        frame = memoryview(b"".join(pack_message(1, message)[0]))[4:]
        yield f"encode {name}", lambda message=message: pack_message(1, message)  # type: ignore[misc]
        yield f"decode {name}", lambda frame=frame: message_in(unpack(frame))  # type: ignore[misc]


class _Node:
    """A node that waits for one message at a time."""

    def __init__(self, node_id: int) -> None:
        self.network = PeerNetwork(node_id, self, asyncio.get_running_loop())
        self.linked = asyncio.Event()
        self.arrived = asyncio.get_running_loop().create_future()

    def hello(self) -> bytes:
        return b""

    def on_handshake(self, node_id: int, hello: bytes) -> str | None:
        return None

    def on_process_stopped(self, node_id: int) -> None:
        """Like `PeerListener`."""

    def on_rejection(self, node_id: int, text: str) -> None:
        raise AssertionError(text)

    def on_message(self, group_id: int, message: Message) -> None:
        self.arrived.set_result(time.perf_counter())

    def on_notification(self, node_id: int, kind: int, body: bytes) -> None:
        pass

    async def on_request(self, node_id: int, kind: int, body: bytes) -> bytes:
        return b""

    def on_link(self, node_id: int, up: bool) -> None:
        self.linked.set()


async def _delivery(size: int) -> float:
    """Microseconds from `send` to `on_message` over loopback; both nodes are this process."""
    loop = asyncio.get_running_loop()
    nodes = _Node(1), _Node(2)
    bound = [socket.create_server((HOST, 0)) for _ in nodes]
    for node, listening in zip(nodes, bound, strict=True):
        await node.network.listen([listening])
        for node_id, other in enumerate(bound, 1):
            node.network.add_node(node_id, *other.getsockname()[:2])
    await nodes[0].linked.wait()
    message = _append(size)
    means = []
    for _ in range(REPEATS):
        total = 0.0
        for _ in range(DELIVERIES):
            arrived = nodes[1].arrived = loop.create_future()
            began = time.perf_counter()
            nodes[0].network.send(2, 1, message)
            total += await arrived - began
        means.append(total / DELIVERIES)
    for node in nodes:
        await node.network.close()
    return statistics.median(means) * 1e6


def read_steps(directory: Path) -> Iterator[Step]:
    """1 MiB of 16 KiB batches, from the page cache and from the tail cache."""

    async def fill() -> tuple[LogGroup, int]:
        group = await LogGroup.open(
            directory,
            GroupOptions(1, 1, LogOptions(flush=False)),
            clock_ms=lambda: 0,
            on_fatal=lambda error: None,
        )
        (partition,) = await group.open_partitions([(b"\x01" * 16, 0)])
        batch = record_batch(FILL_BATCH_RECORDS, RECORD_BYTES, 1_700_000_000_000)
        header = read_header(batch)
        for _ in range(READ_BATCHES):
            group.append(partition, bytearray(batch), header)
            await group.committed()
        return group, partition.local_id

    group, number = uvloop.run(fill())
    log: DataLog = group.log
    end = READ_BATCHES * FILL_BATCH_RECORDS
    yield "read 1 MiB, page cache", lambda: log.read(number, 0, READ_BYTES, end)
    yield "read 1 MiB, page cache, blocking", lambda: log.read_cold(number, 0, READ_BYTES, end)
    yield "read 1 MiB, tail cache", lambda: log.read(number, end - 900, READ_BYTES, end)


def bracket(references: Sequence[Step], others: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The references before and after the others, and those: the machine's speed may change meanwhile."""
    before = [microseconds(step) for _, step in references]
    found = others()
    after = [microseconds(step) for _, step in references]
    means = map(statistics.geometric_mean, zip(before, after, strict=True))
    return dict(zip((name for name, _ in references), means, strict=True)) | found


def measure_steps(directory: Path | None) -> dict[str, float]:
    """Microseconds of every step. Args: directory: where data directories are made."""
    return bracket([*reference_steps()], partial(_own, directory))


def _own(directory: Path | None) -> dict[str, float]:
    found = {name: microseconds(step) for name, step in [*codec_steps(), *envelope_steps(), *raft_steps()]}
    for size in (1, 100):
        found[f"delivery of an Append, {size} KB"] = uvloop.run(_delivery(size << 10))
    with tempfile.TemporaryDirectory(dir=directory, prefix="bench-micro-") as parent:
        for flush in (False, True):
            for batches in (1, 16):
                words = "flush" if flush else "no flush"
                taken = uvloop.run(_turns(Path(parent) / f"{words}-{batches}", flush, batches))
                found[f"group turn, {batches} x 1 KB, {words}"] = taken
        taken = uvloop.run(_turns(Path(parent) / "recycled", True, 1, FILL_BATCH_RECORDS, recycled=True))
        found["group turn, 1 x 15 KB, flush, recycled segment"] = taken
        found |= {name: microseconds(step) for name, step in read_steps(Path(parent) / "read")}
        found |= dict(follower_steps(Path(parent)))
        found |= uvloop.run(request_steps(Path(parent) / "requests"))
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure every step and print a table; the exit status is 1 where --record shows a step to be slower."""
    parser = argparse.ArgumentParser(prog="python -m bench micro", description=__doc__)
    argument_types.add_directory(parser)
    parser.add_argument("--record", action="store_true", help="add to the history; name what became slower")
    parser.add_argument("--history", type=Path, default=history.HISTORY, help="the file of --record")
    options = parser.parse_args(arguments)
    facts: dict[str, Any] = {}
    if options.record:
        history.read(options.history)  # before anything is measured
        facts = Origin(argument_types.directory_of(options)).facts
        if facts["code"]["dirty"]:
            log_progress(
                "FAILED: the tree has changes in no commit: commit them, so that a record names its code"
            )
            return EXIT_FAILED
    steps = measure_steps(options.directory)
    rows = [[name, f"{taken:.2f}"] for name, taken in steps.items()]
    print(tabulate(rows, headers=["step", "us"], disable_numparse=True, colalign=("left", "right")))
    return _record(steps, facts, options.history) if options.record else 0


def _record(steps: dict[str, float], facts: dict[str, Any], path: Path) -> int:
    """Add to the history in this file and judge it; the exit status."""
    entry = history.record(steps, **facts)
    history.append(path, entry)
    known = [each for each in history.read(path) if history.comparable(each, entry)]
    log_progress(f"recorded: {entry['commit'][:12]}, {len(known)} records of this kind of machine")
    factor = history.newest_factor(known)
    if factor is not None:
        words = f"the references take {factor:.2f} times as long as usual"
        log_progress(f"{words}: a step is judged by what is beyond that")
    others = ", ".join(each for each in steps if not history.is_comparable_over_time(each))
    log_progress(f"not judged: references, and what waits for the disk ({others})")
    slower = history.regressions(known)
    for regression in slower:
        log_progress(f"SLOWER: {regression}")
    return EXIT_FAILED if slower else 0
