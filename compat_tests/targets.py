"""One broker process under test, as a context object: Lockstep or Apache Kafka 4.4.0, with the same face.

    with KafkaTarget(settings={"log.flush.interval.messages": "1"}) as broker:
        produce_to(broker.bootstrap)
        broker.kill9()
        broker.restart()          # same port, same data

Owns: the process, its fresh directory, its port, its log file. A process is started in its own process
group and only that group is ever signalled. Invariant: after `start()` returned, the broker answers Metadata
with at least one live broker; this is asked on the wire, the same question for both. Not thread-safe. Knows
no topics and no client library. Benches, campaigns and tests use it too.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, TypedDict, Unpack

import psutil

from compat_tests import fork_server
from compat_tests.kafka_jars import SHORT_LIVED, cache_dir, classpath, java_command
from compat_tests.lifecycle import Lifecycle
from compat_tests.probe import HOST, answers, free_port

ROOT = Path(__file__).resolve().parent.parent

_PORT_ATTEMPTS = 5
_PROBE_INTERVAL_S = 0.01
_LOG_TAIL_BYTES = 4_000

_running: weakref.WeakSet[Target] = weakref.WeakSet()


class TargetFailed(RuntimeError):
    """The broker did not become ready, or did not end; the text carries the end of its log."""


class TargetOptions(TypedDict, total=False):
    """Keywords every target takes."""

    directory: Path
    """Made when missing and never removed; without it a fresh one is made and `close()` removes it."""
    port: int
    """Default: a free one."""
    ready_timeout_s: float
    environment: Mapping[str, str]
    """Added to the process's environment."""
    keep: bool
    """Leave the directory after `close()` in any case."""


class Target(Lifecycle):
    """What both brokers have in common. Use `LockstepTarget` or `KafkaTarget`; `name` says which it is.

    `settings` are server properties (Kafka's names); for the rest see `TargetOptions`.
    """

    name = "target"
    node_ids: tuple[int, ...] = (1,)
    together: Mapping[str, str] = {}
    """A topic's configuration that gives all its partitions one leader, the first node."""

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        **options: Unpack[TargetOptions],
    ) -> None:
        self.settings: dict[str, str] = dict(settings or {})
        self.beside: dict[str, tuple[str, int]] = {}
        """Listeners beside the plaintext one, by name: security protocol and port."""
        self.keep = options.get("keep", False)
        self.ready_timeout_s = options.get("ready_timeout_s", 300.0)
        self._environment = dict(options.get("environment", {}))
        directory, port = options.get("directory"), options.get("port")
        self._owns_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix=f"{self.name}-target-"))
        self.data_dir = self.directory / "data"
        self.log_path = self.directory / "broker.log"
        self._fixed_port = port is not None
        self.port = port if port is not None else free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_before = False

    # -- what a subclass says ---------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Before the first start, and again when a port was taken: configure, format."""

    def _command(self) -> list[str]:
        raise NotImplementedError

    # -- life -------------------------------------------------------------------------------------------

    def start(self) -> float:
        """Start the process and wait until it answers; seconds from exec to ready. TargetFailed."""
        if self.running:
            raise TargetFailed(f"{self.name} is already running")
        attempts = 1 if self._fixed_port or self._started_before else _PORT_ATTEMPTS
        for attempt in range(attempts):
            if not self._started_before:
                self._prepare()
            try:
                seconds = self._start_once()
            except TargetFailed:
                if attempt + 1 == attempts or not self._port_was_taken():
                    raise
                self.port = free_port()
                continue
            self._started_before = True
            return seconds
        raise AssertionError("unreachable")

    def _start_once(self) -> float:
        self.directory.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with open(self.log_path, "ab") as log:
            self._process = self._spawn(log)
        _running.add(self)
        while time.monotonic() - began < self.ready_timeout_s:
            if answers(HOST, self.port, timeout_s=1.0):
                return time.monotonic() - began
            if not self.running:
                raise TargetFailed(
                    f"{self.name} ended with {self.exit_code} before it was ready\n{self.log_tail()}"
                )
            time.sleep(_PROBE_INTERVAL_S)
        self.kill9()
        raise TargetFailed(f"{self.name} not ready after {self.ready_timeout_s} s\n{self.log_tail()}")

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        return fork_server.popen(
            self._command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            env={**os.environ, **self._environment},
            start_new_session=True,
        )

    def kill9(self) -> None:
        """SIGKILL to the process group, and wait until it is gone. Nothing happens when it is not running."""
        self._end(signal.SIGKILL, timeout_s=30.0)

    def stop(self, timeout_s: float = 60.0) -> int:
        """SIGTERM and wait; the exit code. TargetFailed (after SIGKILL) when it does not end in time."""
        if not self._end(signal.SIGTERM, timeout_s):
            self.kill9()
            raise TargetFailed(f"{self.name} did not stop within {timeout_s} s of SIGTERM\n{self.log_tail()}")
        return self.exit_code or 0

    def restart(self) -> float:
        """Start again on the same data and port, after SIGKILL if it still runs; seconds until ready."""
        self.kill9()
        return self.start()

    def close(self) -> None:
        """End it at once and remove its directory (unless given or `keep`). May be called twice."""
        self.kill9()
        _running.discard(self)
        if self._owns_directory and not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def keep_log(self, directory: Path | None = None) -> Path:
        """Copy the log to where it outlives the target (default: `.cache/compat-logs`); the copy's path."""
        target = directory or cache_dir().parent / "compat-logs"
        target.mkdir(parents=True, exist_ok=True)
        copy = target / f"{self.name}-{self.port}-{time.strftime('%Y%m%d-%H%M%S')}.log"
        shutil.copyfile(self.log_path, copy)
        return copy

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self.log_path.exists():
            print(f"{self.name}: log kept at {self.keep_log()}", file=sys.stderr)
        super().__exit__(kind, error, trace)

    # -- facts ------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """`host:port`, for a client's bootstrap servers."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The broker's process id. TargetFailed when it was never started."""
        if self._process is None:
            raise TargetFailed(f"{self.name} was not started")
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """The same for one broker as for several."""
        return [self.pid]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs or was never started; negative signal number when killed."""
        return None if self._process is None else self._process.poll()

    def rss_bytes(self) -> int:
        """Resident memory of the process (and its children, of which neither broker has any)."""
        process = psutil.Process(self.pid)
        return sum(int(each.memory_info().rss) for each in [process, *process.children(recursive=True)])

    def log_tail(self) -> str:
        """The last few kilobytes the broker printed."""
        try:
            with open(self.log_path, "rb") as log:
                log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_TAIL_BYTES))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    # -- inside -----------------------------------------------------------------------------------------

    def _listeners(self, **controller: int) -> dict[str, str]:
        """All listeners as Kafka's settings; `controller`: those that clients never use, by name."""
        plain = {"PLAINTEXT": self.port, **controller}
        all_of_them = {**{name: ("PLAINTEXT", port) for name, port in plain.items()}, **self.beside}
        return {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, (_, port) in all_of_them.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, (protocol, _) in all_of_them.items()
            ),
        }

    def _end(self, number: signal.Signals, timeout_s: float) -> bool:
        """Signal the group and wait for the process; False when it is still there after `timeout_s`."""
        process = self._process
        if process is None:
            return True
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _port_was_taken(self) -> bool:
        return "in use" in self.log_tail().lower()


class LockstepTarget(Target):
    """`python -m lockstep serve`; `command` replaces the words before `serve` (an installed wheel)."""

    name = "lockstep"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        command: Sequence[str] | None = None,
        **options: Unpack[TargetOptions],
    ) -> None:
        super().__init__({"group.initial.rebalance.delay.ms": "0", **(settings or {})}, **options)
        if command is None:
            self._environment.setdefault("PYTHONPATH", str(ROOT))
        self._program = list(command or [sys.executable, "-m", "lockstep"])

    def _command(self) -> list[str]:
        listen = ["--data-dir", str(self.data_dir)]
        settings = dict(self.settings)
        if self.beside:
            settings |= self._listeners()
        else:
            listen += ["--listen", f"{HOST}:{self.port}"]
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        return [*self._program, "serve", *listen, *sets]


SHIPPED_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The options of Kafka's start script."""


class KafkaTarget(Target):
    """Apache Kafka 4.4.0, one KRaft process that is broker and controller. Raises ToolchainMissing.

    `heap` sets -Xms and -Xmx (Kafka ships 1G); the other JVM options are those of Kafka's start script, or,
    where it is not measured, `jvm`.
    """

    name = "kafka"

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        heap: str = "1G",
        jvm: Sequence[str] = SHIPPED_JVM,
        **options: Unpack[TargetOptions],
    ) -> None:
        self.heap = heap
        self._jvm = list(jvm)
        self._class_path = classpath()
        self._java = java_command()
        self._controller_port = free_port()
        self._cluster_id = kafka_uuid()
        super().__init__(settings, **options)

    @property
    def _properties_path(self) -> Path:
        return self.directory / "server.properties"

    def _prepare(self) -> None:
        self._controller_port = free_port(avoid=self.port)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            **self._listeners(CONTROLLER=self._controller_port),
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }
        self.directory.mkdir(parents=True, exist_ok=True)
        self._properties_path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        format_words = [
            "format",
            "-t",
            self._cluster_id,
            "-c",
            str(self._properties_path),
            "--ignore-formatted",
        ]
        tool = [self._java, "-Xmx128M", *SHORT_LIVED, "-cp", self._class_path]
        done = subprocess.run(
            [*tool, "kafka.tools.StorageTool", *format_words], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise TargetFailed(f"kafka.tools.StorageTool format failed:\n{done.stdout}{done.stderr}")

    def _command(self) -> list[str]:
        log4j = Path(__file__).resolve().parent / "java" / "log4j2.properties"
        options = [
            f"-Xmx{self.heap}",
            f"-Xms{self.heap}",
            *self._jvm,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={log4j}",
        ]
        return [self._java, *options, "-cp", self._class_path, "kafka.Kafka", str(self._properties_path)]


def kafka_uuid() -> str:
    """A random id in Kafka's URL-safe base64; a leading dash would be taken for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


@atexit.register
def _end_all() -> None:
    for target in list(_running):
        target.close()
