"""Closed-loop producers that are a real client, librdkafka through confluent-kafka, one thread each.

`closed_loop` shows the broker with as little client as possible beside it; this shows what an application
sees, whose client shares the machine. Same window, same figures. Does no batching: a producer sends one
record, waits for its acknowledgement, and sends the next. `client_transactions` does the same with whole
transactions.
"""

from __future__ import annotations

import threading
import time
from array import array
from typing import Any

from confluent_kafka import KafkaException, Producer

from bench.load.latency import quantiles
from bench.load.wire import UnexpectedResponse

ACK_TIMEOUT_S = 30.0
INIT_ATTEMPTS = 4
Result = dict[str, Any]


class _Loop(threading.Thread):
    """One producer: latencies of what it sent inside the window, acknowledgements within it and at all."""

    def __init__(self, job: Result, window_ns: tuple[int, int]) -> None:
        super().__init__()
        self.latencies = array("q")
        self.total = self.within = 0
        self.error = ""
        self._open_ns, self._close_ns = window_ns
        self._topic = job["topic"]
        self._value = b"x" * job["record_bytes"]
        self._producer = Producer(
            {
                "bootstrap.servers": f"{job['host']}:{job['port']}",
                "acks": "all",
                "linger.ms": 0,
                "socket.nagle.disable": True,
            }
        )

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self.error = str(error)

    def run(self) -> None:
        try:
            while not self.error:
                sent_ns = time.perf_counter_ns()
                if sent_ns >= self._close_ns:
                    return
                self._producer.produce(self._topic, self._value, partition=0, on_delivery=self._on_delivery)
                if self._producer.flush(ACK_TIMEOUT_S):
                    self.error = f"no acknowledgement within {ACK_TIMEOUT_S:.0f} s"
                done_ns = time.perf_counter_ns()
                self.total += 1
                if sent_ns >= self._open_ns:
                    self.latencies.append(done_ns - sent_ns)
                    self.within += done_ns <= self._close_ns
        except (KafkaException, BufferError) as error:
            self.error = str(error)


def client_closed_loop(job: Result) -> Result:
    """Run `producers` of them for `seconds` after `warmup_s`. Raises UnexpectedResponse for any refused
    record."""
    opens = time.perf_counter_ns() + int(job["warmup_s"] * 1e9)
    closes = opens + int(job["seconds"] * 1e9)
    loops = [_Loop(job, (opens, closes)) for _ in range(job["producers"])]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    for loop in loops:
        if loop.error:
            raise UnexpectedResponse(loop.error)
    latencies = array("q", [each for loop in loops for each in loop.latencies])
    total, within = sum(loop.total for loop in loops), sum(loop.within for loop in loops)
    return {
        "requests": within,
        "seconds": job["seconds"],
        "requests_per_s": within / job["seconds"],
        "mb_per_s": within * job["record_bytes"] / job["seconds"] / 1e6,
        "total_requests": total,
        "total_records": total,
        **quantiles(latencies),
    }


def client_transactions(job: Result) -> Result:
    """Transactions of one record to each of `partitions`, for `seconds` after `warmup_s`.
    UnexpectedResponse."""
    producer = Producer(
        {
            "bootstrap.servers": job["bootstrap"],
            "transactional.id": f"bench-{job['topic']}",
            "linger.ms": 0,
            "socket.nagle.disable": True,
        }
    )
    try:
        init_transactions(producer)
        return _transactions(job, producer)
    except KafkaException as error:
        raise UnexpectedResponse(str(error)) from error


def init_transactions(producer: Producer) -> None:
    """Has the producer's transactions begin; tries again where the coordinator is just moving."""
    for attempt in range(INIT_ATTEMPTS):
        try:
            producer.init_transactions(ACK_TIMEOUT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or attempt + 1 == INIT_ATTEMPTS:
                raise


def _transactions(job: Result, producer: Producer) -> Result:
    value = b"x" * job["record_bytes"]
    opens_ns = time.perf_counter_ns() + int(job["warmup_s"] * 1e9)
    closes_ns = opens_ns + int(job["seconds"] * 1e9)
    latencies, commits, total = array("q"), array("q"), 0
    while (begun_ns := time.perf_counter_ns()) < closes_ns:
        producer.begin_transaction()
        for partition in range(job["partitions"]):
            producer.produce(job["topic"], value, partition=partition)
        asked_ns = time.perf_counter_ns()
        producer.commit_transaction(ACK_TIMEOUT_S)
        done_ns = time.perf_counter_ns()
        total += 1
        if begun_ns >= opens_ns and done_ns <= closes_ns:
            latencies.append(done_ns - begun_ns)
            commits.append(done_ns - asked_ns)
    committing = quantiles(commits)
    return {
        "transactions_per_s": len(latencies) / job["seconds"],
        "total_transactions": total,
        "total_records": 2 * job["partitions"] * total,  # a marker beside each
        "commit_p50_ms": committing["p50_ms"],
        "commit_p99_ms": committing["p99_ms"],
        **quantiles(latencies),
    }
