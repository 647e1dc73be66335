"""The target in Go, `player/target/go/`: its program, and its generated code.

Owns: how the one is built (as the drivers are), and the other made: by the protoc of grpcio-tools, with the
plugins that the module's go.mod pins as tools. `python -m compat_tests.go_target` makes it again.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from compat_tests.go_driver import build_tools, built
from compat_tests.targets import ROOT

MODULE = ROOT / "player" / "target" / "go"
GENERATED = MODULE / "playerv1"
_PROTO = ROOT / "player" / "player.proto"
_PACKAGE = "lockstep/target/playerv1"
_TIMEOUT_S = 600


def program() -> Path:
    """The target, built when it is not there. ToolchainMissing without Go."""
    return built("go-target", MODULE, ".") / "target"


def generate(into: Path) -> None:
    """Write what GENERATED holds. ToolchainMissing; CalledProcessError when a tool fails."""
    with tempfile.TemporaryDirectory() as tools:
        build_tools(MODULE, Path(tools))
        options = [f"--plugin={plugin}" for plugin in sorted(Path(tools).iterdir())]
        for language in ("go", "go-grpc"):
            options.append(f"--{language}_out={into}")
            options.append(f"--{language}_opt=paths=source_relative,M{_PROTO.name}={_PACKAGE}")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{_PROTO.parent}", *options, _PROTO.name]
        subprocess.run(command, check=True, timeout=_TIMEOUT_S)


if __name__ == "__main__":
    generate(GENERATED)
