"""The data log's public face in memory: the reference model of mirrored tests, and a log for simulations.

It keeps frames in a list and computes everything from them in the plainest way. Nothing is durable beyond
the object: `flush` moves `flushed_index`, `crash` forgets what was not flushed, which is the most that a
real log may lose. Chain values, results of reads and errors are the same as `DataLog`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from storage.log.format import encode_frame_head, frame_bytes, group_seed
from storage.log.options import LogOptions
from storage.log.reading import BatchPlace
from storage.types import (
    Buffer,
    Checkpoint,
    DirectoryEntry,
    FlushFailed,
    Frame,
    HardState,
    OffsetOutOfRange,
    ReadResult,
    StorageFull,
)


class MemoryLog:
    """One group's log as a list of frames."""

    def __init__(self, group_id: int, options: LogOptions | None = None) -> None:
        self.group_id = group_id
        self.options = options or LogOptions()
        self.checkpoint: Checkpoint | None = None
        self.hard_state = HardState()
        self.flushed_index = 0
        self.disk_full = False
        """Set by the test: no room for another frame."""
        self.flush_fails = False
        self._saved: list[Checkpoint] = []
        self._frames: list[Frame] = []
        self._chains: list[int] = []
        self._follow()

    def _follow(self) -> None:
        last = self._frames[-1] if self._frames else None
        self.last_index = last.index if last else 0
        self.last_term = last.term if last else 0
        self.last_time_ms = last.time_ms if last else 0
        self.next_lsn = last.first_lsn + last.record_count if last else 1
        self.chain = self._chains[-1] if self._chains else group_seed(self.group_id)

    @property
    def max_frame_bytes(self) -> int:
        return self.options.max_frame_bytes

    def room_for(self, payload_bytes: int, batch_count: int | None = None, *, reserved: bool = False) -> bool:
        return reserved or not self.disk_full

    def append(self, frames: Sequence[Frame]) -> None:
        """As `DataLog.append`."""
        if self.disk_full:
            raise StorageFull("the memory log was told to be full")
        index, term, lsn = self.last_index, self.last_term, self.next_lsn
        for frame in frames:
            if frame.index != index + 1 or frame.first_lsn != lsn or frame.term < term:
                raise ValueError(f"frame {frame.index} cannot follow frame {index}")
            if frame_bytes(frame) > self.max_frame_bytes:
                raise ValueError(f"a frame of {frame_bytes(frame)} bytes")
            index, term, lsn = frame.index, frame.term, lsn + frame.record_count
        for frame in frames:
            self._frames.append(frame)
            self._chains.append(encode_frame_head(frame, self.chain)[1])
            self._follow()

    def flush(self) -> None:
        if self.flush_fails:
            raise FlushFailed("the memory log was told to fail")
        self.flushed_index = self.last_index

    def idle(self) -> None:
        """Nothing to mark."""

    def replay(self) -> Iterator[Frame]:
        after = self.checkpoint.index if self.checkpoint is not None else 0
        return iter([f for f in self._frames if f.index > after])

    def save_hard_state(self, hard_state: HardState) -> None:
        self.hard_state = hard_state

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.flushed_index = max(self.flushed_index, checkpoint.index)
        self._saved.append(checkpoint)

    @property
    def sealed_since_checkpoint(self) -> bool:
        return False

    def crash(self, kept_index: int | None = None) -> None:
        """Lose what was not flushed, or all after `kept_index` where the disk kept more; then open again."""
        self._cut(max(self.flushed_index, kept_index or 0))
        self.flushed_index = self.last_index
        self.checkpoint = self._saved[-1] if self._saved else None

    def truncate(self, last_index: int) -> None:
        self._cut(last_index)
        self.flushed_index = min(self.flushed_index, self.last_index)

    def _cut(self, last_index: int) -> None:
        del self._frames[last_index:]
        del self._chains[last_index:]
        self._follow()

    # -- reading ----------------------------------------------------------------------------------------

    def _batches(self, partition: int) -> list[tuple[DirectoryEntry, Buffer]]:
        return [
            (entry, payload)
            for frame in self._frames
            for entry, payload in zip(frame.directory, frame.payloads, strict=True)
            if entry.partition == partition
        ]

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int, *, min_one: bool = True
    ) -> ReadResult:
        """As `DataLog.read`, never cold."""
        batches = self._batches(partition)
        if offset >= end_offset or not batches:
            return ReadResult([], 0)
        first = max((i for i, (e, _) in enumerate(batches) if e.base_offset <= offset), default=-1)
        if first < 0:
            raise OffsetOutOfRange(f"partition {partition}: offset {offset} is below the log")
        buffers: list[Buffer] = []
        total = 0
        for entry, payload in batches[first:]:
            if entry.base_offset >= end_offset:
                break
            if total + entry.length > max_bytes and (buffers or not min_one):
                break
            buffers.append(payload)
            total += entry.length
        return ReadResult(buffers, total)

    read_cold = read

    def _between(self, partition: int, start: int, end: int) -> list[DirectoryEntry]:
        batches = [entry for entry, _ in self._batches(partition)]
        return [e for e in batches if e.base_offset + e.record_count > start and e.base_offset < end]

    def timestamp_lookup(
        self, partition: int, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> BatchPlace | None:
        for e in self._between(partition, start_offset, end_offset):
            if e.max_timestamp >= timestamp_ms:
                return BatchPlace(e.base_offset, e.base_offset + e.record_count, e.length, e.max_timestamp)
        return None

    def first_younger(
        self, partition: int, time_ms: int, start_offset: int, end_offset: int
    ) -> BatchPlace | None:
        """As `DataLog.first_younger`; all of it is the newest segment."""
        for e in self._between(partition, start_offset, end_offset):
            if e.max_timestamp >= time_ms or e.max_timestamp < 0:
                return BatchPlace(e.base_offset, e.base_offset + e.record_count, e.length, e.max_timestamp)
        return None

    def max_timestamp_batch(self, partition: int, start_offset: int, end_offset: int) -> BatchPlace | None:
        found = self._between(partition, start_offset, end_offset)
        if not found:
            return None
        newest = max(e.max_timestamp for e in found)
        return self.timestamp_lookup(partition, newest, start_offset, end_offset)

    def partition_bytes(self, partition: int, from_offset: int) -> int:
        return sum(e.length for e, _ in self._batches(partition) if e.base_offset >= from_offset)

    # -- what a log without segments has nothing of -----------------------------------------------------

    def segments(self) -> list[object]:
        return []

    def retention_candidates(self) -> Iterator[object]:
        return iter(())

    def free_dead_segments(self, log_starts: Callable[[int], int]) -> int:
        return 0

    def retry_space(self) -> None:
        """The test sets `disk_full`."""

    def start_preparing(self) -> None:
        """Nothing to prepare."""

    def prepare_now(self) -> None:
        """Nothing to prepare."""

    def close(self) -> None:
        """Nothing to close."""
