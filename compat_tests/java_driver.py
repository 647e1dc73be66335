"""The Java side in one process: compiles `java/*.java` once and talks to the driver in JSON lines.

Owns: the compiled classes (`.cache/kafka-4.3.1/classes-*`, named by the sources' digest), the JVM, its pipes.
Invariant: one question, one answer, in order. Raises `Refused` with Kafka's error code for a broker's error.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compat_tests.clients.face import Refused
from compat_tests.kafka_jars import ToolchainMissing, cache_dir, classpath, java_command

_SOURCES = sorted((Path(__file__).resolve().parent / "java").glob("*.java"))
_ANSWER_TIMEOUT_S = 120.0


class DriverFailed(RuntimeError):
    """The JVM ended, answered nothing in time, or threw something that is not a broker's error."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a command-line tool did."""

    status: int
    stdout: str
    stderr: str


def compiled_classes() -> Path:
    """The directory of compiled classes; compiles when the source changed. ToolchainMissing without a JDK."""
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in _SOURCES)).hexdigest()
    target = cache_dir() / f"classes-{digest[:16]}"
    if not target.is_dir():
        javac = java_command("javac")
        class_path = classpath()
        with tempfile.TemporaryDirectory(dir=cache_dir()) as fresh:
            command = [javac, "--release", "17", "-nowarn", "-cp", class_path, "-d", fresh]
            command += [str(each) for each in _SOURCES]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ToolchainMissing(f"javac failed:\n{done.stderr}{done.stdout}")
            made = Path(fresh) / "classes"
            made.mkdir()
            for each in Path(fresh).glob("*.class"):
                each.rename(made / each.name)
            try:
                made.rename(target)
            except OSError:
                if not target.is_dir():  # else another process was as quick
                    raise
    return target


class JavaDriver:
    """One JVM; close it at the end."""

    def __init__(self, heap: str = "256M") -> None:
        # the parallel compiler tiers cost more than they bring in a process this short
        options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close())
        self._process = subprocess.Popen(
            [java_command(), *options, "-cp", classpath(compiled_classes()), "Driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self._pending = bytearray()

    def ask(self, what: str, settings: Mapping[str, str], **fields: Any) -> Any:
        """One question; its answer. Refused, DriverFailed."""
        question = {"do": what, "settings": dict(settings), **fields}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as broken:
            raise DriverFailed(f"the JVM ended: {self._said()}") from broken
        answer = json.loads(self._line())
        error = answer.get("error")
        if error is None:
            return answer["ok"]
        if error["code"] == -1:
            raise DriverFailed(f"{error['class']}: {error['text']}")
        raise Refused(error["code"], error["text"])

    def tool(self, main: str, *args: str, stdin: bytes = b"") -> ToolResult:
        """Run one of Kafka's tools by its main class, unchanged, inside this JVM."""
        answer = self.ask("tool", {}, main=main, args=list(args), stdin=base64.b64encode(stdin).decode())
        return ToolResult(answer["status"], answer["stdout"], answer["stderr"])

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while (end := self._pending.find(b"\n")) < 0:
            ready, _, _ = select.select([descriptor], [], [], _ANSWER_TIMEOUT_S)
            if not ready:
                raise DriverFailed(f"no answer in {_ANSWER_TIMEOUT_S} s: {self._said()}")
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise DriverFailed(f"the JVM ended: {self._said()}")
            self._pending += part
        line = bytes(self._pending[:end])
        del self._pending[: end + 1]
        return line

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]


def run_tool(main: str, args: Sequence[str], *, timeout_s: float = 120.0) -> ToolResult:
    """Run a tool in a JVM of its own (for what must not share one: performance figures)."""
    command = [java_command(), "-Xmx512M", "-cp", classpath(), main, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return ToolResult(done.returncode, done.stdout, done.stderr)
