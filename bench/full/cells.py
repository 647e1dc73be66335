"""Workloads as files, and their cells: one target at one point of the axes, on one number of nodes.

A file is one TOML document. Keys follow OpenMessaging Benchmark where it has one (messageSize, producerRate,
testDurationMinutes), in this project's spelling, and axes take several values where it would need several
files. Invariant: an unknown key, kind, axis or target is an error that names the file; nothing is ignored.

Owns: a cell's name, which is its file's, and its digest over its workload and target: a row whose digest is
another was measured for a workload that has changed since, and is measured again. What the code adds to a
workload (warm-up, bytes of a fan-out) is not in it: a change of those must raise `MEASURED_AS`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from bench.baselines.targets import TARGETS
from bench.settings import NODES

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
"""Fields of a workload that are in the cell itself, or for readers only."""


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


DIRECTORY: Final = Path(__file__).resolve().parent.parent / "workloads"

AXES: Final[Mapping[str, tuple[str, ...]]] = {
    "produce": ("partitions", "producers", "rate"),
    "drain": ("backlog_mb", "rate"),
    "fan_out": ("groups",),
    "idle": ("connections",),
    "start": ("backlog_mb",),
    "groups": (),
    "failover": (),
    "command": (),
}
"""The kinds of workload, and over what each is spread."""


class BadWorkload(ValueError):
    """A file that cannot be read as a workload; the text names it and what to change."""


@dataclass(frozen=True)
class Workload:
    """One file. Sizes in bytes, times in the unit of their name."""

    name: str
    about: str
    kind: str
    nodes: tuple[int, ...] = (1,)
    targets: tuple[str, ...] = ("lockstep", "kafka")
    axes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    message_bytes: int = 1024
    batch_bytes: int = 0
    """What a request carries at most; 0: one message each."""
    in_flight: int = 1
    """Unanswered requests of a producer at most."""
    minutes: float = 0.15
    """Of each timed block."""
    warmup_s: float = 1.0
    """Before it, in the same block; brokers are warmed up besides."""
    rounds: int = 2
    """Sessions of each broker; an even number is balanced (ABBA)."""
    command: tuple[str, ...] = ()
    """Of kind "command": the words after `python -m bench`, whose own result is kept."""

    @property
    def records(self) -> int:
        """Messages in a request."""
        return max(1, self.batch_bytes // self.message_bytes)

    @property
    def seconds(self) -> float:
        return self.minutes * 60


_TUPLES: Final = frozenset({"nodes", "targets", "command"})


def read(path: Path) -> Workload:
    """The workload in a file. Raises BadWorkload, OSError."""
    try:
        found = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadWorkload(f"{path.name}: no TOML: {error}") from error
    known = {each.name for each in fields(Workload)}
    if unknown := sorted(found.keys() - known):
        raise BadWorkload(f"{path.name}: unknown {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    if missing := sorted({"name", "about", "kind"} - found.keys()):
        raise BadWorkload(f"{path.name}: {', '.join(missing)} is missing")
    words: dict[str, Any] = {key: tuple(value) if key in _TUPLES else value for key, value in found.items()}
    words["axes"] = {axis: tuple(values) for axis, values in found.get("axes", {}).items()}
    workload = Workload(**words)
    _check(workload, path)
    return workload


def _check(workload: Workload, path: Path) -> None:
    def wrong(text: str) -> BadWorkload:
        return BadWorkload(f"{path.name}: {text}")

    if workload.name != path.stem:
        raise wrong(f"name is {workload.name!r}: it must be the file's, {path.stem!r}")
    if workload.kind not in AXES:
        raise wrong(f"kind is {workload.kind!r}: one of {', '.join(AXES)}")
    if set(workload.axes) != set(AXES[workload.kind]):
        raise wrong(f"[axes] must have {', '.join(AXES[workload.kind]) or 'nothing'}")
    if any(not values for values in workload.axes.values()):
        raise wrong("an axis without values: give it at least one")
    if unknown := sorted(set(workload.targets) - TARGETS.keys()):
        raise wrong(f"unknown targets {', '.join(unknown)}; known: {', '.join(TARGETS)}")
    if not set(workload.nodes) <= {1, NODES}:
        raise wrong(f"nodes is {list(workload.nodes)}: 1 and {NODES} can be measured")
    if workload.kind == "failover" and workload.nodes != (NODES,):
        raise wrong(f"a failover needs nodes = [{NODES}]")
    if (workload.kind == "command") != bool(workload.command):
        raise wrong('kind "command" and the key command go together')
    if workload.message_bytes < 1 or workload.in_flight < 1 or workload.rounds < 1 or workload.minutes <= 0:
        raise wrong("message_bytes, in_flight, rounds and minutes must be above 0")


def read_all(directory: Path = DIRECTORY) -> list[Workload]:
    """Every workload of a directory, by name. Raises BadWorkload."""
    return [read(path) for path in sorted(directory.glob("*.toml"))]
