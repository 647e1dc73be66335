"""The Go drivers, built once: `go/` is one module, each `go/cmd/NAME` a client under test.

Owns: the programs in `.cache/go-drivers-DIGEST/`, named by the digest of their sources and of go.sum (which
pins every dependency by hash), their lock, and which Go is good enough. Invariant: the directory appears
whole or not at all. Other modules of this project are built the same way (`built`).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.targets import ROOT

_MODULE = Path(__file__).resolve().parent / "go"
_CACHE = ROOT / ".cache"
_BUILD_TIMEOUT_S = 900
_FLAGS = ("-mod=readonly", "-trimpath")
_ENVIRONMENT = {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
"""The same for each use of Go: with others it compiles its own library and all dependencies once more."""


@functools.cache
def go_command() -> str:
    """The path of `go`, new enough for go.mod, or ToolchainMissing."""
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise ToolchainMissing(f"go not found: install Go {_needed()} or newer")
    # asked inside the module, an older Go that may fetch a newer one (GOTOOLCHAIN) does so
    said = subprocess.run([found, "version"], cwd=_MODULE, capture_output=True, text=True, check=False)
    if said.returncode != 0 or go_version(said.stdout) < go_version(f"go{_needed()}"):
        text = (said.stdout + said.stderr).strip()[:200]
        raise ToolchainMissing(f"{found} is too old (Go {_needed()} or newer is needed): {text!r}")
    return found


def go_version(text: str) -> tuple[int, int]:
    """(1, 26) from `go version go1.26.8 linux/amd64`; (0, 0) when there is no version."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def module_version(path: str) -> str:
    """The version of a dependency as go.mod pins it."""
    found = re.search(rf"^\s*{re.escape(path)} v(\S+)", (_MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, f"{path} is not in go.mod"
    return found[1]


@functools.cache
def driver(name: str) -> Path:
    """The program of one driver; all are built when one is not there. ToolchainMissing without Go."""
    return built("go-drivers", _MODULE, "./cmd/...") / name


def built(kind: str, module: Path, packages: str) -> Path:
    """Where the programs of a module are, built when they are not there. ToolchainMissing without Go."""
    go_command()
    target = _CACHE / f"{kind}-{_digest(module)}"
    _CACHE.mkdir(exist_ok=True)
    with open(_CACHE / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build(target, module, packages)
    return target


def _needed() -> str:
    found = re.search(r"^go (\d+\.\d+)", (_MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def _digest(module: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*module.rglob("*.go"), module / "go.mod", module / "go.sum"]):
        digest.update(f"{path.relative_to(module)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _build(target: Path, module: Path, packages: str) -> None:
    """Build every program into `target`; caller holds the lock."""
    with tempfile.TemporaryDirectory(dir=_CACHE) as fresh:
        made = Path(fresh) / "made"
        made.mkdir()
        # neither the machine's paths nor its checkout belong in a program that is named by its sources
        command = [go_command(), "build", *_FLAGS, "-buildvcs=false", "-o", f"{made}/", packages]
        try:
            done = subprocess.run(
                command,
                cwd=module,
                env=os.environ | _ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise ToolchainMissing(f"go build took longer than {_BUILD_TIMEOUT_S} s") from late
        if done.returncode != 0:
            raise ToolchainMissing(f"go build failed:\n{done.stderr[-2000:]}")
        made.rename(target)


def complaints(module: Path) -> str:
    """What gofmt and go vet find wrong with a module. ToolchainMissing without Go."""
    go = go_command()
    gofmt = [str(Path(go).resolve().parent / "gofmt"), "-l", "."]
    unformatted = subprocess.run(gofmt, cwd=module, capture_output=True, text=True, check=True).stdout
    vet = [go, "vet", *_FLAGS, "./..."]
    environment = os.environ | _ENVIRONMENT
    vetted = subprocess.run(vet, cwd=module, env=environment, capture_output=True, text=True, check=False)
    return unformatted + (vetted.stderr or f"go vet: {vetted.returncode}" if vetted.returncode else "")


def build_tools(module: Path, into: Path) -> None:
    """Build a module's tools into a directory. ToolchainMissing; CalledProcessError when it fails."""
    command = [go_command(), "build", *_FLAGS, "-o", f"{into}{os.sep}", "tool"]
    environment = os.environ | _ENVIRONMENT
    subprocess.run(command, cwd=module, env=environment, check=True, timeout=_BUILD_TIMEOUT_S)
