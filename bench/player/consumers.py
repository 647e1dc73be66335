"""Kafka's targets: a consumer for the topic of each, from its end on, each in a thread, all in one process.

The time is noted when the message is handed to the application.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from bench.player.workload import Noted, Shape, delays, expected_parts
from bench.sessions.children import Words, child_main, next_line, report_ready, respond

POLL_S = 0.2
END_TIMEOUT_S = 30.0


class NotConsumed(RuntimeError):
    """Something was not delivered."""


class ConsumerThread(threading.Thread):
    """Reads partition 0 of a topic from its end on; `take` gets each message."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.error = ""
        self.assigned, self._ended = threading.Event(), threading.Event()
        self._topic = topic
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"bench-{topic}",
                "enable.auto.commit": False,
                "socket.nagle.disable": True,
                **settings,
            }
        )

    def take(self, message: Message, at_ns: int) -> None:
        """A message, and when it was handed to the application. Raises KafkaException."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            where = TopicPartition(self._topic, 0)
            _, where.offset = self.consumer.get_watermark_offsets(where, timeout=30)
            self.consumer.assign([where])
            self.consumer.poll(POLL_S)  # a Fetch is under way
            self.assigned.set()
            while not self._ended.is_set():
                message = self.consumer.poll(POLL_S)
                at_ns = time.monotonic_ns()
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self.take(message, at_ns)
        except KafkaException as error:
            self.error = str(error)
            self.assigned.set()

    def end(self) -> None:
        self._ended.set()
        self.join(END_TIMEOUT_S)
        self.consumer.close()


class ShardConsumer(ConsumerThread):
    """One target."""

    def __init__(self, bootstrap: str, topic: str, isolation: str) -> None:
        super().__init__(bootstrap, topic, **{"isolation.level": isolation})
        self.noted = Noted()

    def take(self, message: Message, at_ns: int) -> None:
        self.noted.note(message.value() or b"", at_ns)


def have_received(noted: list[Noted], expected: list[int]) -> bool:
    """True if all have received as much as they wait for."""
    return all(len(each) >= count for each, count in zip(noted, expected, strict=True))


def work(job: Words) -> None:
    """Answers one line, {transactions, opens_ns, closes_ns, timeout_s}, when all has come."""
    shape = Shape(job["targets"], job["keys"])
    consumers = [ShardConsumer(job["bootstrap"], topic, job["isolation"]) for topic in job["topics"]]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.assigned.wait()
    _look(consumers)
    report_ready()
    written = next_line()
    if written is not None:
        noted = [each.noted for each in consumers]
        expected = [expected_parts(each, shape, written["transactions"]) for each in range(shape.targets)]
        deadline = time.monotonic() + written["timeout_s"]
        while not have_received(noted, expected) and time.monotonic() < deadline:
            _look(consumers)
            time.sleep(0.05)
        for consumer in consumers:
            consumer.end()
        for target, each in enumerate(noted):
            each.check(target, shape, written["transactions"])
        respond(delays(noted, written["opens_ns"], written["closes_ns"]))


def _look(consumers: list[ShardConsumer]) -> None:
    for consumer in consumers:
        if consumer.error:
            raise NotConsumed(consumer.error)


if __name__ == "__main__":
    sys.exit(child_main(work))
