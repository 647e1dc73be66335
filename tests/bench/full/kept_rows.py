"""Rows of the grid as `python -m bench full` keeps them, small ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.bench.outcomes import FACTS


def write_row(directory: Path, workload: str, target: str, nodes: int = 1, **more: Any) -> None:
    row = {
        "cell": f"{workload}/{nodes}n-{target}",
        "settings": {"kind": "produce", "minutes": 0.05, "message_bytes": 1024},
        "nodes": nodes,
        "target": target,
        "point": {"partitions": 16, "rate": 0},
        **FACTS,
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
