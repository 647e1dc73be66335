"""Whose is which record, as a player's configuration says: for audits, which trust no player.

Owns: reading `[route]`, the targets' names and their `first` from the file, and the four ways to choose. It
is written from docs/player.md and shares no code with the player, so that a mistake there is found here.
Pure, but that a routing function is imported.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from protocol.partitioner import partition_of
from protocol.records.record import Headers, Record
from spark_connector.pipelines.failures import PipelineFailed

TARGETS_HEADER: Final = "lockstep-targets"

Choice = Mapping[str, bytes | None]
"""What each target gets as the value of one record."""


@dataclass(frozen=True)
class Played:
    """What a player's file says of a topic; safe to send to executors."""

    topic: str
    partitions: tuple[int, ...] | None
    first: tuple[tuple[str, int | str], ...]
    """Each target, and where it begins: an offset, earliest or latest."""
    by: str
    names: tuple[str, ...] = ()
    """Of `key` and `all`: the targets, in order; of `header`: those of records without one."""
    without_key: tuple[str, ...] = ()
    header: str = TARGETS_HEADER
    """Of `header`: which one names the targets."""
    function: str = ""
    directory: str = ""
    """Where the function's module may be, beside the places where Python looks."""
    bootstrap: str | None = None
    """The brokers that the file names."""

    @property
    def targets(self) -> list[str]:
        return [name for name, _ in self.first]


def read(path: Path) -> Played:
    """From a player's TOML file; `lockstep player run` says more about mistakes in it. PipelineFailed."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return _played(document, path.resolve().parent)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineFailed(f"--player {path}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise PipelineFailed(
            f"--player {path} is no player's file: {error} is missing or not of its kind"
        ) from None


def _played(document: Mapping[str, Any], directory: Path) -> Played:
    targets = document["targets"]
    route = document["route"]
    by = route["by"]
    if by not in ("header", "key", "function", "all"):
        raise PipelineFailed(f"route.by: {by!r} is none of header, key, function, all")
    default = list(targets) if by == "all" else []
    names = route.get("otherwise", []) if by == "header" else route.get("targets", default)
    if by == "key" and not names:
        raise PipelineFailed("route.targets: keys are spread over at least one target")
    partitions = document.get("partitions")
    order = document.get("order", "partition")
    if order != "partition":
        raise PipelineFailed(
            f"order: marks in the order of a {order} have no offsets to compare; its shards can audit "
            "themselves (python -m lockstep.demo.shard --audit)"
        )
    return Played(
        document["topic"],
        None if partitions is None else tuple(partitions),
        tuple((name, table.get("first", "earliest")) for name, table in targets.items()),
        by,
        tuple(names),
        tuple(route.get("without_key", ())),
        route.get("header", TARGETS_HEADER),
        route["function"] if by == "function" else "",
        str(directory),
        document.get("bootstrap"),
    )


class Router:
    """Chooses, record by record; of one process."""

    def __init__(self, played: Played) -> None:
        """PipelineFailed for a function that is not there."""
        self._played = played
        self._function = _function(played) if played.by == "function" else None
        self._slots: dict[bytes, str] = {}

    def __call__(self, record: Record) -> Choice:
        """The targets of a record, each with the value that it gets. PipelineFailed."""
        if self._function is not None:
            return self._by_function(record)
        return {name: record.value for name in self._names(record)}

    def _names(self, record: Record) -> Sequence[str]:
        played = self._played
        if played.by == "all":
            return played.names
        if played.by == "header":
            return _named(record.headers, played.header, played.names)
        if record.key is None:
            return played.without_key
        slot = self._slots.get(record.key)
        if slot is None:
            slot = self._slots[record.key] = played.names[partition_of(record.key, len(played.names))]
        return (slot,)

    def _by_function(self, record: Record) -> Choice:
        assert self._function is not None
        try:
            chosen = self._function(record)
        except Exception as error:
            raise PipelineFailed(
                f"{self._played.function} failed for the record at {record.offset}: {error!r}"
            ) from error
        if isinstance(chosen, dict):
            return chosen
        return {name: record.value for name in chosen}


def _named(headers: Headers, wanted: str, otherwise: Sequence[str]) -> list[str]:
    said = [value or b"" for name, value in headers if name == wanted]
    if not said:
        return list(otherwise)
    texts = b",".join(said).decode("utf-8", "replace").split(",")
    return list(dict.fromkeys(name for each in texts if (name := each.strip())))


def _function(played: Played) -> Any:
    module, _, path = played.function.partition(":")
    if played.directory not in sys.path:
        sys.path.insert(0, played.directory)
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise PipelineFailed(f"route.function: {played.function} cannot be had: {error}") from None
    return found
