"""The targets of each record by a player's configuration: for audits, which trust no player.

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

from lockstep.protocol.partitioner import partition_of
from lockstep.protocol.records.record import Headers, Record
from spark_connector.pipelines.failures import PipelineFailed

TARGETS_HEADER: Final = "lockstep-targets"

Choice = Mapping[str, bytes | None]
"""The value of one record for each of its targets."""


@dataclass(frozen=True)
class RouteConfig:
    """The routing of a topic in a player's file; safe to send to executors."""

    topic: str
    partitions: tuple[int, ...] | None
    first: tuple[tuple[str, int | str], ...]
    """Each target with its beginning: an offset, earliest or latest."""
    by: str
    names: tuple[str, ...] = ()
    """For `key` and `all` the targets, in order; for `header` those of records without one."""
    without_key: tuple[str, ...] = ()
    header: str = TARGETS_HEADER
    """For `header` the name of the header that lists the targets."""
    function: str = ""
    directory: str = ""
    """A folder of the function's module, beside Python's own path."""
    bootstrap: str | None = None
    """The brokers that the file names."""

    @property
    def targets(self) -> list[str]:
        return [name for name, _ in self.first]


def read(path: Path) -> RouteConfig:
    """Reads a player's TOML file; `lockstep player run` reports more of its mistakes. PipelineFailed."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return _parse(document, path.resolve().parent)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineFailed(f"--player {path}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise PipelineFailed(
            f"--player {path} is no player's file: {error} is missing or not of its kind"
        ) from None


def _parse(document: Mapping[str, Any], directory: Path) -> RouteConfig:
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
    return RouteConfig(
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


class TargetRouter:
    """Chooses the targets of each record, in one process."""

    def __init__(self, route_config: RouteConfig) -> None:
        """PipelineFailed for a missing function."""
        self._route_config = route_config
        self._function = _function(route_config) if route_config.by == "function" else None
        self._slots: dict[bytes, str] = {}

    def __call__(self, record: Record) -> Choice:
        """The targets of a record, each with its value. PipelineFailed."""
        if self._function is not None:
            return self._by_function(record)
        return {name: record.value for name in self._names(record)}

    def _names(self, record: Record) -> Sequence[str]:
        route_config = self._route_config
        if route_config.by == "all":
            return route_config.names
        if route_config.by == "header":
            return _targets_in_headers(record.headers, route_config.header, route_config.names)
        if record.key is None:
            return route_config.without_key
        slot = self._slots.get(record.key)
        if slot is None:
            slot = self._slots[record.key] = route_config.names[
                partition_of(record.key, len(route_config.names))
            ]
        return (slot,)

    def _by_function(self, record: Record) -> Choice:
        assert self._function is not None
        try:
            chosen = self._function(record)
        except Exception as error:
            raise PipelineFailed(
                f"{self._route_config.function} failed for the record at {record.offset}: {error!r}"
            ) from error
        if isinstance(chosen, dict):
            return chosen
        return {name: record.value for name in chosen}


def _targets_in_headers(headers: Headers, header: str, otherwise: Sequence[str]) -> list[str]:
    values = [value or b"" for name, value in headers if name == header]
    if not values:
        return list(otherwise)
    texts = b",".join(values).decode("utf-8", "replace").split(",")
    return list(dict.fromkeys(name for each in texts if (name := each.strip())))


def _function(route_config: RouteConfig) -> Any:
    module, _, path = route_config.function.partition(":")
    if route_config.directory not in sys.path:
        sys.path.insert(0, route_config.directory)
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise PipelineFailed(f"route.function: {route_config.function} cannot be imported: {error}") from None
    return found
