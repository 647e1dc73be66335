"""A Kafka Connect worker in distributed mode: one JVM, driven over its REST API.

    with ConnectWorker(broker.bootstrap) as worker:
        worker.create("lines", {"connector.class": FILE_SOURCE, ...})
        worker.kill9()
        worker.start()            # same group, same port: it takes over what it ran before

Owns: the JVM, its directory, its log, the names of its group and internal topics. Exactly-once support for
source connectors is enabled, so the leader writes the config topic in transactions and every source task has
a transactional producer. Invariant: after `start()` returned, the worker has joined its group and its REST
API answers. Debezium's jars are on its plugin path; the other connectors are on its class path.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compat_tests.kafka_jars import CONNECT, DEBEZIUM, SHORT_LIVED, cache_dir, java_command
from compat_tests.lifecycle import Lifecycle
from compat_tests.probe import HOST, free_port

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"
MIRROR_SOURCE = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
MIRROR_CHECKPOINT = "org.apache.kafka.connect.mirror.MirrorCheckpointConnector"
DEBEZIUM_POSTGRES = "io.debezium.connector.postgresql.PostgresConnector"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"

GROUP = "connect-cluster"
INTERNAL_TOPICS = ("connect-configs", "connect-offsets", "connect-status")

_READY_TIMEOUT_S = 120.0
_RUNNING_TIMEOUT_S = 90.0
_PAUSE_S = 0.1
_LOG_TAIL_BYTES = 6_000


class ConnectFailed(RuntimeError):
    """The worker did not become ready, or a connector or task failed; the text carries the reason."""


class ConnectWorker(Lifecycle):
    """One worker of a group of its own; close it at the end. Raises ToolchainMissing."""

    def __init__(self, bootstrap: str) -> None:
        self._command = _java_command()
        self._port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="connect-worker-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = self._directory / "worker.properties"
        self._properties.write_text(
            "".join(f"{key}={value}\n" for key, value in self._settings(bootstrap).items())
        )
        self.log_path = self._directory / "connect.log"

    def _settings(self, bootstrap: str) -> dict[str, str]:
        configs, offsets, status = INTERNAL_TOPICS
        return {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "config.storage.topic": configs,
            "config.storage.replication.factor": "1",
            "offset.storage.topic": offsets,
            "offset.storage.replication.factor": "1",
            "offset.storage.partitions": "1",
            "status.storage.topic": status,
            "status.storage.replication.factor": "1",
            "status.storage.partitions": "1",
            "exactly.once.source.support": "enabled",
            "key.converter": STRING,
            "value.converter": STRING,
            "listeners": f"http://{HOST}:{self._port}",
            "plugin.path": str(DEBEZIUM.libs.parent),
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
            # a killed worker is missed, and its work is taken up again, as soon as the group allows
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
        }

    # -- life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the JVM and wait until the worker is in its group. ConnectFailed."""
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [*self._command, str(self._properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not self._is_ready():
            if not self.running or time.monotonic() > deadline:
                raise ConnectFailed(f"the worker did not become ready\n{self.log_tail()}")
            time.sleep(_PAUSE_S)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill9(self) -> None:
        """SIGKILL to the JVM, and wait until it is gone."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30.0)

    def close(self) -> None:
        """End it and remove its directory."""
        self.kill9()
        shutil.rmtree(self._directory, ignore_errors=True)

    def keep_log(self) -> Path:
        """Copy the log to `.cache/compat-logs`, where it outlives the worker; the copy's path."""
        directory = cache_dir().parent / "compat-logs"
        directory.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copyfile(self.log_path, directory / f"connect-{self._port}.log"))

    def log_tail(self) -> str:
        """The last few kilobytes the worker printed."""
        data = self.log_path.read_bytes() if self.log_path.exists() else b""
        return data[-_LOG_TAIL_BYTES:].decode(errors="replace")

    # -- connectors -------------------------------------------------------------------------------------

    def create(self, name: str, config: Mapping[str, str], tasks: int = 1) -> None:
        """Create a connector and wait until it and `tasks` tasks run. ConnectFailed."""
        self.call("PUT", f"/connectors/{name}/config", {"name": name, **config})
        self.await_running(name, tasks)

    def await_running(self, name: str, tasks: int = 1) -> None:
        """Wait until the connector and `tasks` tasks of it are RUNNING. ConnectFailed where one fails."""
        self._await(name, "RUNNING", tasks)

    def stop(self, name: str) -> None:
        """Stop a connector: it keeps its configuration and has no tasks. Waits until it is stopped."""
        self.call("PUT", f"/connectors/{name}/stop")
        self._await(name, "STOPPED", 0)

    def delete(self, name: str) -> None:
        self.call("DELETE", f"/connectors/{name}")

    def call(self, method: str, path: str, body: object = None) -> Any:
        """One REST request; the answer's JSON, None where there is none. ConnectFailed.

        A request that a rebalance refuses (409) is repeated.
        """
        deadline = time.monotonic() + _RUNNING_TIMEOUT_S
        while True:
            try:
                return self._call(method, path, body)
            except urllib.error.HTTPError as refused:
                text = refused.read().decode(errors="replace")
                if refused.code != 409 or time.monotonic() > deadline:
                    raise ConnectFailed(
                        f"{method} {path}: {refused.code} {text}\n{self.log_tail()}"
                    ) from refused
            time.sleep(_PAUSE_S)

    def _call(self, method: str, path: str, body: object, timeout_s: float = 30.0) -> Any:
        request = urllib.request.Request(f"http://{HOST}:{self._port}{path}", method=method)
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data, timeout=timeout_s) as answer:
            found = answer.read()
        return json.loads(found) if found else None

    def _is_ready(self) -> bool:
        """Whether the worker has read its config topic and joined its group (KIP-1017)."""
        try:
            found = self._call("GET", "/health", None, timeout_s=5.0)
        except (OSError, urllib.error.URLError):
            return False
        return bool(found["status"] == "healthy")

    def _await(self, name: str, state: str, tasks: int) -> None:
        deadline = time.monotonic() + _RUNNING_TIMEOUT_S
        while True:
            try:
                found = self._call("GET", f"/connectors/{name}/status", None)
            except urllib.error.HTTPError as refused:
                found = {"connector": {"state": f"HTTP {refused.code}"}, "tasks": []}
            states = [found["connector"]["state"], *(task["state"] for task in found["tasks"])]
            if states == [state] * (1 + tasks):
                return
            if "FAILED" in states or time.monotonic() > deadline:
                raise ConnectFailed(f"{name} is not {state}: {json.dumps(found)}\n{self.log_tail()}")
            time.sleep(_PAUSE_S)


def _java_command() -> list[str]:
    """The words before the path of the worker's properties. ToolchainMissing."""
    DEBEZIUM.jars()
    log4j = Path(__file__).resolve().parent / "java" / "log4j2.properties"
    options = ["-Xmx256M", *SHORT_LIVED, "-Djava.awt.headless=true"]
    options.append(f"-Dlog4j2.configurationFile={log4j}")
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    return [java_command(), *options, "-cp", CONNECT.classpath(), main]
