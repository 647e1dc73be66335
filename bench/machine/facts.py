"""The facts about the machine and the code behind a result.

Owns: machine, kernel, disk, runtime versions and commit, and whether these are still the ones at a run's end.
Names no path: results are kept in the repository.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from bench.machine.device import device_of, queue_facts
from compat_tests.kafka_jars import KAFKA_VERSION, ToolchainMissing, java_command
from compat_tests.targets import ROOT
from lockstep import extension, native

_PACKAGES = ("uvloop", "crc32c", "cramjam", "confluent-kafka")


def _command_output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return (done.stdout or done.stderr).strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _java() -> str:
    """Its own word for its version; "none" where there is none, which not everything here needs."""
    try:
        return _command_output(java_command(), "-version").splitlines()[0]
    except ToolchainMissing:
        return "none"


def _file_system(directory: Path) -> str:
    """The type of the file system that holds `directory`: its longest mount point."""
    held = [
        (len(part.mountpoint), part.fstype)
        for part in psutil.disk_partitions(all=True)
        if directory.resolve().is_relative_to(part.mountpoint)
    ]
    return max(held)[1] if held else "unknown"


def machine_facts(directory: Path) -> dict[str, Any]:
    """Everything about the machine that the figures depend on."""
    return {
        "processor": _processor(),
        "cpus": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "disk": queue_facts(device_of(directory)),
        "file_system": _file_system(directory),
        "python": _command_output(sys.executable, "requirements/interpreter.py"),
        "java": _java(),
        "kafka": KAFKA_VERSION,
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "load_average_before": [round(value, 2) for value in psutil.getloadavg()],
    }


_SOURCES = ("broker", "storage", "protocol", "lockstep", "player", "spark_connector", "bench", "compat_tests")
_BUT_RESULTS = (".", ":(exclude)bench/results")
"""Of git's words: what a run keeps is no change of what is measured."""


def sources() -> str:
    """A digest of what is started in a run, each session anew: committed modules, and changes to them."""
    committed = _command_output("git", "ls-tree", "-r", "HEAD", "--", *_SOURCES).splitlines()
    modules = [line for line in committed if line.endswith(".py")]
    changed = _command_output("git", "diff", "HEAD", "--", *(f"{name}/*.py" for name in _SOURCES))
    return hashlib.sha256("\n".join([*modules, changed]).encode()).hexdigest()[:16]


def code_facts() -> dict[str, Any]:
    """The commit measured, whether the tree differed from it in more than results, `native` where the modules
    that `make native` compiled are used, and whether the `produce_path` is compiled."""
    facts: dict[str, Any] = {
        "commit": _command_output("git", "rev-parse", "HEAD"),
        "dirty": bool(
            _command_output("git", "status", "--porcelain", "--untracked-files=no", "--", *_BUT_RESULTS)
        ),
        "produce_path": extension.load()[1],
    }
    if os.environ.get(native.VARIABLE) == "1":
        facts["native"] = True
    return facts


class Origin:
    """The machine and the sources of a run, printed before the first measurement. Args: directory: the
    brokers' data.

    Raises NoBlockDevice where nothing can be measured there.
    """

    def __init__(self, directory: Path) -> None:
        self.facts: dict[str, Any] = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "code": code_facts(),
            "machine": machine_facts(directory),
        }
        """As every result keeps them."""
        self._sources = sources()

    def problems(self) -> list[str]:
        """The faults of the measurements since: they are not of these sources."""
        changed = sources() != self._sources
        return ["the sources changed while it ran: it is not of one commit"] if changed else []
