"""A backlog: a topic filled, and read from a position to its end.

Owns: the pipelined fill, and `Reader`, one connection with one Fetch in flight. Invariants: every response's
correlation id, error code and first offset are checked; every reader reads every record. Does not do: a
consumer's own work (records; the CRC only with `check`): it measures the broker.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from bench.load.connection import ROOM_BYTES, ResponseReader, connect
from bench.load.pipelined_loop import PipelinedProducer
from bench.load.wire import (
    LEAST_BATCH_BYTES,
    FetchTemplate,
    ProduceTemplate,
    UnexpectedResponse,
    batch_is_sound,
    batch_span,
    record_batch,
)

FETCH_MAX_BYTES = 50 * 1024 * 1024
PARTITION_FETCH_BYTES = 1024 * 1024
"""The defaults of Kafka's consumer (fetch.max.bytes, max.partition.fetch.bytes)."""
RECEIVE_BYTES = 4 * 1024 * 1024

Result = dict[str, Any]


def fill(job: Result) -> Result:
    """Write at least `total_bytes` to partition 0 in batches of `records`, `window` requests in flight."""
    batch = record_batch(job["records"], job["record_bytes"], time.time_ns() // 1_000_000)
    template = ProduceTemplate(job["topic"], {0: batch}, job["records"])
    total_requests = -(-job["total_bytes"] // len(batch))
    with connect(job["host"], job["port"], security=job.get("security")) as sock:
        producer = PipelinedProducer(sock, [template], job["window"])
        acked = 0
        start = time.perf_counter_ns()
        while acked < total_requests:
            while producer.correlation_id < total_requests and producer.has_room:
                producer.schedule(0)
            acked += len(producer.receive())
        seconds = (time.perf_counter_ns() - start) / 1e9
    return {
        "requests": total_requests,
        "seconds": seconds,
        "bytes": total_requests * len(batch),
        "mb_per_s": total_requests * len(batch) / seconds / 1e6,
        "batch_bytes": len(batch),
        "total_requests": total_requests,
        "total_records": total_requests * job["records"],
    }


class Reader:
    """One connection that reads partition 0 from an offset on, batch by batch; `fetches`: sent on it so far.

    With `check` the CRC of every batch is verified (outside timed runs).
    """

    __slots__ = ("_check", "_responses", "_template", "bytes", "fetches", "offset", "sock")

    def __init__(
        self, sock: socket.socket, topic: str, offset: int, check: bool = False, fetches: int = 0
    ) -> None:
        self.sock = sock
        self.offset = offset
        self.bytes = 0
        self.fetches = fetches
        self._check = check
        self._template = FetchTemplate(
            topic, 0, max_bytes=FETCH_MAX_BYTES, partition_max_bytes=PARTITION_FETCH_BYTES
        )
        self._responses = ResponseReader(sock, PARTITION_FETCH_BYTES + ROOM_BYTES)

    def send_fetch(self) -> None:
        """Send the next Fetch."""
        self.fetches += 1
        self.sock.sendall(self._template.stamp(self.fetches, self.offset))

    def receive(self) -> int:
        """Read what has arrived: the partition's high watermark once the response is whole, else -1."""
        frame = self._responses.poll()
        return self._walk(frame) if frame is not None else -1

    def wait(self) -> int:
        """Wait for the response; the partition's high watermark."""
        return self._walk(self._responses.wait())

    def _walk(self, frame: memoryview) -> int:
        high_watermark, start, end = self._template.records(frame, self.fetches)
        offset, position, check = self.offset, start, self._check
        while end - position >= LEAST_BATCH_BYTES:
            base_offset, next_offset, batch_bytes = batch_span(frame, position)
            if position + batch_bytes > end:
                break
            if base_offset != offset:
                raise UnexpectedResponse(f"offset {base_offset} where {offset} was due")
            if check and not batch_is_sound(frame, position, batch_bytes):
                raise UnexpectedResponse(f"the batch at offset {base_offset} does not have its checksum")
            offset = next_offset
            position += batch_bytes
        if position == start and high_watermark > offset:
            raise UnexpectedResponse(f"no whole batch at offset {offset}")
        self.offset = offset
        self.bytes += position - start
        return high_watermark


def read_backlog(job: Result) -> Result:
    """Read partition 0 from `start_offset` to its end; with `check` as `Reader`. With `seconds` again and
    again until so long has passed; its last pass is cut short."""
    first = job.get("start_offset", 0)
    fetches = size = records = passes = 0
    security = job.get("security")
    with connect(job["host"], job["port"], receive_bytes=RECEIVE_BYTES, security=security) as sock:
        start = time.perf_counter_ns()
        until = start + int(job["seconds"] * 1e9) if "seconds" in job else 0
        while not passes or time.perf_counter_ns() < until:
            reader = Reader(sock, job["topic"], first, bool(job.get("check")), fetches)
            high_watermark = first + 1
            while reader.offset < high_watermark:
                reader.send_fetch()
                high_watermark = reader.wait()
                if until and passes and time.perf_counter_ns() >= until:
                    break
            fetches = reader.fetches
            size += reader.bytes
            records += reader.offset - first
            passes += 1
        seconds = (time.perf_counter_ns() - start) / 1e9
    return {
        "requests": fetches,
        "seconds": seconds,
        "passes": passes,
        "bytes": size,
        "records": records,
        "gb_per_s": size / seconds / 1e9,
    }
