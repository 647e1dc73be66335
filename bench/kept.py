"""Where results are kept: one JSON file per run, named by time, kind and sides."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from bench.progress import say
from compat_tests.targets import ROOT

LOCAL_RESULTS = ROOT / "bench" / "results" / "local"
"""Not in the repository; a result that is to stay is kept with `--out bench/results`."""


def keep(result: dict[str, Any], directory: Path, name: str) -> Path:
    """Write the result, and say where; its path."""
    directory.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    path = directory / f"{stamp}-{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    say(f"kept: {os.path.relpath(path)}")
    return path
