"""Small results of the grid, of ratios and of the log store, for tests of the pages."""

from __future__ import annotations

from typing import Any

from bench.full.lookup import Grid
from bench.kinds.headline import RATIOS


def logstore_run(experiment: str, payload_bytes: int, naive: bool = False, **figures: Any) -> dict[str, Any]:
    store = {"flush": True, "naive": naive, "replicas": 3, "depth": None, "loss": 0.0}
    load = {"payload_bytes": payload_bytes, "batch": 32, "rate": 1000.0}
    return {"experiment": experiment, "store": store, "load": load, "figures": figures}


def grid_row(target: str, workload: str = "requests-1kb", nodes: int = 1, **more: Any) -> dict[str, Any]:
    point = {"partitions": 16, "producers": 16, "rate": 0}
    settings = {"kind": "produce", "message_bytes": 1024, "minutes": 0.1}
    cell = {"workload": workload, "cell": f"{workload}/{nodes}n-{target}", "nodes": nodes, "target": target}
    return {**cell, "point": point, "settings": settings, **more}


def grid_of(*rows: dict[str, Any]) -> Grid:
    return Grid({"rows": list(rows)})


def ratio_row(name: str, value: float, **more: Any) -> dict[str, Any]:
    title, unit = RATIOS[name].title, RATIOS[name].unit
    sides = {"subject": value, "baseline": 1.0, "subject_values": [value], "baseline_values": [1.0]}
    return {"ratio": name, "title": title, "unit": unit, "value": value, **sides, **more}


def cells_by_title(table: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line]
    return {row[0]: row[1:] for row in rows}
