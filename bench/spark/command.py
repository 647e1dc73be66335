"""`python -m bench spark`: Spark reads Lockstep and Apache Kafka, and writes to Lockstep exactly once.

Owns: the command line, the alternation (ABBA, fresh directories, one broker alive at a time, one Spark
session for all of it) and the ratios: the stock source from Lockstep against from Kafka, our source against
the stock one, our sink against the stock one into the same broker, and what a commit takes. Exit status as
of `python -m bench`: 3 where a ratio is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.facts import code_facts, machine_facts
from bench.kept import LOCAL_RESULTS, keep
from bench.session import say
from bench.spark.filling import create, fill
from compat_tests.clients.face import Refused
from compat_tests.line_driver import DriverFailed, LineDriver
from compat_tests.spark_driver import JARS, installed
from compat_tests.targets import ROOT, KafkaTarget, LockstepTarget, Target
from spark_connector.connection import Cluster

RECORD_BYTES = 1000
PARTITIONS = (1, 8)
HEAP = "1G"
STOCK, OURS, TIMED = "kafka", "lockstep", "timed-lockstep"
GOALS = {
    "source.stock.1": (">=", 1.0, "stock source, 1 partition: from Lockstep / from Kafka, records/s"),
    "source.stock.8": (">=", 1.0, "stock source, 8 partitions: from Lockstep / from Kafka, records/s"),
    "source.ours.1": (">=", 0.8, "1 partition: our source / the stock source, records/s"),
    "source.ours.8": (">=", 0.8, "8 partitions: our source / the stock source, records/s"),
    "sink": (">=", 0.7, "exactly-once sink / the stock sink into the same broker, records/s"),
    "commit_ms": ("<=", 50.0, "a commit, median, ms"),
}


class Run:
    """One run: what was measured, in seconds."""

    def __init__(self, records: int, rounds: int, parent: Path) -> None:
        self.records = records
        self.rounds = rounds
        self.parent = parent
        self.seconds: dict[str, list[float]] = {}
        self.spark = LineDriver(
            [str(installed()), "-m", "bench.spark.driver", ",".join(map(str, JARS.jars()))], ROOT
        )

    def note(self, name: str, seconds: float) -> None:
        """One measurement."""
        self.seconds.setdefault(name, []).append(seconds)
        say(f"{name}: {seconds:.2f} s")

    def target(self, kind: str, name: str) -> Target:
        """A broker on a fresh directory, not started."""
        directory = self.parent / name
        directory.mkdir()
        if kind == "kafka":
            return KafkaTarget({}, heap=HEAP, directory=directory)
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
            for turn in range(3):  # the first one warms up
                for format_ in formats if turn % 2 else formats[::-1]:
                    done = self.spark.ask(
                        "read", {}, bootstrap=target.bootstrap, topic=topic, format=format_, options={}
                    )
                    if done["records"] != there or done["bytes"] != there * RECORD_BYTES:
                        raise RuntimeError(f"{format_} read {done} of {there} records")
                    if turn or round_:
                        self.note(f"source.{side}.{format_}.{partitions}", done["seconds"])

    def sink(self) -> None:
        """One broker of ours, written to by both sinks in turn; then epochs."""
        with self.target("lockstep", "sink") as target:
            with Cluster(target.bootstrap) as cluster:
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
                        records=self.records // 2,
                        record_bytes=RECORD_BYTES,
                    )
                    if turn:
                        self.note(f"sink.{format_}", done["seconds"])
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
                for each in done["commits"][5:]:
                    self.seconds.setdefault("commit", []).append(each)
                for each in done["epochs"][5:]:
                    self.seconds.setdefault(f"epoch.{format_}", []).append(each)

    def ratios(self) -> dict[str, float]:
        """As the goals name them; rates, so that higher is better."""
        found: dict[str, float] = {}
        medians = {name: statistics.median(each) for name, each in self.seconds.items()}
        for partitions in PARTITIONS:
            ours, theirs = f"source.lockstep.{STOCK}.{partitions}", f"source.kafka.{STOCK}.{partitions}"
            if ours in medians and theirs in medians:
                found[f"source.stock.{partitions}"] = medians[theirs] / medians[ours]
                found[f"source.ours.{partitions}"] = (
                    medians[ours] / medians[f"source.lockstep.{OURS}.{partitions}"]
                )
        if "sink.lockstep" in medians:
            found["sink"] = medians["sink.kafka"] / medians["sink.lockstep"]
            found["commit_ms"] = medians["commit"] * 1000
        return found


def judged(ratios: dict[str, float]) -> list[dict[str, Any]]:
    """Each with its goal, and whether that is met."""
    rows = []
    for name, value in ratios.items():
        sign, bound, words = GOALS[name]
        met = value >= bound if sign == ">=" else value <= bound
        rows.append({"name": name, "words": words, "value": value, "goal": f"{sign} {bound:g}", "met": met})
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench spark", description=__doc__)
    parser.add_argument("--source", action="store_true", help="only reading")
    parser.add_argument("--sink", action="store_true", help="only writing")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="20,000 records, one round: does it run?")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, default=LOCAL_RESULTS)
    options = parser.parse_args(arguments)
    records, rounds = (20_000, 1) if options.quick else (options.records, options.rounds)
    everything = not (options.source or options.sink)
    try:
        with tempfile.TemporaryDirectory(prefix="bench-spark-") as parent:
            run = Run(records, rounds, Path(parent))
            try:
                if options.source or everything:
                    run.source()
                if options.sink or everything:
                    run.sink()
            finally:
                run.spark.close()
    except (Refused, DriverFailed, RuntimeError) as failure:
        print(failure, file=sys.stderr)
        return 1
    rows = judged(run.ratios())
    result = {
        "kind": "spark",
        "machine": machine_facts(Path(tempfile.gettempdir())),
        "code": code_facts(),
        "records": records,
        "record_bytes": RECORD_BYTES,
        "rounds": rounds,
        "quick": options.quick,
        "seconds": run.seconds,
        "ratios": rows,
    }
    part = "-source" if options.source else "-sink" if options.sink else ""
    path = keep(result, options.out, f"spark{part}")
    say(f"kept in {path}")
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        for row in rows:
            print(
                f"{row['words']:75} {row['value']:8.2f}  {row['goal']:8} {'met' if row['met'] else 'MISSED'}"
            )
    return 0 if all(row["met"] for row in rows) else 3
