"""`python -m tests.campaigns.streams --kills 10`: Kafka Streams' word count, exactly_once_v2, under kill -9.

`java/WordCount.java` is an ordinary Streams application (stores in memory, changelogs in topics);
lines are written while brokers are killed. In the end the last count of every word is the number of times it
was written, and no word's count ever fell or stood still in what a reader of committed records saw: nothing
was counted twice, nothing left out. Adds to docs/evidence/streams.json; `--resume` runs nothing where a sound
run of this source, as large in lines and kills, is recorded. Ends with 1 when the result is not exact, with 2
where a tool is missing.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from compat_tests.kafka_jars import STREAMS
from compat_tests.targets import TargetFailed
from tests.campaigns import java_programs, killed_brokers
from tests.campaigns.brokers import Brokers
from tests.campaigns.transforming import QUICK

NAME = "streams"
INPUT, OUTPUT = "lines", "counts"
PARTITIONS = 2
VOCABULARY = [f"word{number}" for number in range(100)]
WORDS_PER_LINE = 5
PATIENCE_S = 180.0
LINGER_S = 2.0
"""After everything is counted: what is counted twice would show."""


class Counts:
    """What a reader of committed records sees of the output, while it grows."""

    def __init__(self, bootstrap: str) -> None:
        self.last: Counter[str] = Counter()
        self.updates = 0
        self.problems: list[str] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "campaign-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **QUICK,
            }
        )
        self._consumer.assign([confluent_kafka.TopicPartition(OUTPUT, each, 0) for each in range(PARTITIONS)])

    def poll(self, seconds: float) -> None:
        """Reads on for so long. KafkaException for what no kill explains."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for each in self._consumer.consume(1000, min(0.2, left)):
                error = each.error()
                if error is None:
                    self.take((each.key() or b"").decode(), int(each.value() or b"0"))
                elif not error.retriable():
                    raise confluent_kafka.KafkaException(error)

    def take(self, word: str, count: int) -> None:
        """One update."""
        self.updates += 1
        if count <= self.last[word]:
            self.problems.append(f"{word}: {count} after {self.last[word]}")
        self.last[word] = count

    def close(self) -> None:
        self._consumer.close()


def compared(wanted: Counter[str], found: Counter[str]) -> list[str]:
    """What differs."""
    return [
        f"{word}: counted {found[word]}, written {wanted[word]}"
        for word in sorted(wanted.keys() | found.keys())
        if wanted[word] != found[word]
    ]


class Campaign:
    """One run over started brokers."""

    def __init__(self, brokers: Brokers, lines: int, kills: int, seed: int, directory: Path) -> None:
        self._brokers = brokers
        self._lines = lines
        self._kills = kills
        self._rng = random.Random(seed)
        self._directory = directory
        self.log = directory / "streams.log"
        self.written: Counter[str] = Counter()
        self.problems: list[str] = []
        self.updates = 0
        self._done = 0
        self._failed: list[str] = []
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                **QUICK,
            }
        )

    def run(self) -> None:
        """Fills `problems`. ToolchainMissing."""
        words = [self._brokers.bootstrap, INPUT, OUTPUT, str(self._directory / "state")]
        command = java_programs.java("WordCount", words, STREAMS, heap="256M")
        self._create_topics()
        counts = Counts(self._brokers.bootstrap)
        with open(self.log, "ab") as log:
            application = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        try:
            for kill in range(self._kills):
                self._write(self._lines * (kill + 1) // (self._kills + 1))
                self._await(counts, application, share=0.5)
                counts.poll(self._rng.uniform(0.0, 1.0))
                self._brokers.kill(self._rng)
            self._write(self._lines)
            self._await(counts, application, share=1.0)
            counts.poll(LINGER_S)
            self.problems += counts.problems + compared(self.written, counts.last)
        except TargetFailed as failure:
            self.problems.append(str(failure))
        finally:
            self.updates = counts.updates
            counts.close()
            application.terminate()
            try:
                application.wait(40)
            except subprocess.TimeoutExpired:
                application.kill()
                application.wait()

    def _create_topics(self) -> None:
        admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": self._brokers.bootstrap, "log_level": 0}
        )
        wanted = [
            confluent_kafka.admin.NewTopic(name, PARTITIONS, -1)  # type: ignore[attr-defined]
            for name in (INPUT, OUTPUT)
        ]
        for future in admin.create_topics(wanted, operation_timeout=20).values():
            future.result(30)

    def _write(self, until: int) -> None:
        while self._done < until:
            words = self._rng.choices(VOCABULARY, k=WORDS_PER_LINE)
            try:
                self._producer.produce(INPUT, " ".join(words), on_delivery=self._told)
            except BufferError:
                self._producer.poll(0.1)
                continue
            self.written.update(words)
            self._done += 1
            self._producer.poll(0)

    def _told(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))

    def _await(self, counts: Counts, application: subprocess.Popen[bytes], share: float) -> None:
        """Until such a share of what was written since the last wait is counted. TargetFailed."""
        before, total = counts.last.total(), self.written.total()
        wanted = before + int((total - before) * share)
        deadline = time.monotonic() + PATIENCE_S
        while counts.last.total() < wanted:
            self._producer.poll(0)
            counts.poll(0.2)
            if self._failed:
                raise TargetFailed(f"the input was not written: {self._failed[0]}")
            if application.poll() is not None:
                tail = self.log.read_text(errors="replace")[-2000:]
                raise TargetFailed(f"Streams ended with {application.returncode}:\n{tail}")
            if time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-3000:]
                raise TargetFailed(
                    f"stuck: {counts.last.total()} of {total} words counted after {PATIENCE_S:.0f} s\n{tail}"
                )


def figures(campaign: Campaign, _: Brokers) -> dict[str, Any]:
    """What this campaign adds to its run in the evidence file."""
    text = campaign.log.read_text(errors="replace") if campaign.log.exists() else ""
    return {
        "streams": STREAMS.version,
        "words": campaign.written.total(),
        "updates": campaign.updates,
        "threads_replaced": sum(line.startswith("again") for line in text.splitlines()),
    }


def main(words: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    arguments = killed_brokers.parser(NAME, __doc__, "lines", 20_000, 10).parse_args(words)

    def make(brokers: Brokers, directory: Path) -> Campaign:
        return Campaign(brokers, arguments.lines, arguments.kills, arguments.seed, directory)

    return killed_brokers.command(NAME, arguments, make, figures)


if __name__ == "__main__":
    sys.exit(main())
