"""The campaigns' Java programs: compiled once per source and set of jars, kept beside the jars."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from compat_tests.kafka_jars import KAFKA, SHORT_LIVED, JarSet, ToolchainMissing, java_command

SOURCES = Path(__file__).resolve().parent / "java"


def java(name: str, words: Sequence[str], jars: JarSet = KAFKA, heap: str = "192M") -> list[str]:
    """The command that runs `java/NAME.java` with these words. ToolchainMissing."""
    options = [f"-Xmx{heap}", *SHORT_LIVED]
    return [java_command(), *options, "-cp", jars.classpath(compiled(name, jars)), name, *words]


def compiled(name: str, jars: JarSet) -> Path:
    """The directory of its classes. ToolchainMissing."""
    source = SOURCES / f"{name}.java"
    class_path = jars.classpath()  # makes the directory
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    target = jars.directory / f"{name.lower()}-{digest[:16]}"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(dir=jars.directory) as fresh:
            made = Path(fresh) / "classes"
            words = ["--release", "17", "-nowarn", "-cp", class_path, "-d", str(made), str(source)]
            done = subprocess.run(
                [java_command("javac"), *words], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise ToolchainMissing(f"javac failed:\n{done.stderr}{done.stdout}")
            with contextlib.suppress(OSError):  # another process was as quick
                made.rename(target)
    return target
