"""Spark with its stock Kafka source and sink: an environment and jars of its own, one session as a driver.

Owns: `.cache/spark-VERSION/venv` (from `requirements/spark.txt`, hashes checked; 450 MB, hence not in the
project's environment), its stamp and lock, and how the session is started. `installed()` is idempotent and
may be called by several processes at once; the stamp is written last. `spark/driver.py` is the other side.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from compat_tests.kafka_jars import JarSet, ToolchainMissing, java_command
from compat_tests.line_driver import LineDriver

SPARK_VERSION = "4.2.0"

_HERE = Path(__file__).resolve().parent
_CACHE = _HERE.parent / ".cache" / f"spark-{SPARK_VERSION}"
_REQUIREMENTS = _HERE.parent / "requirements" / "spark.txt"
_BUILDERS = ("setuptools", "wheel", "packaging")
_PIP_TIMEOUT_S = 1200

JARS = JarSet("3.9.2", _HERE / "java" / "spark" / "pom.xml", _CACHE)
"""The connector and the Kafka client that it is made for."""


@functools.cache
def installed() -> Path:
    """The Python that has pyspark; pip runs only when it is not there. ToolchainMissing."""
    java_command()
    digest = hashlib.sha256(_REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    venv = _CACHE / "venv"
    stamp = venv / ".stamp"
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "venv.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != digest:
            shutil.rmtree(venv, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(venv)])
            _install(venv)
            stamp.write_text(digest)
    return venv / "bin" / "python"


def _install(venv: Path) -> None:
    """pyspark is a source distribution: first what builds it, so that no build takes anything unpinned."""
    builders = venv / "builders.txt"
    blocks = re.findall(r"(?m)^[a-z0-9-]+==.*(?:\n    --hash.*)+", _REQUIREMENTS.read_text())
    builders.write_text("\n".join(each for each in blocks if each.split("==")[0] in _BUILDERS) + "\n")
    pip = [str(venv / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    pip += ["--require-hashes"]  # and compile: Spark gives a Python worker ten seconds to start
    _run([*pip, "--requirement", str(builders)])
    _run([*pip, "--no-build-isolation", "--requirement", str(_REQUIREMENTS)])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        raise ToolchainMissing(f"installing Spark took longer than {_PIP_TIMEOUT_S} s") from late
    if done.returncode != 0:
        raise ToolchainMissing(f"Spark {SPARK_VERSION} could not be installed:\n{done.stderr[-2000:]}")


def spark_driver() -> LineDriver:
    """One local session, for both brokers. ToolchainMissing."""
    jars = ",".join(str(each) for each in JARS.jars())
    return LineDriver([str(installed()), str(_HERE / "spark" / "driver.py"), jars])


if __name__ == "__main__":
    try:
        print(installed(), *(each.name for each in JARS.jars()))
    except ToolchainMissing as missing:
        sys.exit(str(missing))
