"""`python -m tests.campaigns.spark_sink --kills 100`: the exactly-once sink for Spark, and everything killed.

A stream copies a topic into another, a few records an epoch. While it runs, one after the other is killed
with SIGKILL: a task's Python worker, an executor, the driver at any moment, the driver between the broker's
commit and Spark's record of it, the broker that leads; and a second driver is started on the same checkpoint.
Speculation is on. In the end readers of committed records must find each record once. `--sink kafka` runs
Spark's own sink instead: it is expected to double records, and the figures say how many.
Prints JSON, ends with 1 where ours doubles or misses any; adds to docs/evidence/spark_sink.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import psutil

from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.spark_driver import JARS, installed
from compat_tests.targets import TargetFailed
from tests.campaigns import evidence
from tests.campaigns.brokers import Brokers, raise_on_term
from tests.campaigns.exactly_once import committed

PARTITIONS = 2
SOURCE, TARGET = "in", "out"
START_S = 300.0
PATIENCE_S = 400.0
"""How long the stream may make no progress."""
LOCAL, CLUSTER = "local[2,20]", "local-cluster[2,1,1024]"
LOCAL_KINDS = ("task", "driver", "between", "leader", "second")
CLUSTER_KINDS = ("executor", "task", "driver", "leader")
WORKER = "pyspark.daemon"
EXECUTOR = "CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Job:
    """What a driver is told."""

    bootstrap: str
    source: str
    target: str
    directory: str
    master: str
    sink: str
    epoch_records: int
    jars: str


class Driver:
    """A driver process, with all it started."""

    def __init__(self, job: Job, log: Path) -> None:
        self.job = job
        self._log = log.open("ab")
        environment = {**os.environ, "PYTHONPATH": str(evidence.ROOT), "PYSPARK_PYTHON": str(installed())}
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        environment["SPARK_WORKER_DIR"] = f"{job.directory}/work"
        self.process = subprocess.Popen(
            [str(installed()), "-m", "tests.campaigns.spark_sink_driver", json.dumps(asdict(job))],
            cwd=evidence.ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def found(self, word: str) -> list[psutil.Process]:
        """Its processes whose command line has this word."""
        found = []
        with contextlib.suppress(psutil.Error):
            for each in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    if any(word in part for part in each.cmdline()):
                        found.append(each)
        return found

    def kill(self) -> None:
        """All of it, at once."""
        everyone = []
        with contextlib.suppress(psutil.Error):
            everyone = psutil.Process(self.process.pid).children(recursive=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for each in everyone:
            with contextlib.suppress(psutil.Error):
                each.kill()
        self.process.wait()
        self._log.close()


class Campaign:
    """One run over started brokers."""

    def __init__(
        self,
        brokers: Brokers,
        sink: str,
        kills: int,
        per_kill: int,
        seed: int,
        directory: Path,
        masters: Sequence[str],
    ) -> None:
        self._brokers = brokers
        self._sink = sink
        self._kills = kills
        self._per_kill = per_kill
        self._rng = random.Random(seed)
        self._directory = directory
        self._masters = masters
        self._driver: Driver | None = None
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "enable.idempotence": True,
                "log_level": 0,
                "linger.ms": 5,
            }
        )
        self.written = 0
        self.killed: Counter[str] = Counter()
        self.problems: list[str] = []
        self.figures: dict[str, Any] = {}

    def run(self) -> None:
        """Fills `problems` and `figures`."""
        self._create_topics()
        try:
            for number in range(self._kills):
                self._write(self._per_kill)
                self._await_running()
                if not self._await_progress(self._per_kill // 2):
                    break
                self._kill_one()
                print(f"{number + 1} of {self._kills}: {dict(self.killed)}", file=sys.stderr, flush=True)
            self._write(self._per_kill)
            self._await_running()
            if not self.problems:
                self._await_progress(0)
        except TargetFailed as failure:
            self.problems.append(str(failure))
        finally:
            if self._driver is not None:
                self._driver.kill()
        if not self.problems:
            self._judge()

    def _create_topics(self) -> None:
        admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": self._brokers.bootstrap, "log_level": 0}
        )
        config = {"lockstep.group": "1"}
        wanted = [
            confluent_kafka.admin.NewTopic(name, PARTITIONS, -1, config=config)  # type: ignore[attr-defined]
            for name in (SOURCE, TARGET)
        ]
        for future in admin.create_topics(wanted, operation_timeout=20).values():
            future.result(30)

    def _write(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(SOURCE, b"%d" % self.written, partition=self.written % PARTITIONS)
            self.written += 1
        if self._producer.flush(PATIENCE_S):
            raise TargetFailed("the input was not written")

    # --- the stream -----------------------------------------------------------------------------------------

    def _job(self) -> Job:
        jars = ",".join(map(str, JARS.jars()))
        return Job(
            self._brokers.bootstrap,
            SOURCE,
            TARGET,
            str(self._directory),
            self._rng.choice(self._masters),
            self._sink,
            max(self._per_kill // 8, 2),
            jars,
        )

    def _await_running(self) -> None:
        if self._driver is None or not self._driver.is_running:
            if self._driver is not None:
                self._driver.kill()
            self._driver = Driver(self._job(), self._directory / "driver.log")

    def _progress(self) -> int:
        """Offsets of the target, control batches included: it moves while the stream does."""
        return sum(self._ends(TARGET))

    def _ends(self, topic: str) -> list[int]:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self._brokers.bootstrap, "group.id": "looking", "log_level": 0}
        )
        try:
            return [
                consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, number), timeout=20)[1]
                for number in range(PARTITIONS)
            ]
        finally:
            consumer.close()

    def _read(self) -> int:
        """How far the stream has come in the source, by Spark's own records in the checkpoint."""
        commits = sorted(
            (self._directory / "checkpoint" / "commits").glob("[0-9]*"), key=lambda each: int(each.name)
        )
        if not commits:
            return 0
        offsets = self._directory / "checkpoint" / "offsets" / commits[-1].name
        with contextlib.suppress(OSError, ValueError, IndexError):
            told = json.loads(offsets.read_text().splitlines()[-1])
            return sum(told[SOURCE].values())
        return 0

    def _await_progress(self, left: int) -> bool:
        """Until at most so many records are to do, so that kills meet work."""
        deadline, best = time.monotonic() + PATIENCE_S, self._read()
        while (done := self._read()) < self.written - left:
            if done > best:
                deadline, best = time.monotonic() + PATIENCE_S, done
            if time.monotonic() > deadline:
                self.problems.append(f"stuck at {done} of {self.written}: {self._log_tail()}")
                return False
            self._await_running()
            time.sleep(0.05)
        return True

    def _log_tail(self) -> str:
        return (self._directory / "driver.log").read_text(errors="replace")[-3000:]

    # --- kills ----------------------------------------------------------------------------------------------

    def _kill_one(self) -> None:
        driver = self._driver
        assert driver is not None
        known: Sequence[str] = LOCAL_KINDS if driver.job.master == LOCAL else CLUSTER_KINDS
        kinds = [each for each in known if self._sink == "lockstep" or each not in ("between", "second")]
        fewest = min(self.killed[each] for each in kinds)
        kind = self._rng.choice([each for each in kinds if self.killed[each] == fewest])
        time.sleep(self._rng.uniform(0, 0.5))
        if getattr(self, f"_kill_{kind}")(driver):
            self.killed[kind] += 1

    def _kill_found(self, driver: Driver, word: str) -> bool:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and driver.is_running:
            found = driver.found(word)
            if found:
                with contextlib.suppress(psutil.Error):
                    self._rng.choice(found).kill()
                    return True
            time.sleep(0.02)
        return False

    def _kill_task(self, driver: Driver) -> bool:
        return self._kill_found(driver, WORKER)

    def _kill_executor(self, driver: Driver) -> bool:
        return self._kill_found(driver, EXECUTOR)

    def _kill_driver(self, driver: Driver) -> bool:
        driver.kill()
        return True

    def _kill_leader(self, _: Driver) -> bool:
        self._brokers.kill(self._rng)
        return True

    def _kill_between(self, driver: Driver) -> bool:
        """After the broker's commit, before Spark's."""
        hold, done = self._directory / "hold", self._directory / "committed"
        done.unlink(missing_ok=True)
        hold.touch()
        try:
            self._write(self._per_kill)
            deadline = time.monotonic() + START_S
            while not done.exists() and driver.is_running and time.monotonic() < deadline:
                time.sleep(0.01)
            reached = done.exists()
            driver.kill()
            return reached
        finally:
            hold.unlink()

    def _kill_second(self, driver: Driver) -> bool:
        """Two drivers on one checkpoint for a while; one of them goes on."""
        self._write(self._per_kill)
        second = Driver(driver.job, self._directory / "second.log")
        deadline = time.monotonic() + START_S / 10
        while driver.is_running and second.is_running and time.monotonic() < deadline:
            time.sleep(0.1)
        both = [each for each in (driver, second) if each.is_running] or [driver]
        kept = self._rng.choice(both)
        for each in (driver, second):
            if each is not kept:
                each.kill()
        self._driver = kept
        return True

    # --- the end --------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        for each in committed(self._brokers.bootstrap, TARGET, PARTITIONS):
            found[each.partition()].append(int(each.value()))
        seen = Counter(value for values in found.values() for value in values)
        doubled = sum(count - 1 for count in seen.values() if count > 1)
        missing = sum(1 for number in range(self.written) if number not in seen)
        strange = sum(1 for number in seen if not 0 <= number < self.written)
        self.figures = {
            "records": self.written,
            "doubled": doubled,
            "missing": missing,
            "strange": strange,
            "epochs": len(list((self._directory / "checkpoint" / "commits").glob("[0-9]*"))),
        }
        if self._sink == "lockstep":
            for name in ("doubled", "missing", "strange"):
                if self.figures[name]:
                    self.problems.append(f"{self.figures[name]} records are {name}")


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.spark_sink", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--per-kill", type=int, default=400, help="records written before each kill")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--sink", choices=("lockstep", "kafka"), default="lockstep")
    parser.add_argument("--masters", default=f"{LOCAL};{LOCAL};{CLUSTER}", help="drawn from, with ; between")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-evidence", action="store_true")
    arguments = parser.parse_args(words)
    raise_on_term()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lockstep-spark-sink-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        try:
            installed()
        except ToolchainMissing as missing:
            print(missing, file=sys.stderr)
            return 2
        brokers = Brokers("lockstep", arguments.nodes, {}, directory / "brokers")
        try:
            brokers.start()
            job = directory / "spark"
            job.mkdir()
            masters = arguments.masters.split(";")
            campaign = Campaign(
                brokers, arguments.sink, arguments.kills, arguments.per_kill, arguments.seed, job, masters
            )
            campaign.run()
        finally:
            brokers.close()
    figures = {
        "sink": arguments.sink,
        "nodes": arguments.nodes,
        "seed": arguments.seed,
        "kills": dict(campaign.killed),
        **campaign.figures,
        "seconds": round(time.monotonic() - began),
        "problems": campaign.problems,
    }
    print(json.dumps(figures, indent=1))
    if not arguments.no_evidence:
        evidence.add_run("spark_sink", figures)
    return 1 if campaign.problems else 0


if __name__ == "__main__":
    sys.exit(main())
