"""Several readers of one backlog side by side, as groups that each have to read all of a topic.

Owns: the readers behind one epoll, one Fetch in flight each; a job of `python -m bench.load`.
Invariants: every response's correlation id, error code and first offset are checked; every reader reads every
record. `apart` is how many batches each reader begins after the one before it, so that their fetches do not
ask for the very same bytes; 0 lets all begin at the first.
Does not do: a consumer's own work (CRC, records): it measures what the broker gives away.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from bench.wire import FetchTemplate, WrongAnswer, batch_span

FETCH_MAX_BYTES = 50 * 1024 * 1024
PARTITION_FETCH_BYTES = 1024 * 1024
"""The defaults of Kafka's consumer (fetch.max.bytes, max.partition.fetch.bytes)."""
ROOM_BYTES = 64 * 1024
"""What a response may take beside its records."""
SOCKET_TIMEOUT_S = 60.0


class Reader:
    """One connection that reads partition 0 from an offset on, batch by batch; `fetches`: asked so far."""

    __slots__ = ("_buffer", "_filled", "_template", "_view", "bytes", "fetches", "offset", "sock")

    def __init__(self, sock: socket.socket, topic: str, offset: int) -> None:
        self.sock = sock
        self.offset = offset
        self.bytes = 0
        self._template = FetchTemplate(
            topic, 0, max_bytes=FETCH_MAX_BYTES, partition_max_bytes=PARTITION_FETCH_BYTES
        )
        self._buffer = bytearray(PARTITION_FETCH_BYTES + ROOM_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self.fetches = 0

    def ask(self) -> None:
        """Send the next Fetch."""
        self.fetches += 1
        self.sock.sendall(self._template.stamp(self.fetches, self.offset))

    def receive(self) -> int:
        """Take what has come: the partition's high watermark once the answer is whole, else -1."""
        count = self.sock.recv_into(self._view[self._filled :])
        if count == 0:
            raise WrongAnswer("the broker closed the connection")
        self._filled += count
        if self._filled < 4:
            return -1
        wanted = int.from_bytes(self._view[:4], "big") + 4
        if wanted > len(self._buffer):
            raise WrongAnswer(f"a response of {wanted} bytes to a fetch of {PARTITION_FETCH_BYTES}")
        if self._filled < wanted:
            return -1
        if self._filled > wanted:
            raise WrongAnswer("more bytes than one response")
        self._filled = 0
        return self._walk(self._view[:wanted])

    def _walk(self, frame: memoryview) -> int:
        high_watermark, position, end = self._template.records(frame, self.fetches)
        before = self.offset
        while end - position >= 61:
            base_offset, next_offset, batch_bytes = batch_span(frame, position)
            if position + batch_bytes > end:
                break
            if base_offset != self.offset:
                raise WrongAnswer(f"offset {base_offset} where {self.offset} was due")
            self.offset = next_offset
            self.bytes += batch_bytes
            position += batch_bytes
        if self.offset == before and high_watermark > before:
            raise WrongAnswer(f"no whole batch at offset {before}")
        return high_watermark


def side_by_side(job: dict[str, Any]) -> dict[str, Any]:
    """`readers` read partition 0 to its end at the same time; the records of a batch are `records`."""
    readers = []
    for number in range(job["readers"]):
        sock = socket.create_connection((job["host"], job["port"]), timeout=SOCKET_TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        readers.append(Reader(sock, job["topic"], number * job.get("apart", 0) * job["records"]))
    poll = select.epoll()
    by_fd = {reader.sock.fileno(): reader for reader in readers}
    start = time.perf_counter_ns()
    for fd, reader in by_fd.items():
        poll.register(fd, select.EPOLLIN)
        reader.ask()
    reading = len(readers)
    while reading:
        events = poll.poll(SOCKET_TIMEOUT_S)
        if not events:
            raise WrongAnswer(f"no answer within {SOCKET_TIMEOUT_S} s")
        for fd, _ in events:
            reader = by_fd[fd]
            high_watermark = reader.receive()
            if high_watermark < 0:
                continue
            if reader.offset < high_watermark:
                reader.ask()
            else:
                poll.unregister(fd)
                reading -= 1
    seconds = (time.perf_counter_ns() - start) / 1e9
    poll.close()
    for reader in readers:
        reader.sock.close()
    total = sum(reader.bytes for reader in readers)
    return {"seconds": seconds, "bytes": total, "readers": len(readers), "gb_per_s": total / seconds / 1e9}
