"""The player of two-level Kafka (seed 000, figure 8): a Kafka transaction for each entry of the log.

Reads the log's topic from its end on, splits each entry, and writes the parts to the topics of the targets
together with its own position in the log, in one transaction.
"""

from __future__ import annotations

import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.player.workload import split
from bench.player.writer import TIMEOUT_S, producer_for
from bench.sessions.children import Words, answer, child_main, next_line, report_ready

POLL_S = 0.2


class KafkaPlayer(threading.Thread):
    """One log, and a topic for each target."""

    def __init__(self, job: Words) -> None:
        super().__init__(daemon=True)
        self.entries = 0
        self.error = ""
        self.assigned, self._ended = threading.Event(), threading.Event()
        self._log: str = job["log"]
        self._topics: list[str] = job["topics"]
        self._consumer = Consumer(
            {
                "bootstrap.servers": job["bootstrap"],
                "group.id": f"bench-player-{self._log}",
                "enable.auto.commit": False,
                "socket.nagle.disable": True,
            }
        )
        self._producer = producer_for(job["bootstrap"], f"bench-player-{self._log}")

    def run(self) -> None:
        try:
            where = TopicPartition(self._log, 0)
            _, where.offset = self._consumer.get_watermark_offsets(where, timeout=30)
            self._consumer.assign([where])
            self._consumer.poll(POLL_S)
            self.assigned.set()
            while not self._ended.is_set():
                message = self._consumer.poll(POLL_S)
                dispatched_ns = time.monotonic_ns()
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._play(message.value() or b"", message.offset() or 0, dispatched_ns)
        except KafkaException as error:
            self.error = str(error)
            self.assigned.set()

    def _play(self, value: bytes, offset: int, dispatched_ns: int) -> None:
        self._producer.begin_transaction()
        for target, part in split(value, len(self._topics), dispatched_ns).items():
            self._producer.produce(self._topics[target], part, partition=0)
        position = TopicPartition(self._log, 0, offset + 1)
        group = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([position], group, TIMEOUT_S)
        self._producer.commit_transaction(TIMEOUT_S)
        self.entries += 1

    def end(self) -> None:
        self._ended.set()
        self.join(TIMEOUT_S)
        self._consumer.close()


def work(job: Words) -> None:
    """Plays until it is told something, and answers how much it played."""
    player = KafkaPlayer(job)
    player.start()
    player.assigned.wait()
    if not player.error:
        report_ready()
        next_line()
        player.end()
    answer({"error": player.error} if player.error else {"entries": player.entries})


if __name__ == "__main__":
    sys.exit(child_main(work))
