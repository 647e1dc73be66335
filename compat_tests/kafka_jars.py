"""Apache Kafka 4.3.1's jars, resolved by Maven once and kept under `.cache/`.

Owns: the pinned `java/pom.xml`, `.cache/kafka-4.3.1/libs`, its stamp and its lock. `jars()` is idempotent
and may be called by several processes at once; the stamp is written last, so a half-filled directory is
never trusted.
Does not start anything: `compat_tests.targets` runs the broker, `compat_tests.java_tools` the tools.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

KAFKA_VERSION = "4.3.1"
JAVA_MINIMUM = 17

_ROOT = Path(__file__).resolve().parent.parent
_POM = Path(__file__).resolve().parent / "java" / "pom.xml"
_CACHE = _ROOT / ".cache" / f"kafka-{KAFKA_VERSION}"
_LIBS = _CACHE / "libs"
_MAVEN_TIMEOUT_S = 900


class ToolchainMissing(RuntimeError):
    """Java or Maven is absent or too old, or Maven could not resolve the jars; the text says which."""


def cache_dir() -> Path:
    """The directory for everything derived from this Kafka version (jars, compiled classes)."""
    return _CACHE


@functools.cache
def java_command(name: str = "java") -> str:
    """The path of `java` or `javac` (JAVA_HOME first, then PATH), Java 17 or newer, or ToolchainMissing."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home) / "bin")) if home else shutil.which(name)
    if found is None:
        raise ToolchainMissing(f"{name} not found: install a JDK, version {JAVA_MINIMUM} or newer")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    text = (said.stderr + said.stdout).strip()
    major = major_version(text)
    if major < JAVA_MINIMUM:
        raise ToolchainMissing(f"{found} is too old (Java {JAVA_MINIMUM} or newer is needed): {text[:200]!r}")
    return found


def major_version(text: str) -> int:
    """17 from `openjdk version "17.0.15" ...` and from `javac 17.0.15`; 0 when there is no number."""
    for word in text.replace('"', " ").split():
        head = word.split(".")[0].split("-")[0]
        if head.isdigit():
            return int(head)
    return 0


@functools.cache
def jars() -> list[Path]:
    """All jars of Apache Kafka 4.3.1, sorted; Maven runs only when they are not there. ToolchainMissing."""
    wanted = hashlib.sha256(_POM.read_bytes()).hexdigest()
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _stamped(wanted):
            _resolve()
            names = sorted(path.name for path in _LIBS.glob("*.jar"))
            _stamp_path().write_text("\n".join([wanted, *names]) + "\n")
    return sorted(_LIBS.glob("*.jar"))


def classpath(*extra: Path) -> str:
    """A Java class path: `extra` first, then every jar."""
    return os.pathsep.join(str(path) for path in [*extra, *jars()])


def require_java(*commands: str) -> list[Path]:
    """For tests: the jars; without the toolchain a skip that names what is missing, or a failure if CI=true.

    `commands` are further JDK commands the test runs, e.g. "javac".
    """
    try:
        for name in ("java", *commands):
            java_command(name)
        return jars()
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
        raise AssertionError("unreachable") from missing


def skip_or_fail(reason: str) -> None:
    """A tool that a user may lack: skip by name. CI has everything, so there it is a failure."""
    import pytest  # not needed by the benches that import this module

    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"CI must have it: {reason}")
    pytest.skip(reason)


def _stamp_path() -> Path:
    return _LIBS / ".stamp"


def _stamped(wanted: str) -> bool:
    try:
        digest, *names = _stamp_path().read_text().split()
    except (OSError, ValueError):
        return False
    return digest == wanted and bool(names) and all((_LIBS / name).is_file() for name in names)


def _resolve() -> None:
    """Fill `libs` afresh; caller holds the lock."""
    java_command()
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolchainMissing("mvn not found: install Maven to resolve Apache Kafka's jars")
    shutil.rmtree(_LIBS, ignore_errors=True)
    command = [
        maven,
        "-q",
        "-B",
        "-f",
        str(_POM),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={_LIBS}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise ToolchainMissing(f"Maven took longer than {_MAVEN_TIMEOUT_S} s") from late
    if done.returncode != 0 or not any(_LIBS.glob("kafka-clients-*.jar")):
        raise ToolchainMissing(
            f"Maven could not resolve Apache Kafka {KAFKA_VERSION}:\n{done.stdout[-2000:]}"
        )


if __name__ == "__main__":
    try:
        print(f"{len(jars())} jars in {_LIBS}")
    except ToolchainMissing as missing:
        sys.exit(str(missing))
