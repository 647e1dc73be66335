"""`python -m bench spark`: Spark reads Lockstep and Apache Kafka, and writes to Lockstep exactly once.

Owns: the command line, the alternation (ABBA, fresh directories, one broker alive at a time, one Spark
session for all of it). What is divided by what, and the goals: `bench.spark.figures`. Exit status as of
`python -m bench`: 3 where a ratio is missed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import argument_types
from bench.exit_status import EXIT_FAILED, EXIT_GOAL_MISSED, report_failures
from bench.figures import pictures
from bench.kept import LOCAL_RESULTS, keep
from bench.progress import log_progress
from bench.running import comparison
from bench.settings import SHIPPED_HEAP
from bench.spark.figures import OURS, PARTITIONS, SINK_SHARE, STOCK, TIMED, Seconds, rows
from bench.spark.section import table
from bench.spark.topic_fill import create, fill
from compat_tests.clients.face import Refused
from compat_tests.line_driver import DriverFailed, LineDriver
from compat_tests.spark_driver import JARS, installed
from compat_tests.targets import ROOT, KafkaTarget, LockstepTarget, Target, TargetFailed
from spark_connector.connection import ClientError, ClusterClient

RECORD_BYTES = 1000
TURNS = 3
"""Reads of a topic in one round; the first one warms up."""
WARM_EPOCHS = 5
PLOTS = "bench.spark.plots"
FAILED = (Refused, DriverFailed, ClientError, TargetFailed, RuntimeError)


class Run:
    """One run: what was measured, in seconds."""

    def __init__(self, records: int, rounds: int, parent: Path) -> None:
        self.records = records
        self.rounds = rounds
        self.parent = parent
        self.seconds: Seconds = {}
        self.spark = LineDriver(
            [str(installed()), "-m", "bench.spark.driver", ",".join(map(str, JARS.jars()))], ROOT
        )

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
                    done = self.spark.ask(
                        "read", {}, bootstrap=target.bootstrap, topic=topic, format=format_, options={}
                    )
                    if done["records"] != there or done["bytes"] != there * RECORD_BYTES:
                        raise RuntimeError(f"{format_} read {done} of {there} records")
                    if turn:  # each round has a broker just started
                        self.note(f"source.{side}.{format_}.{partitions}", round_, done["seconds"])

    def sink(self) -> None:
        """One broker of ours, written to by both sinks in turn; then epochs."""
        with self.target("lockstep", "sink") as target:
            with ClusterClient(target.bootstrap) as cluster:
                create(cluster, "out", 8)
            for turn in range(2 * self.rounds + 1):
                order = (STOCK, OURS) if turn % 2 else (OURS, STOCK)
                for format_ in order:
                    done = self.spark.ask(
                        "write",
                        {},
                        bootstrap=target.bootstrap,
                        topic="out",
                        format=format_,
                        records=self.records // SINK_SHARE,
                        record_bytes=RECORD_BYTES,
                    )
                    if turn:
                        self.note(f"sink.{format_}", turn - 1, done["seconds"])
            for format_ in (TIMED, STOCK):
                done = self.spark.ask(
                    "epochs",
                    {},
                    bootstrap=target.bootstrap,
                    topic="out",
                    format=format_,
                    records=1000,
                    epochs=40,
                )
                if format_ == TIMED:
                    self.seconds["commit"] = [done["commits"][WARM_EPOCHS:]]
                self.seconds[f"epoch.{format_}"] = [done["epochs"][WARM_EPOCHS:]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench spark", description=__doc__)
    parser.add_argument("--source", action="store_true", help="only reading")
    parser.add_argument("--sink", action="store_true", help="only writing")
    parser.add_argument("--rounds", type=argument_types.count, default=4)
    parser.add_argument("--records", type=argument_types.count, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="20,000 records, one round: does it run?")
    parser.add_argument("--json", action="store_true")
    argument_types.add_directories(parser, LOCAL_RESULTS, "for the kept result")
    pictures.add_options(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; the exit status."""
    options = _parser().parse_args(arguments)
    if options.plot:
        pictures.draw(PLOTS, options, options.plot)
        return 0
    records, rounds = (20_000, 1) if options.quick else (options.records, options.rounds)
    found = comparison.perform(options, lambda parent: _measure(options, records, rounds, parent))
    if found is None:
        return EXIT_FAILED
    if status := report_failures(found.pop("failures")):
        return status
    result = {
        "format": 1,
        "kind": "spark",
        "command": _command_line(options, records, rounds),
        "records": records,
        "record_bytes": RECORD_BYTES,
        "rounds": rounds,
        "quick": options.quick,
        "seconds": found.pop("sessions"),
        **found,
    }
    result["ratios"] = rows(result)
    part = "-source" if options.source else "-sink" if options.sink else ""
    keep(result, options.out, f"spark{part}")
    print(json.dumps(result, indent=1) if options.json else table(result))
    return 0 if all(row["met"] for row in result["ratios"]) else EXIT_GOAL_MISSED


def _command_line(options: argparse.Namespace, records: int, rounds: int) -> str:
    words = argument_types.words(options, ("source", "sink", "quick"))
    return " ".join(["python -m bench spark", *words, f"--rounds {rounds} --records {records}"])


def _measure(
    options: argparse.Namespace, records: int, rounds: int, parent: Path
) -> tuple[Seconds, list[str]]:
    """The measurements, and the failures: with one nothing is kept."""
    everything = not (options.source or options.sink)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=parent) as directory:
            run = Run(records, rounds, Path(directory))
            try:
                if options.source or everything:
                    run.source()
                if options.sink or everything:
                    run.sink()
            finally:
                run.spark.close()
    except FAILED as error:
        return {}, [str(error)]
    return run.seconds, []
