"""The known damaged batches of a log, until their segment is repaired or removed.

Owns: which offset ranges of each partition are damaged in each segment, and which of those an operator has
skipped: readers pass over them. Both are kept in the file `damage` of the log's directory across
restarts; if that file cannot be read or written, the next read or scrub finds the damage again. Invariants:
an entry is dropped with its segment, when that is repaired, freed, truncated or cleaned. Ranges that touch
are merged, skipped ones only with one another. Beyond `MAX_RANGES` of a partition in a segment that are not
skipped, a new one is merged with the nearest of them, even over sound batches; these are still read. Only an
operator gives a range up, and no later damage takes that back.

Missing ranges are kept beside them, under NO_SEGMENT: records that are missing together with their segment
(`storage/missing_records.py`). No read finds them again: a file that cannot be read calls for a new search of
the log. They count as long as the log has no batch there. Until a missing range is confirmed it is not
`known`, but a read of it fails: the confirmation needs the topic. Of a topic that is compacted it is only
possible that records are missing. Does not: look for damage (`batch_reader`,
`segment_compaction`) or repair it (`storage/segment_repair.py`). Thread-safe.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import add
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c

from lockstep.storage.log.batch_index import DEAD_PARTITION
from lockstep.storage.log.file_system import FileSystem, read_whole, write_all
from lockstep.storage.log.index_file import SegmentPartition
from lockstep.storage.log.lost_segments import LostFile
from lockstep.storage.log.segments import Segment, SegmentTable
from lockstep.storage.types import (
    CONTROL_PARTITION,
    NO_PARTITION,
    NO_SEGMENT,
    NOTES_PARTITION,
    CorruptLog,
    DamagedBatch,
)

DAMAGE_NAME: Final = "damage"
MAX_RANGES: Final = 100
"""LIMIT. Ranges of one partition in one segment that are not skipped, so that the status and the file stay
readable."""


class DamagedRange:
    """The offset range of one damaged batch, or of several adjacent ones. Immutable."""

    __slots__ = (
        "end_offset",
        "first_offset",
        "is_confirmed",
        "is_possible",
        "is_skipped",
        "local_id",
        "problem",
        "sequence",
        "serial",
    )

    def __init__(
        self,
        serial: int,
        sequence: int,
        local_id: int,
        first_offset: int,
        end_offset: int,
        problem: str,
        is_skipped: bool,
        is_confirmed: bool = True,
        is_possible: bool = False,
    ) -> None:
        self.serial = serial
        """`Segment.serial` of the segment: another number once that segment has been rewritten."""
        self.sequence = sequence
        self.local_id = local_id
        """NO_PARTITION: no batch is damaged but frames are, and the two offsets are their Raft indexes."""
        self.first_offset = first_offset
        self.end_offset = end_offset
        self.problem = problem
        self.is_skipped = is_skipped
        self.is_confirmed = is_confirmed
        """False of a missing range until the topic is known, which shows whether compaction may have removed
        the records."""
        self.is_possible = is_possible
        """Whether compaction may have removed the records of a missing range: reads skip its offsets."""

    def __repr__(self) -> str:
        return f"DamagedRange({self.sequence}, {self.local_id}, {self.first_offset}..{self.end_offset - 1})"


class DamageTable:
    """All damaged ranges of one log.

    Args:
        on_new_range: called for each new or extended range, on the thread that found it.
    """

    def __init__(
        self, fs: FileSystem, directory: Path, table: SegmentTable, on_new_range: Callable[[], None]
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._table = table
        self._on_new_range = on_new_range
        self._lock = threading.Lock()
        self._entries: list[DamagedRange] = []
        self.missing: Mapping[int, list[DamagedRange]] = {}
        """The missing ranges by local id, in the order of offsets; replaced, never changed."""
        self.is_unreadable = False
        """Whether the file existed and could not be read: missing ranges may have been in it."""

    def load(self) -> bool:
        """Read the file, after the segment table is filled; True if it names a range of a present segment, as
        missing ranges are not."""
        try:
            data = read_whole(self._fs, self._directory / DAMAGE_NAME)
            for each in _decode(data) if data is not None else ():
                sequence = int(each["segment"])
                segment = self._table.get(sequence)
                if segment is not None or sequence == NO_SEGMENT:
                    self._entries.append(
                        DamagedRange(
                            0 if segment is None else segment.serial,
                            sequence,
                            int(each["partition"]),
                            int(each["first_offset"]),
                            int(each["end_offset"]),
                            str(each["problem"]),
                            bool(each["given_up"]),
                            not each.get("unconfirmed", False),
                            bool(each.get("possible", False)),
                        )
                    )
        except (OSError, ValueError, LookupError, TypeError):
            self.is_unreadable = True
        self._replace(self._entries)
        return any(each.sequence != NO_SEGMENT for each in self._entries)

    def _replace(self, entries: list[DamagedRange]) -> None:
        missing: dict[int, list[DamagedRange]] = {}
        for each in sorted(entries, key=lambda e: e.first_offset):
            if each.sequence == NO_SEGMENT:
                missing.setdefault(each.local_id, []).append(each)
        self._entries, self.missing = entries, missing

    def known(self) -> list[DamagedRange]:
        """All known ranges, in the order of segment, partition and offset; missing ones first."""
        return [e for e in self._current(self._entries) if e.is_confirmed] if self._entries else []

    def _current(self, entries: list[DamagedRange]) -> list[DamagedRange]:
        left = [each for each in entries if self._serial_of(each.sequence) == each.serial]
        return sorted(left, key=lambda each: (each.sequence, each.local_id, each.first_offset))

    def _serial_of(self, sequence: int) -> int:
        if sequence == NO_SEGMENT:
            return 0
        segment = self._table.get(sequence)
        return -1 if segment is None else segment.serial

    def is_damaged(self, sequence: int) -> bool:
        """Returns whether a damaged range of this segment is known."""
        return any(each.sequence == sequence for each in self.known())

    def is_skipped(self, local_id: int, first_offset: int, end_offset: int) -> bool:
        """Returns whether readers skip [first_offset, end_offset) of a partition where it is damaged."""
        return any(
            each.is_skipped and each.local_id == local_id
            and each.first_offset <= first_offset and end_offset <= each.end_offset
            for each in self.known()
        )  # fmt: skip

    def note(self, damaged: DamagedBatch) -> None:
        """Adds a damaged batch, if its segment is still the one that was read."""
        segment = self._table.get(damaged.sequence)
        if segment is not None and segment.serial == damaged.serial:
            self._note(segment, damaged.partition, damaged.base_offset, damaged.next_offset, damaged.problem)

    def note_frames(self, segment: Segment, first_index: int, last_index: int, problem: str) -> None:
        """Adds frames [first_index, last_index] of a segment that do not verify while all its batches do."""
        if self._table.is_current(segment):
            self._note(segment, NO_PARTITION, first_index, last_index + 1, problem)

    def note_lost(self, files: Mapping[int, LostFile]) -> None:
        """Adds all batches of sealed segments, by sequence, that are behind what can be read of their files,
        with one write of the damage file."""
        segments = [segment for sequence in files if (segment := self._table.get(sequence)) is not None]
        lost = [
            (segment, *limits, files[segment.sequence].problem)
            for segment in segments
            for limits in self._lost_ranges(segment, files[segment.sequence].readable_bytes)
        ]
        with self._lock:
            before = entries = self._current(self._entries)
            known = {(e.sequence, e.local_id) for e in entries}
            entries = [
                *entries,
                *[_new_range(*each) for each in lost if (each[0].sequence, each[1]) not in known],
            ]
            for each in lost:
                if (each[0].sequence, each[1]) in known:
                    entries = _with_range(entries, *each) or entries
            if entries != before:
                self._save(entries)
        self._on_new_range()

    def _lost_ranges(self, segment: Segment, readable_bytes: int) -> list[tuple[int, int, int]]:
        """(partition, first offset, end offset) of what lies behind the readable bytes of a segment's file;
        its frames where that is no partition's."""
        found = []
        for part in self._table.partitions_of(segment):
            if part.local_id in (CONTROL_PARTITION, NOTES_PARTITION, DEAD_PARTITION):
                continue
            first = self._first_unreadable(segment, part, readable_bytes)
            if first <= part.last_offset:
                found.append((part.local_id, first, part.last_offset + 1))
        return found or [(NO_PARTITION, segment.first_index, segment.tail.index + 1)]

    def _first_unreadable(self, segment: Segment, part: SegmentPartition, readable_bytes: int) -> int:
        if not readable_bytes:
            return part.first_offset
        try:
            index = self._table.index_of(segment, part.local_id, load=True)
        except (CorruptLog, OSError):
            index = None
        if index is None:
            return part.first_offset
        rows = index.by_batch()
        ends = map(add, rows.positions, rows.lengths)
        behind = (base for base, end in zip(rows.bases, ends, strict=True) if end > readable_bytes)
        return next(behind, part.last_offset + 1)

    def _note(self, segment: Segment, local_id: int, first: int, end: int, problem: str) -> None:
        with self._lock:
            entries = _with_range(self._current(self._entries), segment, local_id, first, end, problem)
            if entries is None:
                return
            self._save(entries)
        self._on_new_range()

    def forget(self, sequence: int) -> None:
        """Drops the ranges of a segment that verifies as a whole."""
        if self._entries:
            with self._lock:
                left = [each for each in self._current(self._entries) if each.sequence != sequence]
                if len(left) != len(self._entries):
                    self._save(left)

    def note_missing(self, ranges: Iterable[tuple[int, int, int]], problem: str) -> None:
        """Adds missing ranges that are not confirmed: (local id, first offset, end offset). What is known
        already stays as it is.

        Raises OSError if the file cannot be written; they are still known until a restart.
        """
        with self._lock:
            entries = self._current(self._entries)
            for local_id, first, end in ranges:
                known = self.missing.get(local_id, ())
                first = max([first, *(each.end_offset for each in known)])
                if first < end:
                    entries.append(DamagedRange(0, NO_SEGMENT, local_id, first, end, problem, False, False))
            self._replace(entries)
            self._write()

    def list_unconfirmed(self) -> list[DamagedRange]:
        """The missing ranges of which it is not known whether compaction may have removed them."""
        return [each for ranges in self.missing.values() for each in ranges if not each.is_confirmed]

    def resolve_missing(
        self,
        confirmed: Collection[DamagedRange],
        dropped: Collection[DamagedRange],
        possible: Collection[DamagedRange] = (),
    ) -> None:
        """Confirms missing ranges, some as possible, and forgets others. Raises OSError if the file cannot be
        written; then nothing has changed."""
        with self._lock:
            before, gone = self._entries, {*confirmed, *dropped, *possible}
            kept = [each for each in self._current(before) if each not in gone]
            for e in (*confirmed, *possible):
                limits = e.local_id, e.first_offset, e.end_offset
                kept.append(
                    DamagedRange(0, NO_SEGMENT, *limits, e.problem, e.is_skipped, True, e in possible)
                )
            self._replace_durably(kept, before)

    def _replace_durably(self, entries: list[DamagedRange], before: list[DamagedRange]) -> None:
        self._replace(entries)
        try:
            self._write()
        except OSError:
            self._replace(before)
            raise

    def skip_damage(self, local_id: int) -> list[DamagedRange]:
        """Makes readers skip all known damaged ranges of a partition; returns the newly skipped ones.

        Raises OSError if the file cannot be written; then nothing has changed.
        """
        with self._lock:
            before, entries = self._entries, self._current(self._entries)
            given = [each for each in entries if each.local_id == local_id and not each.is_skipped]
            self._replace_durably(self._mark_skipped(entries, given), before)
            return given

    def _mark_skipped(self, entries: list[DamagedRange], given: list[DamagedRange]) -> list[DamagedRange]:
        """The entries with `given` as skipped; skipped ones that touch are merged."""
        kept = [each for each in entries if each not in given]
        for e in given:
            first, end, touching = e.first_offset, e.end_offset, _overlapping_ranges(kept, e)
            if touching:
                kept = [each for each in kept if each not in touching]
                first = min(first, *(each.first_offset for each in touching))
                end = max(end, *(each.end_offset for each in touching))
            kept.append(DamagedRange(e.serial, e.sequence, e.local_id, first, end, e.problem, True))
        return kept

    def _save(self, entries: list[DamagedRange]) -> None:
        self._replace(entries)
        with contextlib.suppress(OSError):  # after a restart the next read finds the damage again
            self._write()

    def _write(self) -> None:
        path = self._directory / DAMAGE_NAME
        if not self._entries:
            with contextlib.suppress(FileNotFoundError):
                self._fs.unlink(path)
            return
        rows = [
            {
                "segment": each.sequence,
                "partition": each.local_id,
                "first_offset": each.first_offset,
                "end_offset": each.end_offset,
                "problem": each.problem,
                "given_up": each.is_skipped,
                **({} if each.is_confirmed else {"unconfirmed": True}),
                **({"possible": True} if each.is_possible else {}),
            }
            for each in self._current(self._entries)
        ]
        temporary = path.with_name(DAMAGE_NAME + ".tmp")
        fd = self._fs.open(temporary, create=True)
        try:
            write_all(self._fs, fd, [_encode(rows)], 0)
            self._fs.fdatasync(fd)
        finally:
            self._fs.close(fd)
        self._fs.rename(temporary, path)
        self._fs.fsync_dir(self._directory)


def _new_range(segment: Segment, local_id: int, first: int, end: int, problem: str) -> DamagedRange:
    return DamagedRange(segment.serial, segment.sequence, local_id, first, end, problem, False)


def _with_range(
    entries: list[DamagedRange], segment: Segment, local_id: int, first: int, end: int, problem: str
) -> list[DamagedRange] | None:
    """Returns the entries with one more range of a segment; None where it is among them already."""
    same = [e for e in entries if (e.sequence, e.local_id) == (segment.sequence, local_id)]
    if any(e.first_offset <= first and end <= e.end_offset for e in same):
        return None
    pending = [e for e in same if not e.is_skipped]
    merged = [e for e in pending if e.first_offset <= end and first <= e.end_offset]
    if not merged and len(pending) >= MAX_RANGES:
        merged = [min(pending, key=lambda e: max(first - e.end_offset, e.first_offset - end))]
    if merged:
        entries = [e for e in entries if e not in merged]
        first = min(first, *(e.first_offset for e in merged))
        end = max(end, *(e.end_offset for e in merged))
        problem = merged[0].problem
    return [*entries, _new_range(segment, local_id, first, end, problem)]


def _encode(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"crc32c": _checksum(rows), "damage": rows}, indent=1).encode()


def _decode(data: bytes) -> list[dict[str, Any]]:
    """Returns the rows of a damage file; older versions wrote no checksum. Raises ValueError, TypeError,
    LookupError where it does not verify."""
    found = json.loads(data)
    rows: list[dict[str, Any]] = found["damage"]
    if found.keys() != {"damage"} and (found.keys(), found["crc32c"]) != (
        {"crc32c", "damage"},
        _checksum(rows),
    ):
        raise ValueError("the damage file does not match its checksum")
    return rows


def _checksum(rows: list[dict[str, Any]]) -> int:
    return crc32c(json.dumps(rows, sort_keys=True, separators=(",", ":")).encode())


def _overlapping_ranges(entries: list[DamagedRange], damaged: DamagedRange) -> list[DamagedRange]:
    """The skipped entries that overlap a range or are adjacent to it."""
    return [
        each
        for each in entries
        if each.is_skipped
        and (each.sequence, each.local_id) == (damaged.sequence, damaged.local_id)
        and each.first_offset <= damaged.end_offset
        and damaged.first_offset <= each.end_offset
    ]
