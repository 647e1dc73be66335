"""The Java side, one process per Kafka version: compiles `java/*.java` once for each and talks in JSON lines.

Owns: the compiled classes (`.cache/kafka-*/classes-*`, named by the sources' digest) and how the JVM is
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

from compat_tests.kafka_jars import KAFKA, SHORT_LIVED, JarSet, ToolchainMissing, classpath, java_command
from compat_tests.line_driver import LineDriver

_JAVA = Path(__file__).resolve().parent / "java"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a command-line tool did."""

    status: int
    stdout: str
    stderr: str


def compiled_classes(jars: JarSet = KAFKA) -> Path:
    """The directory of compiled classes; compiles when the source changed. ToolchainMissing without a JDK."""
    sources = sorted([*_JAVA.glob("*.java"), *(_JAVA.glob("tools/*.java") if jars == KAFKA else ())])
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()
    target = jars.directory / f"classes-{digest[:16]}"
    if not target.is_dir():
        javac = java_command("javac")
        class_path = jars.classpath()
        with tempfile.TemporaryDirectory(dir=jars.directory) as fresh:
            command = [javac, *(f"-J{each}" for each in SHORT_LIVED), "--release", "17", "-nowarn"]
            command += ["-cp", class_path, "-d", fresh]
            command += [str(each) for each in sources]
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
    """One JVM with one version's client, the judge's unless said otherwise; close it at the end."""

    def __init__(self, jars: JarSet = KAFKA) -> None:
        heap = "256M" if jars == KAFKA else "128M"  # the tools need more than a client
        options = [f"-Xmx{heap}", *SHORT_LIVED, "-Djava.awt.headless=true"]
        super().__init__([java_command(), *options, "-cp", jars.classpath(compiled_classes(jars)), "Driver"])

    def tool(self, main: str, *args: str, stdin: bytes = b"") -> ToolResult:
        """Run one of Kafka's tools by its main class, unchanged, inside this JVM (the judge's)."""
        answer = self.ask("tool", {}, main=main, args=list(args), stdin=base64.b64encode(stdin).decode())
        return ToolResult(answer["status"], answer["stdout"], answer["stderr"])


def run_tool(main: str, args: Sequence[str], *, timeout_s: float = 120.0) -> ToolResult:
    """Run a tool in a JVM of its own (for what must not share one)."""
    command = [java_command(), "-Xmx512M", *SHORT_LIVED, "-cp", classpath(), main, *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    return ToolResult(done.returncode, done.stdout, done.stderr)
