"""A stopped broker's logs, read without changing a byte.

Owns: finding the log groups of a data directory, every frame of a group in order, each verified, and the
names of the partitions they belong to.

Invariants: nothing is written. Recovery itself runs, on a file system that drops its writes, so that this
and the broker agree about what is a torn tail and what is rot; then every segment is scanned from its first
byte, also those that recovery takes on trust because a checkpoint covers them.

Does not: repair, or read a directory that a broker is using.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from storage.control_partition import ControlPartition
from storage.log.file_system import RealFileSystem
from storage.log.format import SEGMENT_HEADER_BYTES, decode_segment_header, group_seed
from storage.log.recovery import Recovery, RecoveryReport
from storage.log.scan import LogTail, ScannedFrame, SegmentScan
from storage.log.segments import Segment
from storage.log.state_file import STATE_NAME, StateFile
from storage.types import CONTROL_PARTITION, Buffer, Checkpoint, CorruptLog, StorageError

GROUPS = "groups"
LOCK = ".lock"


class NoLog(StorageError):
    """There is no log to read; the text says why."""


class ReadOnlyFileSystem(RealFileSystem):
    """Reads for real; drops every write, so that nothing that is there changes."""

    def make_dir(self, path: Path) -> None:
        """Nothing: it is there, or there is nothing to read."""

    def open(self, path: Path, create: bool = False) -> int:
        return os.open(os.devnull if create else path, os.O_RDONLY | os.O_CLOEXEC)

    def allocate(self, fd: int, length: int) -> None:
        """Nothing."""

    def rename(self, old: Path, new: Path) -> None:
        """Nothing."""

    def unlink(self, path: Path) -> None:
        """Nothing."""

    def fsync_dir(self, path: Path) -> None:
        """Nothing."""

    @staticmethod
    def pwritev(fd: int, buffers: Sequence[Buffer], position: int, /) -> int:  # type: ignore[override]
        """Nothing, said to be all written."""
        return sum(map(len, buffers))

    @staticmethod
    def fdatasync(fd: int, /) -> None:  # type: ignore[override]
        """Nothing."""


class GroupLog:
    """One group's log. Opening it raises CorruptLog, NewerFormat or NoLog."""

    def __init__(self, directory: Path, group_id: int) -> None:
        self.directory = directory
        self.group_id = group_id
        self._fs = ReadOnlyFileSystem()
        if not (directory / STATE_NAME).exists() and not any(directory.glob("*.segment")):
            raise NoLog(f"{directory} holds no log")
        state_file = StateFile.open(self._fs, directory, group_id)
        self._state = None if state_file is None else state_file.state
        if state_file is not None:
            state_file.close()
        found = Recovery(self._fs, directory, group_id, 0).run()
        found.state_file.close()
        self.report: RecoveryReport = found.report
        self.checkpoint: Checkpoint | None = found.checkpoints[-1].checkpoint if found.checkpoints else None
        self.segments: list[Segment] = found.segments
        for segment in self.segments:
            if segment.fd >= 0:
                self._fs.close(segment.fd)
                segment.fd = -1

    def frames(self) -> Iterator[tuple[Segment, ScannedFrame]]:
        """Every frame that counts, oldest first, header, directory and payloads verified; CorruptLog."""
        tail: LogTail | None = None
        for segment in self.segments:
            fd = self._fs.open(segment.path)
            try:
                tail = yield from self._frames_of(segment, fd, tail)
            finally:
                self._fs.close(fd)

    def _frames_of(
        self, segment: Segment, fd: int, before: LogTail | None
    ) -> Generator[tuple[Segment, ScannedFrame], None, LogTail]:
        assert self._state is not None
        found = decode_segment_header(self._fs.pread(fd, SEGMENT_HEADER_BYTES, 0))
        if found is None:
            raise CorruptLog(f"{segment.path} byte 0: the segment header does not verify")
        header = found[1]
        if before is not None and (before.chain, before.index + 1) != (header.chain, header.first_index):
            raise CorruptLog(f"{segment.path} byte 0: does not continue the segment before it")
        tail = LogTail(header.first_index - 1, header.term, header.first_lsn, header.chain, header.time_ms)
        scan = SegmentScan(
            lambda length, offset: self._fs.pread(fd, length, offset),
            min(segment.size, self._fs.size(fd)),
            segment.sequence,
            group_seed(self.group_id),
            tail,
            SEGMENT_HEADER_BYTES,
            self._state.generation,
            self._state.generation_start,
        )
        scan.last_generation = header.generation
        for frame in scan.frames():
            yield segment, frame
        if scan.offset < segment.end:
            raise CorruptLog(
                f"{segment.path} byte {scan.offset}: {scan.reason}, but the segment goes on to {segment.end}"
            )
        return scan.tail


def groups_of(directory: Path) -> list[tuple[int, Path]]:
    """(group id, directory) of each log group of a data directory, or of the one that `directory` is.

    Raises NoLog where there is none or a broker is running on it.
    """
    if not directory.is_dir():
        raise NoLog(
            f"{directory} is a file, not a directory"
            if directory.exists()
            else f"there is no directory {directory}"
        )
    if (directory / STATE_NAME).exists() and directory.name.isdecimal():
        _refuse_if_in_use(directory.parent.parent)
        return [(int(directory.name), directory)]
    _refuse_if_in_use(directory)
    root = directory / GROUPS
    found = [path for path in root.iterdir() if path.name.isdecimal()] if root.is_dir() else []
    if not found:
        raise NoLog(f"{directory} is no data directory of Lockstep: it has no {GROUPS}/0")
    return sorted((int(path.name), path) for path in found)


def _refuse_if_in_use(directory: Path) -> None:
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
    """What the numbers of a group's partitions stand for, as far as its log still says."""

    def __init__(self, group_id: int, checkpoint: Checkpoint | None, topics: dict[bytes, str]) -> None:
        self._group_id = group_id
        self._topics = topics
        self._known: dict[int, tuple[bytes, int]] = {}
        if checkpoint is not None:
            control = ControlPartition()
            control.restore(checkpoint.sections.get("partitions", b""))
            for number, partition in control.partitions.items():
                self._known[number] = (partition.topic_id, partition.index)

    def learn(self, number: int, payload: Buffer) -> None:
        """Note the partitions that a batch of the control partition opens."""
        if number != CONTROL_PARTITION:
            return
        for command in _commands(payload):
            if command.get("do") == "open":
                topic_id = bytes.fromhex(str(command["topic_id"]))
                self._known[int(command["partition"])] = (topic_id, int(command["index"]))

    def name(self, number: int) -> str:
        """`topic-index`, or what is known instead."""
        if number == CONTROL_PARTITION:
            return "(control)"
        topic_id, index = self._known.get(number, (b"", 0))
        if not topic_id:
            return f"(partition {number})"
        return f"{self._topics.get(topic_id, topic_id.hex())}-{index}"


def topic_names(metadata_group: GroupLog) -> dict[bytes, str]:
    """Topic id to name, as far as group 0 still tells; topics that are gone included."""
    from broker.metadata import METADATA_SECTION, METADATA_TOPIC_ID, ClusterImage

    names = {METADATA_TOPIC_ID: "__cluster_metadata"}
    if metadata_group.checkpoint is not None:
        image = ClusterImage()
        image.restore(metadata_group.checkpoint.sections.get(METADATA_SECTION, b""))
        names.update({topic_id: topic.name for topic_id, topic in image.topics.items()})
    for _, scanned in metadata_group.frames():
        frame = scanned.frame()
        for entry, payload in zip(frame.directory, frame.payloads, strict=True):
            if entry.partition != CONTROL_PARTITION:
                for command in _commands(payload):
                    if command.get("do") == "create":
                        names[bytes.fromhex(str(command["id"]))] = str(command["topic"])
    return names


def _commands(payload: Buffer) -> Iterator[dict[str, Any]]:
    from protocol.records.record import iter_records

    for record in iter_records(payload):
        yield json.loads(record.value or b"{}")
