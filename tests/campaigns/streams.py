"""`python -m tests.campaigns.streams --kills 10`: Kafka Streams' word count, exactly_once_v2, under kill -9.

`java/WordCount.java` is an ordinary Streams application (stores in memory, changelogs in topics);
lines are written while brokers are killed. In the end the last count of every word is the number of times it
was written, and no word's count ever fell or stood still in what a reader of committed records saw: nothing
was counted twice, nothing left out. Adds to docs/evidence/streams.json; `--resume` runs nothing where a sound
run of this source, as large in lines and kills, is recorded. Ends with 1 when the result is not exact, with 2
where a tool is missing.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from compat_tests.kafka_jars import STREAMS, ToolchainMissing
from compat_tests.targets import TargetFailed
from tests.campaigns import evidence, java_programs
from tests.campaigns.brokers import Brokers, raise_on_term
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


def figures(
    campaign: Campaign, brokers: Brokers, arguments: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    """One run for the evidence file."""
    text = campaign.log.read_text(errors="replace") if campaign.log.exists() else ""
    return {
        "target": arguments.target,
        "nodes": arguments.nodes,
        "seed": arguments.seed,
        "streams": STREAMS.version,
        "lines": arguments.lines,
        "words": campaign.written.total(),
        "updates": campaign.updates,
        "kills": brokers.kills,
        "kills_while_starting": brokers.kills_while_starting,
        "threads_replaced": sum(line.startswith("again") for line in text.splitlines()),
        "duration_s": round(seconds, 1),
        "exact": not campaign.problems,
        "problems": [problem[:1000] for problem in campaign.problems[:20]],
    }


def on_record(nodes: int, lines: int, kills: int) -> bool:
    """Is there a sound run of this source that is as large?"""
    digest = evidence.source_digest()
    return any(
        run["source"] == digest and run["target"] == "lockstep" and run["nodes"] == nodes and run["exact"]
        for run in evidence.load_runs(NAME)
        if run["lines"] >= lines and run["kills"] >= kills
    )


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.streams", description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=1)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--target", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="broker settings")
    parser.add_argument("--resume", action="store_true", help="nothing where it is recorded for this source")
    parser.add_argument("--no-evidence", action="store_true")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    arguments = _arguments(words)
    raise_on_term()
    if arguments.resume and on_record(arguments.nodes, arguments.lines, arguments.kills):
        print("streams: on record", flush=True)
        return 0
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(2**31)
    print(f"streams: seed {arguments.seed}", flush=True)
    began = time.monotonic()
    settings = dict(word.split("=", 1) for word in arguments.set)
    with tempfile.TemporaryDirectory(prefix="lockstep-streams-") as name:
        try:
            brokers = Brokers(arguments.target, arguments.nodes, settings, Path(name))
            campaign = run(brokers, arguments, Path(name))
        except ToolchainMissing as missing:
            print(f"not possible here: {missing}", file=sys.stderr)
            return 2
        done = figures(campaign, brokers, arguments, time.monotonic() - began)
        print(done, flush=True)
        if campaign.problems:
            print(brokers.log_tail(), flush=True)
    if not arguments.no_evidence:
        evidence.add_run(NAME, done)
    return 1 if campaign.problems else 0


def run(brokers: Brokers, arguments: argparse.Namespace, directory: Path) -> Campaign:
    """Start, run, close. ToolchainMissing, TargetFailed when they do not even start."""
    try:
        brokers.start()
        campaign = Campaign(brokers, arguments.lines, arguments.kills, arguments.seed, directory)
        campaign.run()
        return campaign
    finally:
        brokers.close()


if __name__ == "__main__":
    sys.exit(main())
