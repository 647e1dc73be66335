"""Rows of the grid as `python -m bench full` keeps them, small ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_row(directory: Path, workload: str, target: str, nodes: int = 1, **more: Any) -> None:
    machine = {"processor": "P", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "vda"}}
    row = {
        "cell": f"{workload}/{nodes}n-{target}",
        "settings": {"kind": "produce", "minutes": 0.05, "message_bytes": 1024},
        "nodes": nodes,
        "target": target,
        "point": {"partitions": 16, "rate": 0},
        "started": "2026-01-01T00:00:00Z",
        "code": {"commit": "0123456789abcdef", "dirty": False},
        "machine": {**machine, "file_system": "e", "python": "3.11", "java": "17", "kafka": "4.3.1"},
        **more,
    }
    points = "".join(f"-{axis}{value}" for axis, value in more.get("point", {}).items())
    path = directory / workload / f"{nodes}n-{target}{points}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row))


def rounds(figure: str, *values: float, **more: Any) -> dict[str, Any]:
    """What a row keeps of proven rounds with this figure: the median, and each."""
    middle = sorted(values)[len(values) // 2] if len(values) % 2 else sum(sorted(values)[:2]) / 2
    blocks = [{"proven": True, "figures": {figure: value, **more}} for value in values]
    return {"medians": {figure: middle, **more}, "rounds": blocks}
