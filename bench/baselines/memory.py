"""Two brokers that keep everything in memory, as upper bounds that the protocol and a client allow.

Owns: how each program is built and found, and its process. Neither keeps records after its end, neither
flushes, and their figures are no comparison of durable brokers. A missing one is named (`ToolchainMissing`),
never replaced.

- tansu 0.6.0, a broker in Rust: `cargo install` of the pinned version with its own lock file and feature
  `dynostore`, into `.cache/tansu-0.6.0/`; storage engine memory://tansu/.
- kfake of franz-go, a fake cluster in Go: `kfake/` beside this file is a main function around it; go.sum
  pins it.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Final

from compat_tests.go_driver import built
from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.probe import HOST
from compat_tests.targets import ROOT, Target

TANSU_VERSION: Final = "0.6.0"
TANSU_BUILD_S: Final = 3 * 3600.0
"""Several hundred crates; tens of minutes on two cores."""
_KFAKE_MODULE: Final = Path(__file__).resolve().parent / "kfake"
_TANSU_ROOT: Final = ROOT / ".cache" / f"tansu-{TANSU_VERSION}"


def tansu_program() -> Path:
    """The path of the built program. ToolchainMissing without one: it is never built on the way."""
    program = _TANSU_ROOT / "bin" / "tansu"
    if not program.exists():
        raise ToolchainMissing("tansu is not built: python -m bench baselines --build tansu (needs cargo)")
    return program


def build_tansu() -> Path:
    """Build the pinned version if it is not there; its program. ToolchainMissing."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise ToolchainMissing("cargo not found: install Rust to build tansu")
    _TANSU_ROOT.parent.mkdir(exist_ok=True)
    with open(_TANSU_ROOT.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [cargo, "install", "tansu", "--version", TANSU_VERSION, "--locked"]
        command += ["--no-default-features", "--features", "dynostore", "--root", str(_TANSU_ROOT)]
        done = subprocess.run(command, check=False, timeout=TANSU_BUILD_S)
    if done.returncode != 0:
        raise ToolchainMissing(f"cargo install tansu {TANSU_VERSION} failed; its output is above")
    return tansu_program()


def kfake_program() -> Path:
    """Built when it is not there, which takes seconds. ToolchainMissing without Go."""
    return built("kfake", _KFAKE_MODULE, ".") / "kfake"


class TansuTarget(Target):
    """tansu with its storage in memory."""

    name = "tansu"

    def _command(self) -> list[str]:
        at = f"tcp://{HOST}:{self.port}"
        listeners = ["--listener-url", at, "--advertised-listener-url", at]
        return [str(tansu_program()), *listeners, "--storage-engine", "memory://tansu/", "--silent"]


class KfakeTarget(Target):
    """One broker of franz-go's fake cluster."""

    name = "kfake"

    def _command(self) -> list[str]:
        return [str(kfake_program()), str(self.port)]


def tansu(directory: Path) -> Target:
    """Not started yet."""
    return TansuTarget(directory=directory)


def kfake(directory: Path) -> Target:
    """Not started yet."""
    return KfakeTarget(directory=directory)
