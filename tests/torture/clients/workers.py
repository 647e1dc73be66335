"""Which workers a run has, and their processes: started in the clients' network, asked to finish, ended.

Owns: the line-up (a worker is `LIBRARY-ROLE`, e.g. `confluent-idempotent`, `aio-subscribe`), their
files of events, and who reads what for whom: a `reader` is an assigning worker or a whole group, which must
in the end have had every record. A JVM takes several roles of the
Java client as its threads, either producing or consuming ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from compat_tests.kafka_jars import KAFKA, ToolchainMissing, classpath, java_command

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SOURCES = tuple(sorted(Path(__file__).resolve().parent.glob("*.java")))
PYTHON_WORKERS = {"confluent": "tests.torture.clients.confluent", "aio": "tests.torture.clients.aio"}
LINE_UP = (
    "confluent-idempotent",
    "confluent-plain",
    "aio-idempotent",
    "confluent-assign",
    "confluent-subscribe",
    "confluent-subscribe:2",
    "aio-subscribe",
    "confluent-create",
    "java:idempotent+plain",
    "java:assign+subscribe",
)
TRANSACTIONAL = (
    *(name for name in LINE_UP if name != "java:idempotent+plain"),
    "java:idempotent+transactional",
    "confluent-transactional",
    "aio-transactional",
)
"""The line-up with transactions."""
ROLES = ("idempotent", "plain", "transactional", "assign", "subscribe", "create")


def compiled_worker() -> Path:
    """The directory with the Java worker's classes; compiled when its source changed. ToolchainMissing."""
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in SOURCES)).hexdigest()
    target = KAFKA.directory / f"torture-{digest[:16]}"
    if target.is_dir():
        return target
    jars = classpath()  # makes KAFKA.directory
    with tempfile.TemporaryDirectory(dir=KAFKA.directory) as fresh:
        made = Path(fresh) / "classes"
        command = [
            java_command("javac"),
            "--release",
            "17",
            "-nowarn",
            "-cp",
            jars,
            "-d",
            str(made),
            *map(str, SOURCES),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ToolchainMissing(f"javac failed:\n{done.stderr}{done.stdout}")
        with contextlib.suppress(OSError):  # another process was as quick
            made.rename(target)
    return target


class Workload:
    """What all workers of a run share."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, directory: Path, *, rate: float, seed: int
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.directory = directory
        self.rate = rate
        self.seed = seed

    def options(self, name: str) -> list[str]:
        """The options every worker takes."""
        return [
            *("--bootstrap", self.bootstrap, "--topic", self.topic, "--partitions", str(self.partitions)),
            *("--rate", str(self.rate), "--seed", str(self.seed), "--lifetime-s", "20"),
            *("--group", f"group-{name.partition(':')[0]}", "--out", str(self.directory / f"{name}.jsonl")),
        ]


class WorkerProcess:
    """One started worker."""

    def __init__(self, name: str, words: Sequence[str], workload: Workload) -> None:
        self.name = name
        self.path = workload.directory / f"{name}.jsonl"
        self.path.touch()
        self._log = workload.directory / f"{name}.log"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                list(words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def ask_to_end(self) -> None:
        """SIGTERM: finish what is under way."""
        if self.running:
            self._process.terminate()

    def end(self, timeout_s: float) -> str | None:
        """Waits for it; a text says what was wrong with its end. Killed when it takes too long."""
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return f"{self.name} did not finish within {timeout_s:.0f} s"
        if status in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
            return None
        return f"{self.name} ended with {status}: {self._log.read_text(errors='replace')[-1000:]}"

    def kill(self) -> None:
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def start(inside: Sequence[str], names: Iterable[str], workload: Workload) -> list[WorkerProcess]:
    """Starts these workers with `inside` before their commands. ValueError, ToolchainMissing."""
    started: list[WorkerProcess] = []
    try:
        for name in names:
            started.append(WorkerProcess(name, [*inside, *command(name, workload)], workload))
    except BaseException:
        for each in started:
            each.kill()
        raise
    return started


def command(name: str, workload: Workload) -> list[str]:
    """The words that start a worker: `java:ROLE+ROLE`, or LIBRARY-ROLE (`:2` makes another)."""
    kind, _, flavour = name.partition(":")
    if kind == "java":
        roles = ",".join(f"java-{role}={role}" for role in flavour.split("+"))
        java = [java_command(), "-Xmx192M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        words = [*java, "-cp", classpath(compiled_worker()), "Torture", "--roles", roles]
        return [*words, *workload.options(name)]
    library, _, role = kind.partition("-")
    if library not in PYTHON_WORKERS or role not in ROLES:
        raise ValueError(
            f"unknown worker {name!r}: java:ROLE+ROLE, or one of {', '.join(PYTHON_WORKERS)} with -ROLE"
        )
    words = [sys.executable, "-m", PYTHON_WORKERS[library], "--role", role, "--name", name]
    return [*words, *workload.options(name)]


def is_consumer(process: str) -> bool:
    """By the name of a process or a worker. A JVM either consumes or produces."""
    return "assign" in process or "subscribe" in process


def reader_of(process: str) -> str:
    """`java-assign.3` and `java-assign.4` read for the same, and so do the members of a group."""
    name = process.rpartition(".")[0]
    return name.partition(":")[0] if "-subscribe" in name else name
