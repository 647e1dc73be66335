"""A pipeline of `spark_connector` as a process in Spark's own environment, which may be killed at any moment.

Owns: the command line with its jars, the process and its group, what it has said. kill -9 hits the driver and
its JVM at once; the Python workers have a group of their own, and live on until they notice, as they would on
another machine: what they still write is what a restart must cope with.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from compat_tests.spark_driver import DELTA, JARS, installed
from compat_tests.targets import ROOT

TICK_S: Final = 0.02
LONGEST_S: Final = 1800.0
KILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""As which a process ends that somebody else has killed: `timeout -s KILL`, for example."""
_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
CONF: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": _JVM,
    "spark.executor.extraJavaOptions": _JVM,
    "spark.sql.shuffle.partitions": "4",
}


class PipelineEnded(RuntimeError):
    """It ended in another way than it should have; the text has the end of what it said."""


class Pipelines:
    """Runs them one after the other. ToolchainMissing where Spark cannot be installed."""

    def __init__(
        self,
        bootstrap: str,
        directory: Path,
        *,
        under: Sequence[str] = (),
        conf: Mapping[str, str] = CONF,
    ) -> None:
        """`under`: words before each command that starts Spark; `conf`: its settings."""
        self.kills = 0
        self._bootstrap = bootstrap
        self._log = directory / "pipelines.log"
        self._said = directory / "pipelines.out"
        self._python = str(installed())
        self._jars = ",".join(str(each) for each in (JARS.libs, DELTA.libs))
        self._under = list(under)
        self._conf = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        for jars in (JARS, DELTA):
            jars.jars()

    def run(self, name: str, *words: str, kill: Callable[[], bool] | None = None) -> dict[str, Any] | None:
        """What it says in the end; None where it was killed, by `kill` or by others. PipelineEnded."""
        line = [self._python, "-P", "-m", "spark_connector.pipelines", name, "-b", self._bootstrap, *words]
        if name != "events":
            line = [*self._under, *line]
            line += ["--jars", self._jars, "--master", "local[2]", *self._conf]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": self._python}
        with open(self._log, "ab") as log, open(self._said, "wb") as said:
            process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        try:
            deadline = time.monotonic() + LONGEST_S
            while process.poll() is None:
                if time.monotonic() > deadline:
                    raise PipelineEnded(f"{name} did not end in {LONGEST_S:g} s:\n{self.tail()}")
                if kill is not None and kill():
                    self.kills += 1
                    return None
                time.sleep(TICK_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode in KILLED:
            self.kills += 1
            return None
        if process.returncode:
            raise PipelineEnded(f"{name} ended with {process.returncode}:\n{self.tail()}")
        found: dict[str, Any] = json.loads(self._said.read_text().splitlines()[-1])
        return found

    def evaluate(self, program: str, *words: str) -> str:
        """What a Python program says in that environment."""
        done = subprocess.run(
            [self._python, "-c", program, *words],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        if done.returncode:
            raise PipelineEnded(done.stderr[-2000:])
        return done.stdout.strip()

    def tail(self) -> str:
        """The end of what all of them have said on standard error."""
        text = self._log.read_text(errors="replace")
        problems = [line for line in text.splitlines() if line.startswith("error: ")]
        return "\n".join([*problems[-3:], text[-3000:]])
