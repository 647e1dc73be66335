"""Kept results: JSON files, written whole or not at all, and read with a word where they are none.

`keep` names a run's file by its time.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from bench.exit_status import log_progress
from compat_tests.targets import ROOT

LOCAL_RESULTS = ROOT / "bench" / "results" / "local"
"""Not in the repository; a result that is to stay is kept with `--out bench/results`."""


class Unreadable(ValueError):
    """A file that is no kept result, or none of what is read for."""


def write(path: Path, data: str | bytes) -> None:
    """The file whole, in the place of what was there; where that fails (OSError) all is as before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        fresh.write_bytes(data.encode() if isinstance(data, str) else data)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def read(path: Path, *names: str) -> dict[str, Any]:
    """The JSON object in a file, which has these names. Unreadable, OSError."""
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise Unreadable(f"{path} is no kept result: {error}") from error
    missing = [name for name in names if not isinstance(found, dict) or name not in found]
    if missing or not isinstance(found, dict):
        raise Unreadable(f"{path} is no kept result: missing are {', '.join(missing) or 'everything'}")
    return found


def keep(result: dict[str, Any], directory: Path, name: str) -> Path:
    """Write the result, and print its path, which is returned."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    names = (f"{stamp}{f'.{number}' if number else ''}-{name}.json" for number in itertools.count())
    path = next(directory / each for each in names if not (directory / each).exists())
    write(path, json.dumps(result, indent=1) + "\n")
    log_progress(f"kept: {os.path.relpath(path)}")
    return path
