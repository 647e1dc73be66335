"""Producers with several requests in flight: as fast as a window allows, or at a rate, each due at its time.

Owns: `Lane` (one connection, answers in order) and the job "lanes". Under a rate the loop is open: request
number i is due at i / rate, whether or not the broker keeps up, and its latency counts from when it was due
(no coordinated omission); what a full window holds back waits, and the wait counts. Without a rate latencies
count from the send. Latencies are int64 nanoseconds of the monotonic clock.
Invariants: every answer's correlation id and error codes are checked; what is due (or sent) inside the window
has its latency counted, also where it is answered after it; a rate is of what was answered within. Does not
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

from bench.load.connection import SOCKET_TIMEOUT_S, Answers, connect
from bench.load.latency import keep, quantiles
from bench.load.wire import ProduceTemplate, WrongAnswer, record_batch

SPIN_NS = 100_000
"""Before a request is due the loop looks without sleeping for so long, as a sleep may end so much too late;
for longer it would take a processor from the broker."""
LATE_S = 30.0
"""How long after its end an open loop waits for what it has sent; a broker that needs longer failed."""

Result = dict[str, Any]


class Lane:
    """One connection to one broker: requests of `template`s in turn, at most `window` unanswered."""

    __slots__ = ("_answers", "_sent", "correlation_id", "sock", "templates", "waiting", "window")

    def __init__(self, sock: socket.socket, templates: list[ProduceTemplate], window: int) -> None:
        self.sock = sock
        self.templates = templates
        self.window = window
        self.correlation_id = 0
        self.waiting: deque[int] = deque()
        """When each request that is due and not answered counts from, in order of their sending."""
        self._sent = 0
        """How many of `waiting` were sent."""
        self._answers = Answers(sock)

    @property
    def has_room(self) -> bool:
        return self._sent < self.window

    def due(self, from_ns: int) -> None:
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
        """Take what is there: what the requests answered by it counted from. WrongAnswer."""
        answered: list[int] = []
        for frame in self._answers.all():
            number = self.correlation_id - self._sent + 1
            self.templates[number % len(self.templates)].verify(frame, number)
            answered.append(self.waiting.popleft())
            self._sent -= 1
        return answered


class _Loop:
    """All lanes behind one epoll, and what was counted."""

    def __init__(self, job: Result, lanes: list[Lane], poll: select.epoll) -> None:
        self.lanes = lanes
        self.latencies = array("q")
        self.late = array("q")
        """How long after a request was due it was come to: the client's fault, and within its latency."""
        self.total = self.within = 0
        """Answers at all, and within the window."""
        self._rate = float(job["rate"])
        self._poll = poll
        self._by_fd = {lane.sock.fileno(): lane for lane in lanes}
        for number in self._by_fd:
            self._poll.register(number, select.EPOLLIN)
        self._begin_ns = time.perf_counter_ns()
        self._open_ns = self._begin_ns + int(job["warmup_s"] * 1e9)
        self._close_ns = self._open_ns + int(job["seconds"] * 1e9)

    def run(self) -> None:
        """Until the window has closed and all is answered. WrongAnswer."""
        if self._rate:
            self._run_scheduled()
        else:
            self._run_unbounded()
        deadline = time.perf_counter() + LATE_S
        while any(lane.waiting for lane in self.lanes):
            if time.perf_counter() > deadline:
                raise WrongAnswer(f"requests unanswered {LATE_S:.0f} s after the end")
            for lane in self._ready_lanes(SOCKET_TIMEOUT_S):
                lane.send()

    def _run_scheduled(self) -> None:
        """Each lane has its own schedule, shifted against the others'."""
        each_ns = int(1e9 * len(self.lanes) / self._rate)
        count = len(self.lanes)
        due = [(self._begin_ns + number * each_ns // count, number) for number in range(count)]
        heapq.heapify(due)
        while True:
            at, number = due[0]
            if at >= self._close_ns:
                return
            wait_ns = at - time.perf_counter_ns()
            if wait_ns > 0:
                for lane in self._ready_lanes(max(0, wait_ns - SPIN_NS) / 1e9):
                    lane.send()
                continue
            if at >= self._open_ns:
                self.late.append(-wait_ns)
            heapq.heapreplace(due, (at + each_ns, number))
            self.lanes[number].due(at)

    def _run_unbounded(self) -> None:
        clock = time.perf_counter_ns
        for lane in self.lanes:
            for _ in range(lane.window):
                lane.due(clock())
        while clock() < self._close_ns:
            for lane in self._ready_lanes(SOCKET_TIMEOUT_S):
                while lane.has_room:
                    lane.due(clock())

    def _ready_lanes(self, timeout_s: float) -> list[Lane]:
        """The lanes that were answered within the time."""
        found = []
        if timeout_s > 0:  # epoll's own clock is milliseconds, rounded up
            select.select([self._poll], [], [], timeout_s)
        for number, _ in self._poll.poll(0):
            lane = self._by_fd[number]
            starts = lane.receive()
            done = time.perf_counter_ns()
            self.total += len(starts)
            for start in starts:
                if self._open_ns <= start < self._close_ns:
                    self.latencies.append(done - start)
                    self.within += done < self._close_ns
            found.append(lane)
        return found


def shares(producers: int, ports: list[int]) -> list[tuple[int, list[int]]]:
    """For each connection the port and the partitions it writes to. Args: ports: of each partition's leader.

    As many connections as partitions or more share partitions; fewer of them share them out, each among those
    of one leader, or all of its where it has fewer than connections. Where there are fewer connections than
    leaders some partitions are nobody's.
    """
    if producers >= len(ports):
        return [(ports[number % len(ports)], [number % len(ports)]) for number in range(producers)]
    leaders = list(dict.fromkeys(ports))
    found = []
    for number in range(producers):
        port = leaders[number % len(leaders)]
        led = [partition for partition, each in enumerate(ports) if each == port]
        mates = len(range(number % len(leaders), producers, len(leaders)))
        found.append((port, led[number // len(leaders) :: mates] or led))
    return found


def lanes_of(job: Result) -> list[Lane]:
    """The job's connections, `shares` of the partitions; `ports`: their leaders', where there are several."""
    batch = record_batch(job["records"], job["record_bytes"], time.time_ns() // 1_000_000)
    made = []
    for port, partitions in shares(job["producers"], job.get("ports", [job["port"]] * job["partitions"])):
        templates = [ProduceTemplate(job["topic"], {each: batch}, job["records"]) for each in partitions]
        sock = connect(job["host"], port, security=job.get("security"))
        made.append(Lane(sock, templates, job["window"]))
    return made


def lanes(job: Result) -> Result:
    """`producers` connections, `window`, `rate` requests/s altogether (0: no rate)."""
    poll = select.epoll()  # first, as select() takes low numbers only
    made = lanes_of(job)
    loop = _Loop(job, made, poll)
    loop.run()
    for lane in made:
        lane.sock.close()
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
