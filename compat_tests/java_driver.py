"""The Java side in one process: compiles `java/*.java` once and talks to the driver in JSON lines.

Owns: the compiled classes (`.cache/kafka-4.3.1/classes-*`, named by the sources' digest) and how the JVM is
started; its pipes are `line_driver.py`'s.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.kafka_jars import ToolchainMissing, cache_dir, classpath, java_command
from compat_tests.line_driver import LineDriver

_SOURCES = sorted((Path(__file__).resolve().parent / "java").glob("*.java"))


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


class JavaDriver(LineDriver):
    """One JVM; close it at the end."""

    def __init__(self, heap: str = "256M") -> None:
        # the parallel compiler tiers cost more than they bring in a process this short
        options = [f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
        super().__init__([java_command(), *options, "-cp", classpath(compiled_classes()), "Driver"])

    def tool(self, main: str, *args: str, stdin: bytes = b"") -> ToolResult:
        """Run one of Kafka's tools by its main class, unchanged, inside this JVM."""
        answer = self.ask("tool", {}, main=main, args=list(args), stdin=base64.b64encode(stdin).decode())
        return ToolResult(answer["status"], answer["stdout"], answer["stderr"])


def run_tool(main: str, args: Sequence[str], *, timeout_s: float = 120.0) -> ToolResult:
    """Run a tool in a JVM of its own (for what must not share one: performance figures)."""
    command = [java_command(), "-Xmx512M", "-cp", classpath(), main, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return ToolResult(done.returncode, done.stdout, done.stderr)
