"""`python -m bench spark`: Spark reads Lockstep and Apache Kafka, and writes to Lockstep exactly once.

Owns: the command line, the alternation (ABBA, fresh directories, one broker alive at a time, one Spark
session for all of it). What is divided by what, and the goals, each of which is required: `figures`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from bench import argument_types
from bench.exit_status import log_progress
from bench.runner import KEPT, Measurement, Options
from bench.sessions.session import Session
from bench.settings import SHIPPED_HEAP
from bench.spark.figures import OURS, PARTITIONS, SINK_SHARE, STOCK, TIMED, Seconds, rows, table
from bench.spark.topic_fill import create, fill
from compat_tests.clients.face import Refused
from compat_tests.line_driver import DriverFailed, LineDriver
from compat_tests.spark_driver import JARS, installed
from compat_tests.targets import ROOT, KafkaTarget, LockstepTarget, Target, TargetFailed
from spark_connector.connection import ClientError, ClusterClient

RECORD_BYTES = 1000
TURNS = 3
"""Reads of a topic in one round; the first one warms up."""
WARM_EPOCHS, EPOCHS = 5, 40
FAILED = (Refused, DriverFailed, ClientError, TargetFailed, RuntimeError)


@dataclass(frozen=True)
class Amounts:
    """The amount of work: records, and rounds."""

    records: int
    rounds: int


class Run:
    """One run: what was measured, in seconds."""

    def __init__(self, amounts: Amounts, parent: Path) -> None:
        self.records, self.rounds = amounts.records, amounts.rounds
        self.parent = parent
        self.seconds: Seconds = {}
        jars = ",".join(map(str, JARS.jars()))
        self.spark = LineDriver([str(installed()), "-m", "bench.spark.driver", jars], ROOT)

    def note(self, name: str, round_: int, seconds: float) -> None:
        """One measurement of a round."""
        rounds = self.seconds.setdefault(name, [])
        rounds += [[] for _ in range(round_ + 1 - len(rounds))]
        rounds[round_].append(seconds)
        log_progress(f"{name}: {seconds:.2f} s")

    def target(self, kind: str, name: str) -> Target:
        """A broker on a fresh directory, not started."""
        directory = self.parent / name
        directory.mkdir()
        if kind == "kafka":
            return KafkaTarget({}, heap=SHIPPED_HEAP, directory=directory)
        return LockstepTarget({}, directory=directory)

    def source(self) -> None:
        """Both brokers read, by the stock source; ours by our own, too."""
        for round_ in range(self.rounds):
            sides = ("lockstep", "kafka") if round_ % 2 == 0 else ("kafka", "lockstep")
            for side in sides:
                with self.target(side, f"source-{round_}-{side}") as target:
                    self._read(side, target, round_)

    def _read(self, side: str, target: Target, round_: int) -> None:
        formats = [STOCK] if side == "kafka" else [STOCK, OURS]
        for partitions in PARTITIONS:
            topic = f"t{partitions}"
            there = fill(target.bootstrap, topic, partitions, self.records, RECORD_BYTES)
            for turn in range(TURNS):
                for format_ in formats if turn % 2 else formats[::-1]:
                    words = {"bootstrap": target.bootstrap, "topic": topic, "format": format_}
                    done = self.spark.ask("read", {}, **words, options={})
                    if done["records"] != there or done["bytes"] != there * RECORD_BYTES:
                        raise RuntimeError(f"{format_} read {done} of {there} records")
                    if turn:  # each round has a broker just started
                        self.note(f"source.{side}.{format_}.{partitions}", round_, done["seconds"])

    def sink(self) -> None:
        """One broker of ours, written to by both sinks in turn; then epochs."""
        with self.target("lockstep", "sink") as target:
            with ClusterClient(target.bootstrap) as cluster:
                create(cluster, "out", 8)
            where = {"bootstrap": target.bootstrap, "topic": "out"}
            size = {"records": self.records // SINK_SHARE, "record_bytes": RECORD_BYTES}
            for turn in range(2 * self.rounds + 1):
                for format_ in (STOCK, OURS) if turn % 2 else (OURS, STOCK):
                    done = self.spark.ask("write", {}, **where, format=format_, **size)
                    if turn:
                        self.note(f"sink.{format_}", turn - 1, done["seconds"])
            for format_ in (TIMED, STOCK):
                done = self.spark.ask("epochs", {}, **where, format=format_, records=1000, epochs=EPOCHS)
                if format_ == TIMED:
                    self.seconds["commit"] = [done["commits"][WARM_EPOCHS:]]
                self.seconds[f"epoch.{format_}"] = [done["epochs"][WARM_EPOCHS:]]


class Spark(Measurement[None, Session]):
    """Spark reads Lockstep and Apache Kafka, and writes to Lockstep exactly once; --quick: does it run?"""

    name = "spark"
    options: ClassVar[Options] = {
        "--source": {"action": "store_true", "help": "only reading"},
        "--sink": {"action": "store_true", "help": "only writing"},
        "--rounds": {"type": argument_types.count, "default": 4},
        "--records": {"type": argument_types.count, "default": 1_000_000},
        **KEPT,
    }

    def choose_sizes(self, sizes: Any) -> Amounts:
        return Amounts(20_000, 1) if self.chosen.quick else Amounts(self.chosen.records, self.chosen.rounds)

    def perform(self) -> tuple[Seconds, list[str]]:
        """The measurements in seconds; none where one failed."""
        everything = not (self.chosen.source or self.chosen.sink)
        try:
            with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=self.parent) as directory:
                run = Run(self.sizes, Path(directory))
                try:
                    if self.chosen.source or everything:
                        run.source()
                    if self.chosen.sink or everything:
                        run.sink()
                finally:
                    run.spark.close()
        except FAILED as error:
            return {}, [str(error)]
        return run.seconds, []

    def figures(self, measured: Any) -> dict[str, Any]:
        facts = {**vars(self.sizes), "record_bytes": RECORD_BYTES, "quick": self.chosen.quick}
        result = {**facts, "seconds": measured}
        return {**result, "ratios": rows(result)}

    def table(self, result: dict[str, Any]) -> str:
        return table(result)

    def missed_goals(self, result: dict[str, Any]) -> list[str]:
        """Every goal is required."""
        rows = [row for row in result["ratios"] if not row["met"]]
        return [f"{row['ratio']} is {row['value']:.2f}, the goal is {row['goal']}" for row in rows]
