"""A stopped broker's data directory: its log groups, and what their partitions are called.

Owns: finding the log groups, refusing a directory that a broker is running on, and the names of topics and
partitions, as far as the logs still have them.
Does not: read or verify a log; that is `lockstep.storage.log.inspect`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.protocol.records.batch import MalformedBatch
from lockstep.storage.control_partition import ControlPartition
from lockstep.storage.log.format import payload_views
from lockstep.storage.log.inspect import NoLog, verify
from lockstep.storage.log.segment_scan import ScannedFrame
from lockstep.storage.log.state_file import STATE_NAME
from lockstep.storage.types import CONTROL_PARTITION, NOTES_PARTITION, Buffer, Checkpoint, StorageError

GROUPS = "groups"
LOCK = ".lock"
NODE_PREFIX = "node-"
"""The prefix of a node's directory name with `lockstep serve --processes`."""


def groups_of(directory: Path) -> list[tuple[int, Path]]:
    """(group id, directory) of each log group of a data directory, or of the one that `directory` is.

    Raises NoLog where there is none or a broker is running on it.
    """
    directory = Path(os.path.abspath(directory))  # what is above a group's own is looked at, too
    if not directory.is_dir():
        raise NoLog(
            f"{directory} is a file, not a directory"
            if directory.exists()
            else f"there is no directory {directory}"
        )
    if (directory / STATE_NAME).exists() and directory.name.isdecimal():
        _require_not_in_use(directory.parent.parent)
        return [(int(directory.name), directory)]
    _require_not_in_use(directory)
    root = directory / GROUPS
    found = [path for path in root.iterdir() if path.name.isdecimal()] if root.is_dir() else []
    if nodes := node_directories(directory):
        raise NoLog(
            f"{directory} has the data directories of {len(nodes)} nodes; name one of them: "
            f"{', '.join(map(str, nodes))}"
        )
    if not found:
        raise NoLog(f"{directory} is no data directory of Lockstep: it has no {GROUPS}/0")
    return sorted((int(path.name), path) for path in found)


def node_directories(directory: Path) -> list[Path]:
    """The data directories of the nodes below a directory of `make cluster` or `lockstep serve --processes`,
    by number; none of another."""
    if (directory / GROUPS).exists() or not directory.is_dir():
        return []
    numbers = {path: path.name.removeprefix(NODE_PREFIX) for path in directory.iterdir()}
    found = [path for path, number in numbers.items() if number.isdecimal() and (path / GROUPS).is_dir()]
    return sorted(found, key=lambda path: int(numbers[path]))


def _require_not_in_use(directory: Path) -> None:
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # no broker has ever been here
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        holder = os.read(lock, 32).decode(errors="replace").strip()
        by = f" (process {holder})" if holder else ""
        raise NoLog(f"a broker{by} is running on {directory}; stop it first") from None
    finally:
        os.close(lock)


class PartitionNames:
    """The names of a group's partitions by their numbers, as far as its log still has them."""

    def __init__(self, group_id: int, checkpoint: Checkpoint | None, topics: dict[bytes, str]) -> None:
        self._group_id = group_id
        self._topics = topics
        self._partitions: dict[int, tuple[bytes, int]] = {}
        self.restore(checkpoint)

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Add the partitions of a checkpoint; those known from the log stay as they are."""
        if checkpoint is not None:
            control = ControlPartition()
            control.restore(checkpoint.sections.get("partitions", b""))
            for number, partition in control.partitions.items():
                self._partitions.setdefault(number, (partition.topic_id, partition.index))

    def replay(self, number: int, payload: Buffer) -> None:
        """Records the partitions that a batch of the control partition opens."""
        if number != CONTROL_PARTITION:
            return
        for command in _commands(payload):
            if command.get("do") == "open":
                topic_id = bytes.fromhex(str(command["topic_id"]))
                self._partitions[int(command["partition"])] = (topic_id, int(command["index"]))

    def name(self, number: int) -> str:
        """`topic-index`, or what is known instead."""
        if number == CONTROL_PARTITION:
            return "(control)"
        if number == NOTES_PARTITION:
            return "(notes)"
        topic_id, index = self._partitions.get(number, (b"", 0))
        if not topic_id:
            return f"(partition {number})"
        return f"{self._topics.get(topic_id, topic_id.hex())}-{index}"

    def topic_and_index(self, number: int) -> tuple[str | None, int]:
        """A partition's topic and index; (None, -1) where they are not known."""
        topic_id, index = self._partitions.get(number, (b"", -1))
        return (self._topics.get(topic_id, topic_id.hex()), index) if topic_id else (None, -1)


class TopicNames:
    """Topic id to name, as far as group 0's log still has them; topics that were deleted included."""

    def __init__(self) -> None:
        from lockstep.broker.metadata.metadata_cache import METADATA_TOPIC_ID

        self.names = {METADATA_TOPIC_ID: "__cluster_metadata"}

    def restore(self, checkpoint: Checkpoint | None) -> None:
        """Add the topics of a checkpoint of group 0."""
        from lockstep.broker.metadata.metadata_image import METADATA_SECTION, MetadataImage

        if checkpoint is not None:
            image = MetadataImage()
            image.restore(checkpoint.sections.get(METADATA_SECTION, b""))
            self.names.update({topic_id: topic.name for topic_id, topic in image.topics.items()})

    def replay(self, number: int, payload: Buffer) -> None:
        """Records the topics that a batch of group 0 creates."""
        if number in (CONTROL_PARTITION, NOTES_PARTITION):
            return
        for command in _commands(payload):
            if command.get("do") == "create":
                self.names[bytes.fromhex(str(command["id"]))] = str(command["topic"])


def topic_names(metadata_directory: Path) -> dict[bytes, str]:
    """Topic id to name, by group 0's log, whatever of it is damaged."""
    topics = TopicNames()
    try:
        found = verify(metadata_directory, 0, on_frame=lambda frame: replay_frame(topics, frame))
    except (StorageError, OSError):
        return topics.names
    topics.restore(found.checkpoint)
    return topics.names


def replay_frame(names: PartitionNames | TopicNames, frame: ScannedFrame) -> None:
    """Replays each batch of a frame into `names`; an unreadable one is skipped."""
    payloads = payload_views(frame.view, frame.payload_at, frame.entries)
    for entry, payload in zip(frame.entries, payloads, strict=True):
        with contextlib.suppress(MalformedBatch, ValueError, LookupError):
            names.replay(entry[0], payload)


def _commands(payload: Buffer) -> Iterator[dict[str, Any]]:
    from lockstep.protocol.records.record import iter_records

    for record in iter_records(payload):
        yield json.loads(record.value or b"{}")
