"""The open loop of seed 001's client: the job "open_loop" of the load generator (`bench/load`).

Owns: sending one request (an atomic batch) whenever one is due, and when each was committed. A request's
latency counts from the moment it was due, so that a store that falls behind is not flattered, and is that
of the requests due in the window, whenever their responses come; throughput is of the responses in it, which
a backlog from the warm-up can make more than what was offered. A stream that takes no more makes the client
late, which shows as throughput below that. Sends the same bytes again and again. Does not retry: a closed
stream ends the run.
"""

from __future__ import annotations

import select
import socket
import time
from array import array
from typing import Any

from bench.load.connection import connect
from bench.load.latency import quantiles
from bench.load.wire import UnexpectedResponse, record_batch
from bench.logstore.node import COUNT, LENGTH, SO_MAX_PACING_RATE
from compat_tests.probe import HOST

BUFFERS_PER_SEND = 64
POLL_MS = 1
DRAIN_S = 30.0


class OpenLoop:
    """One client's run. `requests` 0: for `seconds`."""

    def __init__(self, job: dict[str, Any]) -> None:
        batch = record_batch(job["batch"], job["payload_bytes"], 1_700_000_000_000)
        self._frame = LENGTH.pack(len(batch)) + batch
        self._batch = job["batch"]
        self._payload_bytes = job["payload_bytes"]
        self._interval_ns = 1e9 * job["batch"] / job["rate"]
        self._limit = job.get("requests", 0)
        self._seconds = job["seconds"]
        self._warmup_s = job["warmup_s"]
        self._sock = connect(HOST, job["port"])
        if job["stream_bytes_per_s"]:
            self._sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, job["stream_bytes_per_s"])
        self._sock.setblocking(False)
        self._sent_bytes = 0
        self._acked = 0
        self._answer = bytearray()
        self._start_ns = 0
        self._latencies = array("q")
        self._in_window = 0

    def _send_due(self, due: int) -> bool:
        """Send what is due; False when the stream takes no more."""
        size = len(self._frame)
        while self._sent_bytes < due * size:
            whole, part = divmod(self._sent_bytes, size)
            count = min(due - whole, BUFFERS_PER_SEND)
            buffers: list[Any] = [memoryview(self._frame)[part:], *([self._frame] * (count - 1))]
            try:
                self._sent_bytes += self._sock.sendmsg(buffers)
            except BlockingIOError:
                return False
        return True

    def _receive(self, opens_ns: int, closes_ns: int) -> None:
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            raise UnexpectedResponse("the store closed the stream")
        self._answer += data
        whole = len(self._answer) // COUNT.size * COUNT.size
        if not whole:
            return
        (acked,) = COUNT.unpack_from(self._answer, whole - COUNT.size)
        del self._answer[:whole]
        now = time.perf_counter_ns()
        if opens_ns <= now <= closes_ns:
            self._in_window += acked - self._acked
        for number in range(self._acked, acked):
            due_ns = self._start_ns + int(number * self._interval_ns)
            if opens_ns <= due_ns < closes_ns:
                self._latencies.append(now - due_ns)
        self._acked = acked

    def run(self) -> dict[str, Any]:
        """Send at the rate, then wait for what is still due."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        used = time.process_time()
        start = self._start_ns = time.perf_counter_ns()
        opens = start + int(self._warmup_s * 1e9)
        closes = opens + int(self._seconds * 1e9)
        while (now := time.perf_counter_ns()) < closes:
            due = int((now - start) / self._interval_ns) + 1
            if self._limit:
                due = min(due, self._limit)
            flowing = self._send_due(due)
            poll.modify(self._sock, select.POLLIN if flowing else select.POLLIN | select.POLLOUT)
            if poll.poll(POLL_MS):
                self._receive(opens, closes)
            if self._limit and self._acked >= self._limit:
                break
        ended = min(closes, time.perf_counter_ns())
        requests = self._finish(opens, closes)
        seconds = (ended - opens) / 1e9
        payloads = self._in_window * self._batch
        return {
            "payloads_per_s": payloads / seconds,
            "mb_per_s": payloads * self._payload_bytes / seconds / 1e6,
            "requests": requests,
            "total_payload_bytes": requests * self._batch * self._payload_bytes,
            "seconds": seconds,
            "wall_s": (time.perf_counter_ns() - start) / 1e9,
            "client_cpu_s": time.process_time() - used,
            **(quantiles(self._latencies) if self._latencies else {}),
        }

    def _finish(self, opens: int, closes: int) -> int:
        """Send the rest of a request that is half sent, and wait for every response."""
        requests = -(-self._sent_bytes // len(self._frame))
        deadline = time.monotonic() + DRAIN_S
        while self._acked < requests:
            if time.monotonic() > deadline:
                raise UnexpectedResponse(
                    f"{requests - self._acked} requests not committed within {DRAIN_S} s"
                )
            flowing = self._send_due(requests)
            select.select([self._sock], [] if flowing else [self._sock], [], 0.05)
            self._receive(opens, closes)
        self._sock.close()
        return requests


def open_loop(job: dict[str, Any]) -> dict[str, Any]:
    """The job of the load generator. UnexpectedResponse, OSError."""
    return OpenLoop(job).run()
