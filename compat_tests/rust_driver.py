"""The Rust driver, built once: `rust/` is one program with rskafka in it.

Owns: the program in `.cache/rskafka-driver-DIGEST/`, named by the digest of its sources and of pinned.lock
(every dependency with its version and hash), its lock, and which Cargo is new enough. Invariant: the
directory appears whole or not at all. pinned.lock is a Cargo.lock without its `source` lines: these name the
machine's registry or mirror and are filled in at build time. `python -m compat_tests.rust_driver` renews it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.line_driver import LineDriver
from compat_tests.targets import ROOT

_CRATE = Path(__file__).resolve().parent / "rust"
_PINNED = _CRATE / "pinned.lock"
_PINNED_HEAD = (
    "# Cargo.lock without its sources, as python -m compat_tests.rust_driver writes it;"
    " with them it is the one that Cargo checks.\n"
)
_CACHE = ROOT / ".cache"
_NAME = "rskafka-driver"
_BUILD_TIMEOUT_S = 1800  # a minute on two idle cores, ten on two with twenty processes that wait for them


def rskafka_driver() -> LineDriver:
    """A process with rskafka, for any broker; built when it is not there. ToolchainMissing."""
    return LineDriver([str(_built() / _NAME)])


def rskafka_version() -> str:
    """The version that pinned.lock has."""
    found = re.search(r'name = "rskafka"\nversion = "(.+)"', _PINNED.read_text())
    assert found is not None
    return found[1]


def cargo_release(text: str) -> tuple[int, int]:
    """(1, 85) from `cargo 1.85.0 (d73d2caf9 2024-12-31)`; (0, 0) when there is no version."""
    found = re.match(r"cargo (\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _cargo() -> str:
    """The path of `cargo`, new enough for Cargo.toml. ToolchainMissing."""
    found = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    needed = re.search(r'^rust-version = "(\d+)\.(\d+)"', (_CRATE / "Cargo.toml").read_text(), re.MULTILINE)
    assert needed is not None
    wanted = (int(needed[1]), int(needed[2]))
    if found is None:
        raise ToolchainMissing(f"cargo not found: install Rust {wanted[0]}.{wanted[1]} or newer")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    if cargo_release(said.stdout) < wanted:
        text = (said.stdout + said.stderr).strip()[:200]
        raise ToolchainMissing(
            f"{found} is too old (Rust {wanted[0]}.{wanted[1]} or newer is needed): {text!r}"
        )
    return found


def _built() -> Path:
    cargo = _cargo()
    digest = hashlib.sha256()
    for path in (*sorted((_CRATE / "src").glob("*.rs")), _CRATE / "Cargo.toml", _PINNED):
        digest.update(path.read_bytes())
    target = _CACHE / f"{_NAME}-{digest.hexdigest()[:16]}"
    _CACHE.mkdir(exist_ok=True)
    with open(_CACHE / f"{_NAME}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build(cargo, target)
    return target


def with_sources(pinned: str, source: str) -> str:
    """The Cargo.lock of a pinned.lock: each package with a checksum comes from `source`."""
    return re.sub(r"^(?=checksum = )", f'source = "{source}"\n', pinned, flags=re.MULTILINE)


def without_sources(lock: str, source: str) -> str:
    """The pinned.lock of a Cargo.lock; all of its packages come from `source`. ValueError."""
    found = lock.replace(f'source = "{source}"\n', "")
    if with_sources(found, source) != lock:
        raise ValueError("Cargo.lock names packages of several registries")
    return re.sub(r"\A(#.*\n)*", _PINNED_HEAD, found)


def _registry(cargo: str, crate: Path) -> str:
    """What this Cargo writes as the source of a package of its default registry; asks no network."""
    asked = [cargo, "metadata", "--no-deps", "--offline", "--format-version", "1"]
    said = subprocess.run(asked, cwd=crate, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise ToolchainMissing(f"cargo metadata failed:\n{said.stderr[-2000:]}")
    (package,) = json.loads(said.stdout)["packages"]
    (found,) = {each["source"] for each in package["dependencies"]}
    return str(found)


def _build(cargo: str, target: Path) -> None:
    """Build the program into `target`; caller holds the lock."""
    with tempfile.TemporaryDirectory(dir=_CACHE) as fresh:
        crate = Path(fresh) / "crate"
        shutil.copytree(_CRATE, crate, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
        (crate / "Cargo.lock").write_text(with_sources(_PINNED.read_text(), _registry(cargo, crate)))
        try:
            done = subprocess.run(
                [cargo, "build", "--quiet", "--locked", "--target-dir", fresh],
                cwd=crate,
                capture_output=True,
                text=True,
                timeout=_BUILD_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise ToolchainMissing(f"cargo build took longer than {_BUILD_TIMEOUT_S} s") from late
        if done.returncode != 0:
            raise ToolchainMissing(f"cargo build failed:\n{done.stderr[-2000:]}")
        made = Path(fresh) / "made"
        made.mkdir()
        (Path(fresh) / "debug" / _NAME).rename(made / _NAME)
        made.rename(target)


def _pin() -> None:
    """Write pinned.lock for Cargo.toml with the newest versions that it and its `rust-version` allow."""
    cargo = _cargo()
    with tempfile.TemporaryDirectory() as fresh:
        crate = Path(fresh) / "crate"
        shutil.copytree(_CRATE, crate, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
        subprocess.run([cargo, "generate-lockfile"], cwd=crate, check=True)
        lock = (crate / "Cargo.lock").read_text()
        _PINNED.write_text(without_sources(lock, _registry(cargo, crate)))


if __name__ == "__main__":
    try:
        _pin()
    except ToolchainMissing as missing:
        sys.exit(str(missing))
