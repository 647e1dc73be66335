"""Workloads as files: what is sent, to whom, for how long. Reads and checks; measures nothing.

A file is one TOML document. Keys follow OpenMessaging Benchmark where it has one (messageSize,
producersPerTopic, partitionsPerTopic, producerRate, consumerBacklogSizeGB, testDurationMinutes), in this
project's spelling, and axes take several values where it would need several files. Invariant: an unknown
key, kind, axis or target is an error that names the file; nothing is ignored.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from bench.baselines.targets import TARGETS
from bench.sessions.cluster import NODES

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
    """A file that cannot be read as a workload; the text names it and says what to change."""


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
