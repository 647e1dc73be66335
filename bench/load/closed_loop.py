"""Closed loops: producers, or committers of offsets, each with one request in flight; pre-encoded requests.

Latencies are int64 nanoseconds of the monotonic clock from just before the send until the whole response is
there. Requests sent during warm-up are not counted; what was sent in time and acknowledged later is in the
latencies and not in the rates. Does not do: retries, batching or compression: it measures the broker, not a
client.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from array import array
from collections.abc import Sequence
from typing import Any

from bench.load.connection import SOCKET_TIMEOUT_S, ResponseReader, connect, ready
from bench.load.latency import keep, quantiles
from bench.load.members import await_coordinator
from bench.load.wire import CommitTemplate, ProduceTemplate, record_batch

Result = dict[str, Any]

Template = ProduceTemplate | CommitTemplate


def templates_for(
    topic: str, partitions: int, record_bytes: int, spread: str, records: int
) -> list[ProduceTemplate]:
    """The batches of the producers. `spread`:

    "turns": one request per partition, each with `records` records, sent in turn;
    "span": one request with `records` records to each of the partitions.
    """
    batch = record_batch(records, record_bytes, time.time_ns() // 1_000_000)
    if spread == "span":
        return [ProduceTemplate(topic, {index: batch for index in range(partitions)}, records * partitions)]
    if spread != "turns":
        raise ValueError(f"unknown spread {spread!r}")
    return [ProduceTemplate(topic, {index: batch}, records) for index in range(partitions)]


class ClosedLoopClient:
    """One closed loop of Produce (or OffsetCommit) requests: a socket, at most one request in flight."""

    __slots__ = ("_next_template", "_responses", "correlation_id", "current", "sent_ns", "sock", "templates")

    def __init__(self, sock: socket.socket, templates: Sequence[Template], first_template: int) -> None:
        self.sock = sock
        self.templates = templates
        self.current = templates[0]
        self.correlation_id = 0
        self.sent_ns = 0
        self._next_template = first_template
        self._responses = ResponseReader(sock)

    def send(self) -> None:
        """Send the next request whole."""
        self.correlation_id += 1
        self.current = self.templates[self._next_template % len(self.templates)]
        self._next_template += 1
        request = self.current.stamp(self.correlation_id)
        self.sent_ns = time.perf_counter_ns()
        sent = self.sock.send(request)
        while sent < len(request):
            select.select([], [self.sock], [], SOCKET_TIMEOUT_S)
            sent += self.sock.send(memoryview(request)[sent:])

    def receive(self) -> bool:
        """Read what has arrived; True when the whole response is there and has no error."""
        frame = self._responses.poll()
        if frame is None:
            return False
        self.current.verify(frame, self.correlation_id)
        return True

    def call(self) -> None:
        """Send the next request and wait for its response; on a blocking socket. UnexpectedResponse."""
        self.send()
        self.current.verify(self._responses.wait(), self.correlation_id)


class Window:
    """The measured part of a run: opens after warm-up, closes `seconds` later."""

    __slots__ = ("bytes", "close_ns", "latencies", "open_ns", "records", "requests")

    def __init__(self, warmup_s: float, seconds: float) -> None:
        start = time.perf_counter_ns()
        self.open_ns = start + int(warmup_s * 1e9)
        self.close_ns = self.open_ns + int(seconds * 1e9)
        self.latencies = array("q")
        self.requests = self.records = self.bytes = 0

    def count(self, producer: ClosedLoopClient, done_ns: int) -> None:
        """An acknowledged request: its latency if it was sent inside the window, whenever the response came,
        or a stall at the end would not be seen; rates are of responses inside, too."""
        if not self.open_ns <= producer.sent_ns < self.close_ns:
            return
        self.latencies.append(done_ns - producer.sent_ns)
        if done_ns <= self.close_ns:
            self.requests += 1
            self.records += producer.current.records
            self.bytes += producer.current.batch_bytes

    def result(self, total_requests: int, total_records: int) -> Result:
        seconds = (self.close_ns - self.open_ns) / 1e9
        return {
            "requests": self.requests,
            "seconds": seconds,
            "requests_per_s": self.requests / seconds,
            "mb_per_s": self.bytes / seconds / 1e6,
            "total_requests": total_requests,
            "total_records": total_records,
            **quantiles(self.latencies),
        }


def _one_producer(producer: ClosedLoopClient, window: Window) -> tuple[int, int]:
    requests = records = 0
    clock = time.perf_counter_ns
    while True:
        producer.call()
        done = clock()
        requests += 1
        records += producer.current.records
        window.count(producer, done)
        if done >= window.close_ns:
            return requests, records


def _many_producers(producers: list[ClosedLoopClient], window: Window) -> tuple[int, int]:
    """All behind one epoll; after the window closes, the outstanding responses are awaited."""
    requests = records = 0
    clock = time.perf_counter_ns
    by_fd = {producer.sock.fileno(): producer for producer in producers}
    poll = select.epoll()
    for producer in producers:
        producer.sock.setblocking(False)
        poll.register(producer.sock.fileno(), select.EPOLLIN)
        producer.send()
    in_flight = len(producers)
    while in_flight:
        for fd in ready(poll):
            producer = by_fd[fd]
            if not producer.receive():
                continue
            done = clock()
            requests += 1
            records += producer.current.records
            window.count(producer, done)
            if done < window.close_ns:
                producer.send()
            else:
                in_flight -= 1
    poll.close()
    return requests, records


def closed_loop(job: Result) -> Result:
    """`producers` closed-loop producers for `warmup_s` + `seconds`.

    With `ports` (each partition's leader) every producer keeps to one partition, at its leader.
    """
    templates = templates_for(
        job["topic"], job["partitions"], job["record_bytes"], job["spread"], job["records"]
    )
    producers = []
    for number in range(job["producers"]):
        mine, port = templates, job["port"]
        if "ports" in job:
            mine, port = [templates[number % len(templates)]], job["ports"][number % len(templates)]
        sock = connect(job["host"], port, security=job.get("security"))
        producers.append(ClosedLoopClient(sock, mine, number))
    window = Window(job["warmup_s"], job["seconds"])
    if len(producers) == 1:
        totals = _one_producer(producers[0], window)
    else:
        totals = _many_producers(producers, window)
    for producer in producers:
        producer.sock.close()
    keep(job, window.latencies)
    return window.result(*totals)


def commit_loop(job: Result) -> Result:
    """`producers` closed loops that commit offsets, each for a group of its own, from outside."""
    groups = [f"{job['group']}-{number}" for number in range(job["producers"])]
    for group in groups:
        asyncio.run(await_coordinator(job["host"], job["port"], group))
    committers = [
        ClosedLoopClient(connect(job["host"], job["port"]), [CommitTemplate(group, job["topic"], 0)], 0)
        for group in groups
    ]
    window = Window(job["warmup_s"], job["seconds"])
    totals = _many_producers(committers, window)
    for committer in committers:
        committer.sock.close()
    return window.result(*totals)
