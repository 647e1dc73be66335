"""The player of two-level Kafka (seed 000, figure 8): a Kafka transaction for each entry of the log.

Reads the log's topic from its end on, splits each entry, and writes the parts to the topics of the targets
together with its own position in the log, in one transaction.
"""

from __future__ import annotations

import sys

from confluent_kafka import Message, TopicPartition

from bench.player.consumers import ConsumerThread
from bench.player.workload import split
from bench.player.writer import TIMEOUT_S, producer_for
from bench.sessions.children import Words, child_main, next_line, report_ready, respond


class KafkaPlayer(ConsumerThread):
    """One log, and a topic for each target."""

    def __init__(self, job: Words) -> None:
        super().__init__(job["bootstrap"], job["log"])
        self.entries = 0
        self._log: str = job["log"]
        self._topics: list[str] = job["topics"]
        self._producer = producer_for(job["bootstrap"], f"bench-player-{self._log}")

    def take(self, message: Message, at_ns: int) -> None:
        self._producer.begin_transaction()
        for target, part in split(message.value() or b"", len(self._topics), at_ns).items():
            self._producer.produce(self._topics[target], part, partition=0)
        position = TopicPartition(self._log, 0, (message.offset() or 0) + 1)
        group = self.consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([position], group, TIMEOUT_S)
        self._producer.commit_transaction(TIMEOUT_S)
        self.entries += 1


def work(job: Words) -> None:
    """Copies until the next request, and responds with the number of entries."""
    player = KafkaPlayer(job)
    player.start()
    player.assigned.wait()
    if not player.error:
        report_ready()
        next_line()
        player.end()
    respond({"error": player.error} if player.error else {"entries": player.entries})


if __name__ == "__main__":
    sys.exit(child_main(work))
