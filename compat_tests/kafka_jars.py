"""Apache Kafka's jars, resolved by Maven once and kept under `.cache/`: all of 4.4.0, and other clients.

Owns: the pinned `java/pom.xml` and its like in `java/clients`, `java/streams`, `java/connect` and
`java/debezium`, `.cache/kafka-*/libs` and `.cache/debezium-*/libs`, their stamps and locks. `jars()` is
idempotent and may be called by several processes at once; the stamp is written last, so a half-filled
directory is never trusted.
Does not start anything: `compat_tests.targets` runs the broker, `compat_tests.java_driver` clients and tools.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

KAFKA_VERSION = "4.4.0"
CONNECT_VERSION = "4.3.1"
"""The newest of which Maven resolves the file connectors and MirrorMaker."""
DEBEZIUM_VERSION = "3.6.1.Final"
JAVA_MINIMUM = 17
SHORT_LIVED = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that serves a test: the optimising compiler and its collector's threads cost more than
they bring in a process this short. Not for what is measured."""

_ROOT = Path(__file__).resolve().parent.parent
_CACHE = _ROOT / ".cache"
_JAVA = Path(__file__).resolve().parent / "java"
_MAVEN_TIMEOUT_S = 900


class ToolchainMissing(RuntimeError):
    """Java or Maven is absent or too old, or Maven could not resolve the jars; the text says which."""


@dataclass(frozen=True, slots=True)
class JarSet:
    """What one pom resolves to for one Kafka version; `directory` is for all that is derived from it."""

    version: str
    pom: Path
    directory: Path
    proof: str = "kafka-clients"
    """The jar that must be among them, without its version."""
    variable: str = "kafka.version"
    """The property of the pom that the version is given in."""

    def jars(self) -> list[Path]:
        """All jars, sorted; Maven runs only when they are not there. ToolchainMissing."""
        return _resolved(self)

    def classpath(self, *extra: Path) -> str:
        """A Java class path: `extra` first, then every jar."""
        return os.pathsep.join(str(path) for path in [*extra, *self.jars()])

    @property
    def libs(self) -> Path:
        return self.directory / "libs"


KAFKA = JarSet(KAFKA_VERSION, _JAVA / "pom.xml", _CACHE / f"kafka-{KAFKA_VERSION}")
"""The judge: broker, command-line tools and client."""

STREAMS = JarSet(KAFKA_VERSION, _JAVA / "streams" / "pom.xml", _CACHE / f"kafka-streams-{KAFKA_VERSION}")
"""Kafka Streams without its stores on disk."""


CONNECT = JarSet(CONNECT_VERSION, _JAVA / "connect" / "pom.xml", _CACHE / f"kafka-connect-{CONNECT_VERSION}")
"""A Kafka Connect worker, its file connectors and MirrorMaker 2."""

DEBEZIUM = JarSet(
    DEBEZIUM_VERSION,
    _JAVA / "debezium" / "pom.xml",
    _CACHE / f"debezium-{DEBEZIUM_VERSION}",
    "debezium-connector-postgres",
    "debezium.version",
)
"""Debezium's connector for PostgreSQL."""


def client_jars(version: str) -> JarSet:
    """Only the Java client of another version, with what the driver needs beside it."""
    return JarSet(version, _JAVA / "clients" / "pom.xml", _CACHE / f"kafka-clients-{version}")


def cache_dir() -> Path:
    """The directory for everything derived from the judge (jars, compiled classes)."""
    return KAFKA.directory


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
def _resolved(wanted: JarSet) -> list[Path]:
    digest = hashlib.sha256(wanted.pom.read_bytes()).hexdigest()
    wanted.directory.mkdir(parents=True, exist_ok=True)
    with open(wanted.directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _stamped(wanted.libs, digest):
            where = os.path.relpath(wanted.libs)
            print(f"Maven resolves {wanted.proof} {wanted.version} into {where}", file=sys.stderr)
            _resolve(wanted)
            names = sorted(path.name for path in wanted.libs.glob("*.jar"))
            (wanted.libs / ".stamp").write_text("\n".join([digest, *names]) + "\n")
    return sorted(wanted.libs.glob("*.jar"))


def jars() -> list[Path]:
    """All jars of the judge. ToolchainMissing."""
    return KAFKA.jars()


def classpath(*extra: Path) -> str:
    """The judge's class path: `extra` first, then every jar."""
    return KAFKA.classpath(*extra)


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


def _stamped(libs: Path, wanted: str) -> bool:
    try:
        digest, *names = (libs / ".stamp").read_text().split()
    except (OSError, ValueError):
        return False
    return digest == wanted and bool(names) and all((libs / name).is_file() for name in names)


def _resolve(wanted: JarSet) -> None:
    """Fill `libs` afresh; caller holds the lock."""
    java_command()
    maven = shutil.which("mvn")
    if maven is None:
        raise ToolchainMissing("mvn not found: install Maven to resolve Apache Kafka's jars")
    shutil.rmtree(wanted.libs, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(wanted.pom), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={wanted.libs}", f"-D{wanted.variable}={wanted.version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise ToolchainMissing(f"Maven took longer than {_MAVEN_TIMEOUT_S} s") from late
    if done.returncode != 0 or not (wanted.libs / f"{wanted.proof}-{wanted.version}.jar").is_file():
        raise ToolchainMissing(
            f"Maven could not resolve {wanted.proof} {wanted.version}:\n{done.stdout[-2000:]}"
        )


if __name__ == "__main__":
    try:
        print(f"{len(jars())} jars in {KAFKA.libs}")
    except ToolchainMissing as missing:
        sys.exit(str(missing))
