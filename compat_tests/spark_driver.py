"""Spark with its stock Kafka source and sink: an environment and jars of its own, one session as a driver.

Two releases, because Spark promises both ways to come by the connector: 4.2.0 with its jars named one by one
(`spark.jars`), 4.0.0 with its coordinates (`spark.jars.packages`), which Spark resolves by itself.

Owns: `.cache/spark-VERSION/venv` (from `requirements/spark*.txt`, hashes checked; 450 MB, hence not in the
project's environment), its stamp and lock, and how the session is started. `installed()` is idempotent and
may be called by several processes at once; the stamp is written last. `spark/driver.py` is the other side.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.kafka_jars import JarSet, ToolchainMissing, java_command
from compat_tests.line_driver import LineDriver

SPARK_VERSION = "4.2.0"
OTHER_VERSION = "4.0.0"

_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parent / ".cache"
_BUILDERS = ("setuptools", "wheel", "packaging")
_PIP_TIMEOUT_S = 1200


@dataclass(frozen=True, slots=True)
class Release:
    """One version of Spark: `requirements` names its file; `jars`, or else `packages`, is its connector."""

    version: str
    requirements: str
    jars: JarSet | None = None
    packages: str = ""

    @property
    def cache(self) -> Path:
        """The directory for all that belongs to this version."""
        return _CACHE / f"spark-{self.version}"

    @property
    def requirements_path(self) -> Path:
        return _HERE.parent / "requirements" / self.requirements

    def settings(self) -> dict[str, str]:
        """The session's settings that bring the connector. ToolchainMissing."""
        if self.jars is not None:
            return {"spark.jars": ",".join(str(each) for each in self.jars.jars())}
        # a home of its own: poms without jars in the user's Maven cache end Ivy's resolution
        home = self.cache / "home"
        home.mkdir(parents=True, exist_ok=True)
        return {
            "spark.jars.packages": self.packages,
            "spark.jars.ivy": str(self.cache / "ivy"),
            "spark.driver.extraJavaOptions": f"-Duser.home={home}",
        }


JARS = JarSet("3.9.2", _HERE / "java" / "spark" / "pom.xml", _CACHE / f"spark-{SPARK_VERSION}")
"""The connector and the Kafka client that it is made for."""

DELTA = JarSet("4.4.0", _HERE / "java" / "delta" / "pom.xml", _CACHE / "delta-4.4.0", "delta-storage")
"""Delta Lake, for archives."""

NEWEST = Release(SPARK_VERSION, "spark.txt", jars=JARS)
OTHER = Release(
    OTHER_VERSION, "spark-4.0.txt", packages=f"org.apache.spark:spark-sql-kafka-0-10_2.13:{OTHER_VERSION}"
)
RELEASES = {each.version: each for each in (NEWEST, OTHER)}


@functools.cache
def installed(release: Release = NEWEST) -> Path:
    """The Python that has pyspark; pip runs only when it is not there. ToolchainMissing."""
    java_command()
    digest = hashlib.sha256(release.requirements_path.read_bytes() + sys.version.encode()).hexdigest()
    venv = release.cache / "venv"
    stamp = venv / ".stamp"
    release.cache.mkdir(parents=True, exist_ok=True)
    with open(release.cache / "venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != digest:
            shutil.rmtree(venv, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(venv)], release)
            _install(venv, release)
            stamp.write_text(digest)
    return venv / "bin" / "python"


def _install(venv: Path, release: Release) -> None:
    """pyspark is a source distribution: first what builds it, so that no build takes anything unpinned."""
    builders = venv / "builders.txt"
    blocks = re.findall(r"(?m)^[a-z0-9-]+==.*(?:\n    --hash.*)+", release.requirements_path.read_text())
    builders.write_text("\n".join(each for each in blocks if each.split("==")[0] in _BUILDERS) + "\n")
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    pip += ["--require-hashes"]  # and compile: Spark gives a Python worker ten seconds to start
    _run([*pip, "--requirement", str(builders)], release)
    _run([*pip, "--no-build-isolation", "--requirement", str(release.requirements_path)], release)


def _run(command: Sequence[str], release: Release) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise ToolchainMissing(f"installing Spark took longer than {_PIP_TIMEOUT_S} s") from late
    if done.returncode != 0:
        raise ToolchainMissing(f"Spark {release.version} could not be installed:\n{done.stderr[-2000:]}")


def spark_driver(version: str = SPARK_VERSION) -> LineDriver:
    """One local session of that version, for all brokers. ToolchainMissing."""
    release = RELEASES[version]
    settings = json.dumps(release.settings())
    return LineDriver([str(installed(release)), str(_HERE / "spark" / "driver.py"), settings])


def connector_driver() -> LineDriver:
    """A session that `spark_connector` made, for its own source and sink. ToolchainMissing."""
    jars = ",".join(str(each) for each in JARS.jars())
    return LineDriver([str(installed()), str(_HERE / "spark" / "connector_driver.py"), jars])


def _main() -> None:
    for release in RELEASES.values():
        brought = " ".join(Path(each).name for each in release.settings().values())
        print(installed(release), brought)


if __name__ == "__main__":
    try:
        _main()
    except ToolchainMissing as missing:
        sys.exit(str(missing))
