"""The Node side: installs what `node/package-lock.json` pins, once, and starts a driver there.

Owns: `.cache/node-drivers-DIGEST/`, named by the digest of the sources and the lock file, its stamp and its
lock. npm checks the lock file's hashes and runs no package's scripts. `installed()` is idempotent and may be
called by several processes at once; the stamp is written last.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from compat_tests.kafka_jars import ToolchainMissing
from compat_tests.line_driver import LineDriver

NODE_MINIMUM = (20, 19)

_SOURCE = Path(__file__).resolve().parent / "node"
_CACHE = Path(__file__).resolve().parent.parent / ".cache"
_NPM_TIMEOUT_S = 600


@functools.cache
def node_command() -> str:
    """The path of `node`, new enough, or ToolchainMissing."""
    found = shutil.which("node")
    wanted = ".".join(map(str, NODE_MINIMUM))
    if found is None:
        raise ToolchainMissing(f"node not found: install Node.js {wanted} or newer, with npm")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    numbers = tuple(int(each) for each in said.removeprefix("v").split(".")[:2] if each.isdigit())
    if numbers < NODE_MINIMUM:
        raise ToolchainMissing(f"{found} is too old (Node.js {wanted} or newer is needed): {said!r}")
    return found


def locked_version(package: str) -> str:
    """The version that the lock file pins. ToolchainMissing without Node."""
    node_command()
    lock = json.loads((_SOURCE / "package-lock.json").read_text())
    return str(lock["packages"][f"node_modules/{package}"]["version"])


@functools.cache
def installed() -> Path:
    """The directory of the drivers and their packages; npm runs when it is not there. ToolchainMissing."""
    sources = sorted(each for each in _SOURCE.iterdir() if each.is_file())
    digest = hashlib.sha256(b"".join(each.name.encode() + each.read_bytes() for each in sources))
    directory = _CACHE / f"node-drivers-{digest.hexdigest()[:16]}"
    stamp = directory / ".stamp"
    node_command()
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "node-drivers.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.is_file():
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir()
            for each in sources:
                shutil.copyfile(each, directory / each.name)
            _install(directory)
            stamp.touch()
    return directory


def _install(directory: Path) -> None:
    """`npm ci`; the caller holds the lock."""
    npm = shutil.which("npm")
    if npm is None:
        raise ToolchainMissing("npm not found: install it with Node.js")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    environment = {**os.environ, "npm_config_update_notifier": "false"}
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_NPM_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise ToolchainMissing(f"npm took longer than {_NPM_TIMEOUT_S} s") from late
    if done.returncode != 0:
        raise ToolchainMissing(f"npm could not install the Node clients:\n{done.stderr[-2000:]}")


def node_driver(script: str) -> LineDriver:
    """Start a driver, e.g. "kafkajs.mjs". ToolchainMissing."""
    directory = installed()
    return LineDriver([node_command(), str(directory / script)], directory)
