"""One writer and several groups that read all it writes, at the same time: what reaches the readers.

Owns: the job "fan_out": one process, one epoll; a pipelined writer of partition 0 and `groups` raw readers,
each on a connection of its own with one Fetch in flight, until each has read everything. At its end each
group commits its position, and that is awaited. Invariant: every batch is there, in order, for every reader.
Does not do: decode records, or a client's own queues; it measures the broker.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from typing import Any

from bench.group_wire import CommitTemplate
from bench.lanes import Lane
from bench.members import await_coordinator
from bench.wire import FetchTemplate, ProduceTemplate, WrongAnswer, batch_span, record_batch

FETCH_MAX_BYTES = 50 * 1024 * 1024
PARTITION_FETCH_BYTES = 1024 * 1024
SOCKET_TIMEOUT_S = 60.0

Result = dict[str, Any]


class Reader:
    """One group's reader of partition 0: a Fetch in flight until it stands at `end`."""

    def __init__(self, sock: socket.socket, topic: str, end: int) -> None:
        self.sock = sock
        self.offset = self.bytes = self.fetches = 0
        self._end = end
        self._fetch = FetchTemplate(
            topic, 0, max_bytes=FETCH_MAX_BYTES, partition_max_bytes=PARTITION_FETCH_BYTES
        )
        self._buffer = bytearray(PARTITION_FETCH_BYTES + 64 * 1024)
        self._filled = self._wanted = 0

    @property
    def is_done(self) -> bool:
        return self.offset >= self._end

    def ask(self) -> None:
        """Send the next Fetch."""
        self.fetches += 1
        self.sock.sendall(self._fetch.stamp(self.fetches, self.offset))

    def receive(self) -> None:
        """Take what is there; a whole answer is walked, and the next one asked for. WrongAnswer."""
        with memoryview(self._buffer) as view:
            count = self.sock.recv_into(view[self._filled :])
        if count == 0:
            raise WrongAnswer("the broker closed a reader's connection")
        self._filled += count
        if not self._wanted and self._filled >= 4:
            self._wanted = int.from_bytes(self._buffer[:4], "big") + 4
            if self._wanted > len(self._buffer):
                self._buffer.extend(bytes(self._wanted - len(self._buffer)))
        if not self._wanted or self._filled < self._wanted:
            return
        if self._filled > self._wanted:
            raise WrongAnswer("more bytes than one response")
        self._walk()
        self._filled = self._wanted = 0
        if not self.is_done:
            self.ask()

    def _walk(self) -> None:
        with memoryview(self._buffer) as whole, whole[: self._filled] as frame:
            _, place, end = self._fetch.records(frame, self.fetches)
            while end - place >= 61:
                base_offset, next_offset, batch_bytes = batch_span(frame, place)
                if place + batch_bytes > end:
                    break
                if base_offset != self.offset:
                    raise WrongAnswer(f"offset {base_offset} instead of {self.offset}")
                self.offset = next_offset
                place += batch_bytes
                self.bytes += batch_bytes


def commit(sock: socket.socket, group: str, topic: str, offset: int) -> None:
    """Commit a position and await the answer. WrongAnswer."""
    template = CommitTemplate(group, topic, 0)
    sock.sendall(template.stamp(offset))
    with sock.makefile("rb") as stream:
        head = stream.read(4)
        frame = head + stream.read(int.from_bytes(head, "big"))
    template.verify(bytearray(frame), len(frame), offset)


def fan_out(job: Result, connect: Any) -> Result:
    """Write `total_bytes` in batches of `records`, `window` in flight, while `groups` groups read them."""
    host, port, topic = job["host"], job["port"], job["topic"]
    names = [f"{topic}-group-{number}" for number in range(job["groups"])]
    coordinators = [asyncio.run(await_coordinator(host, port, name)) for name in names]
    batch = record_batch(job["records"], job["record_bytes"], time.time_ns() // 1_000_000)
    wanted = -(-job["total_bytes"] // len(batch))
    lane = Lane(connect(host, port), [ProduceTemplate(topic, {0: batch}, job["records"])], job["window"])
    readers = [Reader(connect(host, port), topic, wanted * job["records"]) for _ in names]
    began = time.perf_counter()
    written_s = _run(lane, wanted, readers)
    for name, at, reader in zip(names, coordinators, readers, strict=True):
        with connect(host, at) as sock:
            commit(sock, name, topic, reader.offset)
    seconds = time.perf_counter() - began
    for sock in (lane.sock, *(reader.sock for reader in readers)):
        sock.close()
    delivered = sum(reader.bytes for reader in readers)
    return {
        "groups": len(readers),
        "seconds": seconds,
        "written_s": written_s,
        "fetches": sum(reader.fetches for reader in readers),
        "bytes": delivered,
        "mb_per_s": delivered / seconds / 1e6,
        "total_requests": wanted,
        "total_records": wanted * job["records"],
    }


def _run(lane: Lane, wanted: int, readers: list[Reader]) -> float:
    """Until all is written and read by all; seconds until all was written. WrongAnswer."""
    began = time.perf_counter()
    poll = select.epoll()
    by_fd = {reader.sock.fileno(): reader for reader in readers}
    for number in (lane.sock.fileno(), *by_fd):
        poll.register(number, select.EPOLLIN)
    for reader in readers:
        reader.ask()
    asked = min(wanted, lane.window)
    for _ in range(asked):
        lane.due(0)
    written_s = 0.0
    while lane.waiting or not all(reader.is_done for reader in readers):
        events = poll.poll(SOCKET_TIMEOUT_S)
        if not events:
            raise WrongAnswer(f"nothing was answered for {SOCKET_TIMEOUT_S:.0f} s")
        for number, _ in events:
            if number in by_fd:
                by_fd[number].receive()
                continue
            lane.receive()
            while asked < wanted and lane.has_room:
                asked += 1
                lane.due(0)
            if not lane.waiting:
                written_s = time.perf_counter() - began
    poll.close()
    return written_s
