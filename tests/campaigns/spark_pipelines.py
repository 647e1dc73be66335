"""`python -m tests.campaigns.spark_pipelines --events 1140000`: an archive gives the topics back, byte for
byte.

Generates the data set, archives it and replays the archive into new topics; each of these is killed with
kill -9 at drawn moments, in the middle of its work, and started again with the same words. Then every record
of every partition is compared: what the seed gives with what the topics hold, and the topics with their
replays (offset, key, value, headers, time). The state of the compacted topic is compared with the seed, too.

The cleaner is kept from the source topics, so that all records are there to compare. Adds to
docs/evidence/spark_pipelines.json; prints JSON; ends with 1 where something is not as it must be, with 2
where Spark cannot be had.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import LockstepTarget
from lockstep.protocol.partitioner import partition_of
from lockstep.protocol.records.record import Record
from spark_connector.connection import BrokerError, ClientError, ClusterClient
from spark_connector.pipelines.event_data import ACCOUNTS, TOPICS, Shape, events
from spark_connector.pipelines.topic_queries import high_watermarks
from tests.campaigns import evidence
from tests.campaigns.brokers import raise_on_term
from tests.campaigns.spark_processes import PipelineEnded, Pipelines
from tests.spark_connector.rows import records

NAME: Final = "spark_pipelines"
PACKAGES: Final = ("spark_connector", *evidence.PRODUCT)
KEEP_ALL: Final = {
    "log.cleaner.min.compaction.lag.ms": str((1 << 63) - 1),
    "log.cleaner.max.compaction.lag.ms": str((1 << 63) - 1),
}
BATCHES: Final = 12
"""Of an archive, about."""
FETCH_BYTES: Final = 8 << 20
KEPT: Final = 10
_LONGEST_PAUSE_S: Final = 1.0
_STATE: Final = """
import hashlib, sys, pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1], columns=["key", "value"])
rows = sorted(zip(table["key"].to_pylist(), table["value"].to_pylist()))
print(len(rows), hashlib.sha256(repr(rows).encode()).hexdigest())
"""


class Campaign:
    """One run over a started broker; `figures` and `problems` are what it found."""

    def __init__(
        self, pipelines: Pipelines, bootstrap: str, options: argparse.Namespace, directory: Path
    ) -> None:
        self.figures: dict[str, Any] = {}
        self.problems: list[str] = []
        self._pipelines = pipelines
        self._bootstrap = bootstrap
        self._options = options
        self._directory = directory
        self._shape = Shape(options.seed, options.events)
        self._rng = random.Random(options.seed)

    def run(self) -> None:
        """PipelineEnded where one of them does not do what it should."""
        self._events()
        self._archive()
        self._replay()
        with ClusterClient(self._bootstrap) as cluster:
            began = time.monotonic()
            compared, differences = compared_topics(cluster, [(name, name + "-again") for name in TOPICS])
            wrong = not_of_the_seed(cluster, self._shape, self._options.partitions)
            self.figures |= {
                "compared": compared,
                "differences": len(differences),
                "compare_s": _since(began),
            }
        self.problems += differences[:KEPT] + wrong
        if compared != self._options.events:
            self.problems.append(f"{compared} records were compared, there are {self._options.events} events")
        self._state()

    def _events(self) -> None:
        options = self._options
        words = ["--events", str(options.events), "--seed", str(options.seed)]
        words += ["--partitions", str(options.partitions), "--checkpoint", str(self._directory / "events")]
        fractions = self._fractions(options.kills)
        for fraction in fractions:
            self._pipelines.run("events", *words, kill=self._reached(TOPICS, fraction))
        done = self._finished("events", words)
        self._note("events", done["appended"], done["seconds"], len(fractions))

    def _archive(self) -> None:
        options = self._options
        archive = self._directory / "archive"
        words = ["--topics", ",".join(TOPICS), "--to", str(archive), "--format", options.format]
        words += ["--source", options.source, "--records-per-batch", str(-(-options.events // BATCHES))]
        numbers = sorted(self._rng.sample(range(BATCHES - 1), min(options.kills, BATCHES - 1)))
        for number in numbers:
            offsets = archive / "_checkpoint" / "offsets" / str(number)
            self._pipelines.run("archive", *words, kill=self._a_while_after(offsets.exists))
        done = self._finished("archive", words)
        self._note("archive", done["rows"], done["seconds"], len(numbers))

    def _replay(self) -> None:
        options = self._options
        words = ["--archive", str(self._directory / "archive"), "--format", options.format]
        words += ["--topics", ",".join(TOPICS), "--into", "{topic}-again"]
        words += ["--partitions", str(options.partitions), "--checkpoint", str(self._directory / "replay")]
        fractions = self._fractions(options.kills)
        names = [f"{name}-again" for name in TOPICS]
        for fraction in fractions:
            self._pipelines.run("replay", *words, kill=self._reached(names, fraction))
        done = self._finished("replay", words)
        self._note("replay", done["appended"], done["seconds"], len(fractions))

    def _state(self) -> None:
        table = self._directory / "state"
        words = [
            "--topic",
            ACCOUNTS,
            "--to",
            str(table),
            "--format",
            "parquet",
            "--source",
            self._options.source,
        ]
        done = self._finished("state", words)
        newest = {each.key: each.value for each in events(self._shape) if each.topic == ACCOUNTS}
        wanted = sorted((key, value) for key, value in newest.items() if value is not None)
        digest = hashlib.sha256(repr(wanted).encode()).hexdigest()
        self.figures["state_keys"] = done["keys"]
        said = self._pipelines.evaluate(_STATE, str(table))
        if said != f"{len(wanted)} {digest}":
            self.problems.append(f"state: {said}, the seed gives {len(wanted)} keys of {digest}")

    def _finished(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        """Killed by whatever `--under` is, it is started again."""
        while (done := self._pipelines.run(name, *words)) is None:
            pass
        return done

    def _note(self, name: str, rows: int, seconds: float, kills: int) -> None:
        rate = round(rows / seconds) if seconds else 0
        self.figures[name] = {
            "kills": kills,
            "last_run_rows": rows,
            "last_run_s": seconds,
            "rows_per_s": rate,
        }
        print(f"{name}: {self.figures[name]}", file=sys.stderr, flush=True)

    def _fractions(self, count: int) -> list[float]:
        return sorted(self._rng.uniform(0.02, 0.9) for _ in range(count))

    def _reached(self, topics: Iterable[str], fraction: float) -> Callable[[], bool]:
        """Whether the topics have that share of the events."""
        cluster = ClusterClient(self._bootstrap, timeout_s=5)
        names = list(topics)

        def look() -> bool:
            return _total(cluster, names) >= fraction * self._shape.events

        return look

    def _a_while_after(self, happened: Callable[[], bool]) -> Callable[[], bool]:
        """Whether it happened, and then a drawn time has gone by."""
        pause_s = self._rng.uniform(0, _LONGEST_PAUSE_S)
        since: list[float] = []

        def look() -> bool:
            if not since and happened():
                since.append(time.monotonic())
            return bool(since) and time.monotonic() >= since[0] + pause_s

        return look


def compared_topics(cluster: ClusterClient, pairs: Iterable[tuple[str, str]]) -> tuple[int, list[str]]:
    """How many records were compared, and every difference between the topics of a pair."""
    compared = 0
    differences: list[str] = []
    for first, second in pairs:
        for partition in range(len(cluster.topic(first).partitions)):
            rows = itertools.zip_longest(
                records(cluster, first, partition, FETCH_BYTES),
                records(cluster, second, partition, FETCH_BYTES),
            )
            for one, other in rows:
                compared += 1
                if one != other:
                    differences.append(f"{first}-{partition}: {one!r:.300} against {other!r:.300}")
    return compared, differences


def not_of_the_seed(cluster: ClusterClient, shape: Shape, partitions: int) -> list[str]:
    """Partitions that do not hold what the seed gives."""
    places = [(topic, partition) for topic in TOPICS for partition in range(partitions)]
    wanted = {place: hashlib.sha256() for place in places}
    for topic, key, value, timestamp_ms, headers in events(shape):
        row = (value, key, timestamp_ms, headers)
        wanted[topic, partition_of(key, partitions)].update(repr(row).encode())
    wrong = []
    for topic, partition in places:
        found = hashlib.sha256()
        for found_row in _rows(records(cluster, topic, partition, FETCH_BYTES)):
            found.update(repr(found_row).encode())
        if found.digest() != wanted[topic, partition].digest():
            wrong.append(f"{topic}-{partition} is not what the seed gives")
    return wrong


def _rows(found: Iterable[Record]) -> Iterator[tuple[object, ...]]:
    return ((each.value, each.key, each.timestamp, each.headers) for each in found)


def _total(cluster: ClusterClient, topics: Iterable[str]) -> int:
    try:
        cluster.topics(topics)  # at once, where they are not made yet
        return sum(sum(high_watermarks(cluster, name).values()) for name in topics)
    except (BrokerError, ClientError):
        return 0


def _since(began: float) -> float:
    return round(time.monotonic() - began, 1)


def run(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Figures and problems. ToolchainMissing."""
    with tempfile.TemporaryDirectory(prefix="lockstep-pipelines-", dir=options.directory) as made:
        directory = Path(made)
        with LockstepTarget(KEEP_ALL, directory=directory / "broker") as broker:
            pipelines = Pipelines(broker.bootstrap, directory, under=options.under.split())
            campaign = Campaign(pipelines, broker.bootstrap, options, directory)
            began = time.monotonic()
            try:
                campaign.run()
            except PipelineEnded as ended:
                campaign.problems.append(str(ended))
            campaign.figures |= {"kills": pipelines.kills, "seconds": _since(began)}
            return campaign.figures, campaign.problems


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m tests.campaigns.{NAME}", description=__doc__)
    parser.add_argument("--events", type=int, default=1_140_000)
    parser.add_argument("--kills", type=int, default=4, help="of each: events, archive, replay")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--format", choices=["delta", "parquet"], default="delta")
    parser.add_argument("--source", choices=["lockstep", "kafka"], default="lockstep")
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--directory", default=None, help="where everything is kept while it runs")
    parser.add_argument("--under", default="", metavar="WORDS", help="before each pipeline's command")
    parser.add_argument("--no-evidence", action="store_true")
    options = parser.parse_args(words)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(2**31)
    return options


def main(words: Sequence[str] | None = None) -> int:
    """See the module; the exit status."""
    options = arguments(words)
    raise_on_term()
    told = {name: getattr(options, name) for name in ("events", "partitions", "format", "source", "seed")}
    print(f"{NAME}: {told}", file=sys.stderr, flush=True)
    try:
        figures, problems = run(options)
    except ToolchainMissing as missing:
        print(f"not possible here: {missing}", file=sys.stderr)
        return 2
    done = {**told, **figures, "problems": [text[:1000] for text in problems[:KEPT]]}
    print(json.dumps(done), flush=True)
    if not options.no_evidence:
        evidence.add_run(NAME, done, packages=PACKAGES)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
