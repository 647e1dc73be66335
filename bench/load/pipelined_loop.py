"""Producers with several requests in flight: as fast as a window allows, or at a rate, each due at its time.

Owns: `PipelinedProducer` (one connection, responses in order) and the job "pipelined_loop". Under a rate the
loop is open: request number i is due at i / rate, whether or not the broker keeps up, and its latency counts
from when it was due (no coordinated omission); what a full window holds back waits, and the wait counts.
Without a rate latencies count from the send. Latencies are int64 nanoseconds of the monotonic clock.
Invariants: every response's correlation id and error codes are checked; what is due (or sent) inside the
window has its latency counted, also where its response comes later; a rate is of the responses within. Does
not
do: retries, batching by time, compression.
"""

from __future__ import annotations

import heapq
import select
import socket
import time
from array import array
from collections import deque
from typing import Any

from bench.load.connection import SOCKET_TIMEOUT_S, ResponseReader, connect
from bench.load.latency import keep, quantiles
from bench.load.wire import ProduceTemplate, UnexpectedResponse, record_batch

SPIN_NS = 100_000
"""Before a request is due the loop looks without sleeping for so long, as a sleep may end so much too late;
for longer it would take a processor from the broker."""
LATE_S = 30.0
"""How long after its end an open loop waits for what it has sent; a broker that needs longer failed."""

Result = dict[str, Any]


class PipelinedProducer:
    """One connection to one broker: requests of `template`s in turn, at most `window` in flight."""

    __slots__ = ("_responses", "_sent", "correlation_id", "sock", "templates", "waiting", "window")

    def __init__(self, sock: socket.socket, templates: list[ProduceTemplate], window: int) -> None:
        self.sock = sock
        self.templates = templates
        self.window = window
        self.correlation_id = 0
        self.waiting: deque[int] = deque()
        """When each request that is due and has no response counts from, in order of their sending."""
        self._sent = 0
        """How many of `waiting` were sent."""
        self._responses = ResponseReader(sock)

    @property
    def has_room(self) -> bool:
        return self._sent < self.window

    def schedule(self, from_ns: int) -> None:
        """Send a request, or let it wait until there is room. Args: from_ns: where its latency begins."""
        self.waiting.append(from_ns)
        self.send()

    def send(self) -> None:
        """Send what waits, as far as there is room."""
        while self.has_room and self._sent < len(self.waiting):
            self.correlation_id += 1
            self._sent += 1
            template = self.templates[self.correlation_id % len(self.templates)]
            self.sock.sendall(template.stamp(self.correlation_id))

    def receive(self) -> list[int]:
        """Read the responses that have arrived; returns when the latency of each request begins.
        UnexpectedResponse."""
        begins: list[int] = []
        for frame in self._responses.poll_all():
            number = self.correlation_id - self._sent + 1
            self.templates[number % len(self.templates)].verify(frame, number)
            begins.append(self.waiting.popleft())
            self._sent -= 1
        return begins


class _PipelinedLoop:
    """All producers behind one epoll, and the counts."""

    def __init__(self, job: Result, producers: list[PipelinedProducer], poll: select.epoll) -> None:
        self.producers = producers
        self.latencies = array("q")
        self.late = array("q")
        """How long after a request was due it was sent: the load generator is late, and the latency includes
        it."""
        self.total = self.within = 0
        """All responses, and those within the window."""
        self._rate = float(job["rate"])
        self._poll = poll
        self._by_fd = {producer.sock.fileno(): producer for producer in producers}
        for number in self._by_fd:
            self._poll.register(number, select.EPOLLIN)
        self._begin_ns = time.perf_counter_ns()
        self._open_ns = self._begin_ns + int(job["warmup_s"] * 1e9)
        self._close_ns = self._open_ns + int(job["seconds"] * 1e9)

    def run(self) -> None:
        """Until the window has closed and all responses are there. UnexpectedResponse."""
        if self._rate:
            self._run_scheduled()
        else:
            self._run_unbounded()
        deadline = time.perf_counter() + LATE_S
        while any(producer.waiting for producer in self.producers):
            if time.perf_counter() > deadline:
                raise UnexpectedResponse(f"requests without a response {LATE_S:.0f} s after the end")
            for producer in self._ready_producers(SOCKET_TIMEOUT_S):
                producer.send()

    def _run_scheduled(self) -> None:
        """Each producer has its own schedule, shifted against the others'."""
        each_ns = int(1e9 * len(self.producers) / self._rate)
        count = len(self.producers)
        due = [(self._begin_ns + number * each_ns // count, number) for number in range(count)]
        heapq.heapify(due)
        while True:
            at, number = due[0]
            if at >= self._close_ns:
                return
            wait_ns = at - time.perf_counter_ns()
            if wait_ns > 0:
                for producer in self._ready_producers(max(0, wait_ns - SPIN_NS) / 1e9):
                    producer.send()
                continue
            if at >= self._open_ns:
                self.late.append(-wait_ns)
            heapq.heapreplace(due, (at + each_ns, number))
            self.producers[number].schedule(at)

    def _run_unbounded(self) -> None:
        clock = time.perf_counter_ns
        for producer in self.producers:
            for _ in range(producer.window):
                producer.schedule(clock())
        while clock() < self._close_ns:
            for producer in self._ready_producers(SOCKET_TIMEOUT_S):
                while producer.has_room:
                    producer.schedule(clock())

    def _ready_producers(self, timeout_s: float) -> list[PipelinedProducer]:
        """The producers with responses within the time."""
        found = []
        if timeout_s > 0:  # epoll's own clock is milliseconds, rounded up
            select.select([self._poll], [], [], timeout_s)
        for number, _ in self._poll.poll(0):
            producer = self._by_fd[number]
            starts = producer.receive()
            done = time.perf_counter_ns()
            self.total += len(starts)
            for start in starts:
                if self._open_ns <= start < self._close_ns:
                    self.latencies.append(done - start)
                    self.within += done < self._close_ns
            found.append(producer)
        return found


def shares(producers: int, ports: list[int]) -> list[tuple[int, list[int]]]:
    """For each connection the port and the partitions it writes to. Args: ports: of each partition's leader.

    As many connections as partitions or more share partitions; fewer of them share them out, each among those
    of one leader, or all of its where it has fewer than connections. Where there are fewer connections than
    leaders some partitions are not written to.
    """
    if producers >= len(ports):
        return [(ports[number % len(ports)], [number % len(ports)]) for number in range(producers)]
    leaders = list(dict.fromkeys(ports))
    found = []
    for number in range(producers):
        port = leaders[number % len(leaders)]
        led = [partition for partition, each in enumerate(ports) if each == port]
        sharing = len(range(number % len(leaders), producers, len(leaders)))
        found.append((port, led[number // len(leaders) :: sharing] or led))
    return found


def connect_producers(job: Result) -> list[PipelinedProducer]:
    """The job's connections, `shares` of the partitions; `ports`: their leaders', where there are several."""
    batch = record_batch(job["records"], job["record_bytes"], time.time_ns() // 1_000_000)
    made = []
    for port, partitions in shares(job["producers"], job.get("ports", [job["port"]] * job["partitions"])):
        templates = [ProduceTemplate(job["topic"], {each: batch}, job["records"]) for each in partitions]
        sock = connect(job["host"], port, security=job.get("security"))
        made.append(PipelinedProducer(sock, templates, job["window"]))
    return made


def pipelined_loop(job: Result) -> Result:
    """`producers` connections, `window`, `rate` requests/s altogether (0: no rate)."""
    poll = select.epoll()  # first, as select() takes low numbers only
    made = connect_producers(job)
    loop = _PipelinedLoop(job, made, poll)
    loop.run()
    for producer in made:
        producer.sock.close()
    keep(job, loop.latencies)
    count, seconds = loop.within, job["seconds"]
    size = made[0].templates[0].batch_bytes
    late = {f"late_{name}": value for name, value in quantiles(loop.late).items()} if loop.late else {}
    return {
        "requests": len(loop.latencies),
        "seconds": seconds,
        "offered_per_s": job["rate"],
        "requests_per_s": count / seconds,
        "records_per_s": count * job["records"] / seconds,
        "mb_per_s": count * size / seconds / 1e6,
        "total_requests": loop.total,
        "total_records": loop.total * job["records"],
        **{name: late[name] for name in ("late_p50_ms", "late_p99_ms") if late},
        **quantiles(loop.latencies),
    }
