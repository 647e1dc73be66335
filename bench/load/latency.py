"""Latencies: their quantiles, and all of them in a file."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

from bench.load.wire import UnexpectedResponse


def quantiles(latencies_ns: array[int]) -> dict[str, float]:
    """Nearest-rank percentiles in milliseconds."""
    ordered = sorted(latencies_ns)
    if not ordered:
        raise UnexpectedResponse("no request got a response")
    last = len(ordered) - 1
    picks = {"p50_ms": 0.50, "p90_ms": 0.90, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    out = {name: ordered[min(last, int(share * len(ordered)))] / 1e6 for name, share in picks.items()}
    out["mean_ms"] = sum(ordered) / len(ordered) / 1e6
    return out


def keep(job: dict[str, Any], latencies_ns: array[int]) -> None:
    """Leave all of them, int64, in the file that the job names as `keep`, if any; after the timed loop."""
    if job.get("keep"):
        Path(job["keep"]).write_bytes(latencies_ns.tobytes())
