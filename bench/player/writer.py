"""The transaction manager of a run, in a process of its own: appends transactions, at a rate or one by one.

Owns: what an append is (`log`: one record, the whole transaction, in one topic; `shards`: each target's part
to that target's topic; `transactions`: the same in one Kafka transaction), and when the next one begins: when
the one before is acknowledged (closed loop), or at its time (open loop, with at most OUTSTANDING on their
way; a Kafka producer has one transaction at a time). Sent is the moment before the first call for it.
"""

from __future__ import annotations

import sys
import time
from array import array
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer

from bench.load.clients import init_transactions
from bench.load.latency import quantiles
from bench.player.workload import NEVER, Shape, split, transaction
from bench.sessions.children import Words, child_main, next_line, report_ready, respond

OUTSTANDING = 64
"""Of an open loop; also what the device's flushes are judged by."""
TIMEOUT_S = 60.0
START_S = 0.1


class NotWritten(RuntimeError):
    """An append was rejected, or is not acknowledged."""


class Acknowledged:
    """The appends in flight, and the durations of those in the window."""

    def __init__(self) -> None:
        self.opens_ns = self.closes_ns = 0
        self.took_ns = array("q")
        self.error = ""
        self._open: dict[int, tuple[int, int]] = {}
        """number -> (sent, records that are not acknowledged)."""

    def __len__(self) -> int:
        return len(self._open)

    def sent(self, number: int, sent_ns: int, records: int) -> None:
        self._open[number] = (sent_ns, records)

    def came(self, number: int) -> None:
        """One record of it."""
        sent_ns, left = self._open.pop(number)
        if left > 1:
            self._open[number] = (sent_ns, left - 1)
        elif self.opens_ns <= sent_ns < self.closes_ns:
            self.took_ns.append(time.monotonic_ns() - sent_ns)


class Appender(Protocol):
    """Appends a transaction to one topic, or to several."""

    outstanding: int

    def append(self, number: int, sent_ns: int) -> None: ...


class ToTopics:
    """One record to a log, or a part to the topic of each target. `outstanding`: how many at most."""

    outstanding = OUTSTANDING

    def __init__(self, producer: Producer, job: Words, acknowledged: Acknowledged) -> None:
        self._producer = producer
        self._topics: list[str] = job["topics"]
        self._shape = Shape(job["targets"], job["keys"])
        self._splits = job["mode"] != "log"
        self._acknowledged = acknowledged

    def parts(self, number: int, sent_ns: int) -> dict[int, bytes]:
        whole = transaction(number, sent_ns, self._shape.keys)
        return split(whole, self._shape.targets, NEVER) if self._splits else {0: whole}

    def append(self, number: int, sent_ns: int) -> None:
        parts = self.parts(number, sent_ns)
        self._acknowledged.sent(number, sent_ns, len(parts))

        def on_delivery(error: object, message: object) -> None:
            if error is not None:
                self._acknowledged.error = str(error)
            self._acknowledged.came(number)

        for target, value in parts.items():
            self._producer.produce(self._topics[target], value, partition=0, on_delivery=on_delivery)


class InTransactions(ToTopics):
    """Each in a Kafka transaction of its own."""

    outstanding = 1

    def append(self, number: int, sent_ns: int) -> None:
        parts = self.parts(number, sent_ns)
        self._acknowledged.sent(number, sent_ns, 1)
        self._producer.begin_transaction()
        for target, value in parts.items():
            self._producer.produce(self._topics[target], value, partition=0)
        self._producer.commit_transaction(TIMEOUT_S)
        self._acknowledged.came(number)


def producer_for(bootstrap: str, transactional_id: str | None = None) -> Producer:
    """The producer of both sides' writers and of the Kafka player. KafkaException."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "linger.ms": 0,
        "socket.nagle.disable": True,
    }
    if transactional_id is None:
        return Producer(settings)
    producer = Producer({**settings, "transactional.id": transactional_id})
    init_transactions(producer)
    return producer


def write(job: Words, appender: Appender, producer: Producer, acknowledged: Acknowledged) -> Words:
    """The run. Raises NotWritten, KafkaException.

    `rate` is transactions a second, 0 for a closed loop; it ends after `seconds`, of which the first
    `warmup_s` are not measured, or after `count` transactions, if that is not 0. Their numbers begin at
    `first`, and `transactions` is where the next would.
    """
    begins_ns = time.monotonic_ns() + int(START_S * 1e9)
    opens_ns = begins_ns + int(job["warmup_s"] * 1e9)
    closes_ns = opens_ns + int(job["seconds"] * 1e9)
    acknowledged.opens_ns, acknowledged.closes_ns = opens_ns, closes_ns
    most = appender.outstanding if job["rate"] else 1
    first = number = job.get("first", 0)
    late_ns = in_window = 0
    while not (job["count"] and number - first >= job["count"]):
        due_ns = begins_ns + int((number - first) / job["rate"] * 1e9) if job["rate"] else begins_ns
        _wait(producer, acknowledged, due_ns, most)
        sent_ns = time.monotonic_ns()
        if sent_ns >= closes_ns:
            break
        appender.append(number, sent_ns)
        number += 1
        if sent_ns >= opens_ns:
            in_window += 1
            late_ns = max(late_ns, sent_ns - due_ns)
    last_ns = time.monotonic_ns()
    _wait(producer, acknowledged, last_ns, 1)
    took_s = (min(last_ns, closes_ns) - opens_ns) / 1e9
    return {
        "transactions": number,
        "writes": number - first,
        "opens_ns": opens_ns,
        "closes_ns": closes_ns,
        "per_s": in_window / took_s if took_s > 0 else 0.0,
        "most_late_ms": late_ns / 1e6 if job["rate"] else 0.0,
        **{f"append_{name}": value for name, value in quantiles(acknowledged.took_ns).items()},
    }


def _wait(producer: Producer, acknowledged: Acknowledged, due_ns: int, most: int) -> None:
    """Until it is time, and fewer than `most` are on their appender."""
    deadline_ns = time.monotonic_ns() + int(TIMEOUT_S * 1e9)
    while True:
        now_ns = time.monotonic_ns()
        if acknowledged.error:
            raise NotWritten(acknowledged.error)
        if len(acknowledged) < most and now_ns >= due_ns:
            producer.poll(0)
            return
        if now_ns > max(deadline_ns, due_ns):
            raise NotWritten(f"{len(acknowledged)} appends are not acknowledged after {TIMEOUT_S:.0f} s")
        left_s = (due_ns - now_ns) / 1e9 if now_ns < due_ns else TIMEOUT_S
        producer.poll(min(left_s, 0.1))


def work(job: Words) -> None:
    """One run: waits for a line before it begins, and responds with the result."""
    is_transactional = job["mode"] == "transactions"
    producer = producer_for(job["bootstrap"], job["name"] if is_transactional else None)
    acknowledged = Acknowledged()
    appender = (InTransactions if is_transactional else ToTopics)(producer, job, acknowledged)
    for topic in job["topics"]:
        producer.list_topics(topic, timeout=30)  # so that nothing is learned at the first append
    report_ready()
    while next_line() is not None:
        try:
            respond(write(job, appender, producer, acknowledged))
        except KafkaException as error:
            raise NotWritten(str(error)) from error


if __name__ == "__main__":
    sys.exit(child_main(work))
