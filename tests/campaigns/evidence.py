"""docs/evidence/*.json: what a campaign measured, on which code and machine, added run by run.

Owns: the file's shape `{"campaign", "runs": [...]}`. A run names the commit, a digest of the product's
source (so that a change of documents does not void a count), the seed, facts of the machine and figures.
The file is replaced atomically, so an interrupted campaign keeps what it had.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
EVIDENCE = ROOT / "docs" / "evidence"
PRODUCT = ("broker", "lockstep", "protocol", "storage")
WITH_PLAYER = (*PRODUCT, "player")
"""For campaigns that run the player; others outlast its changes."""


def source_digest(root: Path = ROOT, packages: Sequence[str] = PRODUCT) -> str:
    """12 hex digits over the product packages' Python files."""
    digest = hashlib.sha256()
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def commit(root: Path = ROOT, packages: Sequence[str] = PRODUCT) -> str:
    """The commit checked out, with "+changes" when the product differs from it."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, check=True
        )
        changed = subprocess.run(
            ["git", "status", "--porcelain", *packages], cwd=root, capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.decode().strip() + ("+changes" if changed.stdout.strip() else "")


def machine() -> dict[str, Any]:
    """What a reader needs to compare figures."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpus": os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def load_runs(name: str, directory: Path = EVIDENCE) -> list[dict[str, Any]]:
    """The runs recorded so far; empty when there is no file."""
    path = directory / f"{name}.json"
    if not path.exists():
        return []
    runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"]
    return runs


def add_run(
    name: str, figures: dict[str, Any], directory: Path = EVIDENCE, packages: Sequence[str] = PRODUCT
) -> Path:
    """Adds one run; returns the file."""
    return OpenRun(name, directory, packages).save(figures)


class OpenRun:
    """One run that is recorded again and again while it goes on, so that an interrupted one can be resumed.

    Commit and source are those at its begin; `save` puts the figures so far in the place of the last ones, or
    of `former`, the run that this one continues.
    """

    def __init__(
        self,
        name: str,
        directory: Path = EVIDENCE,
        packages: Sequence[str] = PRODUCT,
        former: dict[str, Any] | None = None,
    ) -> None:
        self._name = name
        self._path = directory / f"{name}.json"
        self._facts = {
            "commit": commit(packages=packages),
            "source": source_digest(packages=packages),
            "machine": machine(),
        }
        self._saved = former

    def save(self, figures: dict[str, Any]) -> Path:
        """Records the figures; returns the file."""
        finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        run = json.loads(json.dumps({"finished": finished, **self._facts, **figures}))
        directory = self._path.parent
        directory.mkdir(parents=True, exist_ok=True)
        others = [each for each in load_runs(self._name, directory) if each != self._saved]
        document = {"campaign": self._name, "runs": [*others, run]}
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=1) + "\n")
        os.replace(temporary, self._path)
        self._saved = run
        return self._path


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p99 and maximum of some seconds, in milliseconds; empty for none."""
    if not values:
        return {}
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 1)

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": round(ordered[-1] * 1000, 1)}
