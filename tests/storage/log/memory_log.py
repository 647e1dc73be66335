"""The data log's public face in memory: the reference model of mirrored tests, and a log for simulations.

It keeps frames in a list and computes everything from them in the plainest way. Nothing is durable beyond
the object: `flush` moves `flushed_index`, `crash` forgets what was not flushed, which is the most that a
real log may lose. Chain values, results of reads and errors are the same as `DataLog`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from crc32c import crc32c

from lockstep.storage.log.batch_flags import ENTRY_REMOVED
from lockstep.storage.log.batch_reader import BatchLocation
from lockstep.storage.log.damage import DamagedRange
from lockstep.storage.log.format import chain_of, encode_frame_head, frame_bytes, group_seed
from lockstep.storage.log.frame_rewrite import BatchFilter, rewrite_frame
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.recent_frames import RecentFrames
from lockstep.storage.log.segment_scan import LogTail
from lockstep.storage.types import (
    Buffer,
    Checkpoint,
    DirectoryEntry,
    FlushFailed,
    Frame,
    FramesUnavailable,
    HardState,
    OffsetOutOfRange,
    ReadResult,
    StorageFull,
)


class NoDamage:
    """The `DamageTable` of a log in memory, which is never damaged."""

    missing: dict[int, list[DamagedRange]] = {}  # noqa: RUF012

    def known(self) -> list[DamagedRange]:
        """None."""
        return []


class MemoryLog:
    """One group's log as a list of frames."""

    def __init__(self, group_id: int, options: LogOptions | None = None) -> None:
        self.group_id = group_id
        self.options = options or LogOptions()
        self.checkpoint: Checkpoint | None = None
        self.hard_state = HardState()
        self.flushed_index = 0
        self.corruption_found = False
        self.damage = NoDamage()
        self.disk_full = False
        self.write_error = ""
        """Set by the test: no room for another frame."""
        self.flush_fails = False
        self._origin: bytes | None = None
        self._saved: list[Checkpoint] = []
        self._frames: list[Frame] = []
        self._recent = RecentFrames(self.options.recent_frames_bytes, self.options.needed_frames_bytes)
        self._base = LogTail(0, 0, 1, group_seed(group_id), 0)
        """Where the log begins: nothing, or what was installed."""
        self._gaps: dict[int, int] = {}
        """Chain values before installed frames that follow a gap."""
        self._follow()

    def _follow(self) -> None:
        last = self._frames[-1] if self._frames else None
        if last is None or last.index <= self._base.index:
            base = self._base
            self.last_index, self.last_term, self.last_time_ms = base.index, base.term, base.time_ms
            self.next_lsn, self.chain = base.next_lsn, base.chain
            return
        assert last.head is not None
        self.last_index, self.last_term, self.last_time_ms = last.index, last.term, last.time_ms
        self.next_lsn, self.chain = last.first_lsn + last.record_count, chain_of(last.head)

    @property
    def max_frame_bytes(self) -> int:
        return self.options.max_frame_bytes

    def has_space_for(
        self, payload_bytes: int, batch_count: int | None = None, *, reserved: bool = False
    ) -> bool:
        return reserved or not self.disk_full

    def append(self, frames: Sequence[Frame]) -> None:
        """See `DataLog.append`."""
        if self.disk_full:
            raise StorageFull("the memory log was told to be full")
        index, term, lsn = self.last_index, self.last_term, self.next_lsn
        for frame in frames:
            if frame.index != index + 1 or frame.first_lsn != lsn or frame.term < term:
                raise ValueError(f"frame {frame.index} cannot follow frame {index}")
            index, term, lsn = frame.index, frame.term, lsn + frame.record_count
        for frame in frames:
            if frame.head is None:
                frame.head = encode_frame_head(frame, self.chain)[0]
            elif crc32c(frame.head[4:], self.chain) != chain_of(frame.head):
                raise ValueError(f"the head of frame {frame.index} does not continue the chain")
            self._frames.append(frame)
            if self._recent.limit_bytes:
                self._recent.add(frame, frame_bytes(frame))
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
        self._saved = [*self._saved, checkpoint][-2:]

    def load_checkpoint(self) -> Checkpoint | None:
        return self._saved[-1] if self._saved else None

    # -- frames by index --------------------------------------------------------------------------------

    @property
    def oldest_index(self) -> int:
        return self._frames[0].index if self._frames else self.last_index + 1

    @property
    def first_kept_index(self) -> int:
        return max(self._base.index, self._saved[-2].index if len(self._saved) > 1 else 0) + 1

    def chain_at(self, index: int) -> int | None:
        if index == 0:
            return group_seed(self.group_id)
        if index == self._base.index:
            return self._base.chain
        if index in self._gaps:
            return self._gaps[index]
        heads = [f.head for f in self._frames if f.index == index]
        return chain_of(heads[0] or b"") if heads else None

    chain_at_cold = chain_at

    def recent_chain_at(self, index: int) -> int | None:
        """See `DataLog.recent_chain_at`."""
        if index == self.last_index:
            return self.chain
        frame = self._recent.get(index)
        return chain_of(frame.head) if frame is not None and frame.head is not None else None

    def keep_recent_frames(self, wanted: bool) -> None:
        """See `DataLog.keep_recent_frames`."""
        self._recent.limit_to(self.options.recent_frames_bytes if wanted else 0)

    @property
    def recent_index(self) -> int:
        """See `DataLog.recent_index`."""
        return self._recent.first_index

    def keep_from(self, index: int | None) -> None:
        """See `DataLog.keep_from`."""
        self._recent.need(index)

    def frames(self, first_index: int, max_bytes: int) -> list[Frame] | None:
        """See `DataLog.frames`."""
        return self._recent.read(first_index, max_bytes) if first_index <= self.last_index else []

    def frames_cold(self, first_index: int, max_bytes: int) -> list[Frame]:
        """See `DataLog.frames_cold`."""
        return self._contiguous(first_index, max_bytes, self.last_index)

    def snapshot_frames(self, from_index: int, upto_index: int, max_bytes: int) -> list[Frame]:
        """See `DataLog.snapshot_frames`."""
        first = min((frame.index for frame in self._frames if frame.index >= from_index), default=from_index)
        return self._contiguous(first, max_bytes, min(upto_index, self.last_index))

    def _contiguous(self, first_index: int, max_bytes: int, upto_index: int) -> list[Frame]:
        found: list[Frame] = []
        total = 0
        for frame in self._frames:
            size = frame_bytes(frame)
            if frame.index < first_index + len(found):
                continue
            over = found and total + size > max_bytes
            if frame.index > min(first_index + len(found), upto_index) or over:
                break
            found.append(frame)
            total += size
        if not found and first_index <= upto_index:
            raise FramesUnavailable(f"frame {first_index} is not in the log any more")
        return found

    @property
    def sealed_since_checkpoint(self) -> bool:
        return False

    def crash(self, kept_index: int | None = None) -> None:
        """Lose what was not flushed, or all after `kept_index` where the disk kept more; then open again."""
        self._cut(max(self.flushed_index, kept_index or 0))
        self._recent.clear()
        self.flushed_index = self.last_index
        self.checkpoint = self._saved[-1] if self._saved else None

    def truncate(self, last_index: int) -> None:
        self._cut(last_index)
        self.flushed_index = min(self.flushed_index, self.last_index)

    def _cut(self, last_index: int) -> None:
        if last_index < max([self._base.index, *(saved.index for saved in self._saved)]):
            raise ValueError(f"frame {last_index + 1} is below the newest checkpoint")
        self._frames = [frame for frame in self._frames if frame.index <= last_index]
        self._recent.truncate(last_index)
        self._follow()

    def begin_install(self) -> MemoryInstallation:
        """See `DataLog.begin_install`."""
        return MemoryInstallation(self)

    def switch(self, frames: list[Frame], gaps: dict[int, int], checkpoint: Checkpoint) -> None:
        """The end of an installation."""
        c = checkpoint
        self._base = LogTail(c.index, c.term, c.next_lsn, c.chain, c.time_ms)
        self._frames, self._gaps, self._saved = frames, gaps, [checkpoint]
        self.checkpoint = checkpoint
        self._recent.clear()
        self._follow()
        self.flushed_index = self.last_index

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
        """See `DataLog.read`, never cold."""
        batches = self._batches(partition)
        if offset >= end_offset or not batches:
            return ReadResult([], 0)
        first = max((i for i, (e, _) in enumerate(batches) if e.base_offset <= offset), default=-1)
        if first < 0:
            raise OffsetOutOfRange(f"partition {partition}: offset {offset} is below the log")
        if batches[first][0].base_offset + batches[first][0].record_count <= offset:
            first += 1
        buffers: list[Buffer] = []
        total = 0
        for entry, payload in batches[first:]:
            if entry.base_offset >= end_offset:
                break
            if entry.flags & ENTRY_REMOVED:
                continue
            if total + entry.length > max_bytes and (buffers or not min_one):
                break
            buffers.append(payload)
            total += entry.length
        return ReadResult(buffers, total)

    read_cold = read

    def _between(self, partition: int, start: int, end: int) -> list[DirectoryEntry]:
        batches = [entry for entry, _ in self._batches(partition) if not entry.flags & ENTRY_REMOVED]
        return [e for e in batches if e.base_offset + e.record_count > start and e.base_offset < end]

    def timestamp_lookup(
        self, partition: int, timestamp_ms: int, start_offset: int, end_offset: int
    ) -> BatchLocation | None:
        for e in self._between(partition, start_offset, end_offset):
            if e.max_timestamp >= timestamp_ms:
                return BatchLocation(e.base_offset, e.base_offset + e.record_count, e.length, e.max_timestamp)
        return None

    def first_younger(
        self, partition: int, time_ms: int, start_offset: int, end_offset: int
    ) -> BatchLocation | None:
        """See `DataLog.first_younger`; all of it is the newest segment."""
        for e in self._between(partition, start_offset, end_offset):
            if e.max_timestamp >= time_ms or e.max_timestamp < 0:
                return BatchLocation(e.base_offset, e.base_offset + e.record_count, e.length, e.max_timestamp)
        return None

    def max_timestamp_batch(self, partition: int, start_offset: int, end_offset: int) -> BatchLocation | None:
        found = self._between(partition, start_offset, end_offset)
        if not found:
            return None
        newest = max(e.max_timestamp for e in found)
        return self.timestamp_lookup(partition, newest, start_offset, end_offset)

    def partition_bytes(self, partition: int, from_offset: int) -> int:
        return sum(len(p) for e, p in self._batches(partition) if e.base_offset >= from_offset)

    def clean_upto(self, last_index: int, judge: BatchFilter) -> None:
        """`DataLog.clean` of all segments that end there or below."""
        for at, frame in enumerate(self._frames):
            if frame.index <= last_index:
                self._frames[at] = rewrite_frame(frame, judge)

    # -- what a log without segments has nothing of -----------------------------------------------------

    def segments(self) -> list[object]:
        return []

    def partition_in_segments(self, partition: int, from_offset: int) -> tuple[list[object], int]:
        return [], self.partition_bytes(partition, from_offset)

    def free_deleted_segments(self, log_starts: Callable[[int], int]) -> int:
        return 0

    def scrub(
        self, sequence: int, throttle: Callable[[int], None] = lambda count: None
    ) -> tuple[int, int] | None:
        return None

    def reading_failed(self, error: BaseException) -> None:
        """Memory does not rot."""

    is_search_due = False

    @property
    def has_origin(self) -> bool:
        """See `DataLog.has_origin`."""
        return self._origin is not None

    def origin(self, told: bytes) -> bytes:
        if self._origin is None:
            self._origin = told
        return self._origin

    def rewritable(self, sequence: int, later: bool = False) -> bool:
        return False

    def rewrite_segment(
        self,
        sequence: int,
        frames: Sequence[Frame],
        chain: int | None = None,
        log_starts: Callable[[int], int] | None = None,
    ) -> None:
        raise ValueError(f"segment {sequence} is no sealed segment of this log")

    def seal(self) -> bool:
        return False

    def is_sealed(self, last_index: int) -> bool:
        return False

    def is_cleanable(self, last_index: int) -> bool:
        return False

    def cleanable_segments(self) -> list[object]:
        return []

    def clean(
        self,
        sequence: int,
        judge: BatchFilter,
        throttle: Callable[[int], None] = lambda count: None,
        is_closed: Callable[[int], bool] = lambda number: False,
    ) -> int:
        raise ValueError(f"segment {sequence} is no sealed segment of this log")

    def has_small_neighbours(self) -> bool:
        return False

    def join(
        self,
        throttle: Callable[[int], None] = lambda count: None,
        is_closed: Callable[[int], bool] = lambda number: False,
    ) -> int:
        return 0

    def forget_closed(self, is_closed: Callable[[int], bool]) -> None:
        """Nothing is held beside the frames."""

    def forget_partition(self, number: int) -> None:
        """Nothing is held beside the frames."""

    def retry_space(self) -> None:
        """The test sets `disk_full`."""

    def start_preparing(self) -> None:
        """Nothing to prepare."""

    def prepare_now(self) -> None:
        """Nothing to prepare."""

    def close(self) -> None:
        """Nothing to close."""


class MemoryInstallation:
    """`Installation` of a memory log."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._frames: list[Frame] = []
        self._gaps: dict[int, int] = {}
        self._last = LogTail(0, 0, 1, group_seed(log.group_id), 0)
        self._prepared: Checkpoint | None = None
        self._over = False

    @property
    def last_index(self) -> int:
        return self._last.index

    def add(self, frames: Sequence[Frame], chain: int | None = None) -> None:
        if self._over or self._prepared is not None:
            raise ValueError("this installation is over")
        for frame in frames:
            last = self._last
            if frame is frames[0] and frame.index != last.index + 1:
                if chain is None or frame.index <= last.index:
                    raise ValueError(f"frame {frame.index} cannot follow frame {last.index}")
                last = LogTail(frame.index - 1, frame.term, frame.first_lsn, chain, frame.time_ms)
                self._gaps[frame.index - 1] = chain
            if (frame.index, frame.first_lsn) != (last.index + 1, last.next_lsn) or frame.term < last.term:
                raise ValueError(f"frame {frame.index} cannot follow frame {last.index}")
            head = frame.head
            if head is None or crc32c(head[4:], last.chain) != chain_of(head):
                raise ValueError(f"the head of frame {frame.index} does not continue the chain")
            self._frames.append(frame)
            next_lsn = frame.first_lsn + frame.record_count
            self._last = LogTail(frame.index, frame.term, next_lsn, chain_of(head), frame.time_ms)

    def prepare(self, checkpoint: Checkpoint) -> None:
        if self._over or self._prepared is not None:
            raise ValueError("this installation is over, or prepared")
        last = self._last
        if last.index > checkpoint.index:
            raise ValueError(f"frame {last.index} is above the checkpoint at {checkpoint.index}")
        if last.index == checkpoint.index and (last.chain, last.next_lsn) != (
            checkpoint.chain,
            checkpoint.next_lsn,
        ):
            raise ValueError(f"the frames up to {last.index} are not those of the checkpoint")
        self._prepared = checkpoint

    def finish(self, checkpoint: Checkpoint) -> None:
        if self._over:
            raise ValueError("this installation is over")
        if self._prepared is None:
            self.prepare(checkpoint)
        if self._prepared is not checkpoint:
            raise ValueError("another checkpoint than was prepared")
        self._over = True
        self._log.switch(self._frames, self._gaps, checkpoint)

    def abort(self) -> None:
        self._over = True
