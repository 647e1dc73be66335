"""Cells: one target at one point of a workload's axes, on one number of nodes. Pure.

Owns: a cell's name, which is its file's, and its digest over its workload and target: a row whose digest is
another was measured for a workload that has changed since, and is measured again. What the code adds to a
workload (warm-up, bytes of a fan-out) is not in it: whoever changes that raises `MEASURED_AS`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from bench.baselines.targets import TARGETS
from bench.full.workloads import AXES, Workload

MEASURED_AS: Final = {
    "produce": 2,
    "produce, batches": 3,
    "drain": 2,
    "fan_out": 2,
    "idle": 2,
    "start": 1,
    "groups": 2,
    "failover": 1,
}
"""By kind: raised when its blocks are measured in another way, so that its rows are measured again."""
_ELSEWHERE = frozenset({"about", "axes", "nodes", "targets"})
"""Of a workload: what is in the cell itself, or only said to people."""


@dataclass(frozen=True)
class Cell:
    """The subject of one row."""

    workload: Workload
    nodes: int
    target: str
    point: tuple[tuple[str, int], ...]
    """Axis and value, in the kind's order."""

    @property
    def name(self) -> str:
        words = [f"{axis}{value}" for axis, value in self.point]
        return "-".join((f"{self.nodes}n", self.target, *words))

    @property
    def at(self) -> dict[str, int]:
        return dict(self.point)

    @property
    def digest(self) -> str:
        """16 hex digits of what defines this cell."""
        return hashlib.sha256(json.dumps(self.definition(), sort_keys=True).encode()).hexdigest()[:16]

    def definition(self) -> dict[str, Any]:
        """The definition that the row keeps."""
        settings = {key: value for key, value in asdict(self.workload).items() if key not in _ELSEWHERE}
        found = {"settings": settings, "nodes": self.nodes, "target": self.target, "point": self.at}
        if self.workload.kind == "command":
            return found
        broker = TARGETS[self.target]
        made = {"broker": {"settings": broker.settings, "heap": broker.heap}}
        how = "produce, batches" if self.workload.batch_bytes and self.workload.kind == "produce" else ""
        return found | made | {"measured_as": MEASURED_AS[how or self.workload.kind]}

    def __str__(self) -> str:
        return f"{self.workload.name}/{self.name}"


def cells_of(workload: Workload, nodes: int) -> list[Cell]:
    """All cells of one visit, targets outermost; those a target cannot have on so many nodes are none."""
    if workload.kind == "command":
        return [Cell(workload, nodes, workload.command[0], ())]
    axes = AXES[workload.kind]
    points = itertools.product(*(workload.axes[axis] for axis in axes))
    return [
        Cell(workload, nodes, target, tuple(zip(axes, values, strict=True)))
        for target, values in itertools.product(workload.targets, points)
        if nodes in TARGETS[target].nodes
    ]
