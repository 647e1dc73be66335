"""Mistakes planted in the log on purpose, to show that crash-state enumeration sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from lockstep.storage.log import (
    checkpoint_file,
    installation,
    marker,
    recovery,
    segment_pool,
    segment_scan,
    state_file,
    writer,
)
from lockstep.storage.log.background_maintenance import BackgroundMaintenance
from lockstep.storage.log.file_system import write_all
from lockstep.storage.log.format import position_of
from lockstep.storage.log.installation import Installation
from lockstep.storage.log.joiner import Joiner
from lockstep.storage.log.log_truncation import TruncatableLog
from lockstep.storage.log.segment_compaction import SegmentRewriter
from lockstep.storage.log.segment_rewrite import SegmentRewrite
from lockstep.storage.log.segments import Segment
from lockstep.storage.log.state_file import LogState, StateFile, encode_slot
from lockstep.storage.types import Checkpoint

SimpleFault = Callable[[], AbstractContextManager[Any]]


@contextmanager
def flush_forgotten() -> Iterator[None]:
    """A group commit is acknowledged without its flush."""

    def flush(self: writer.LogWriter) -> None:
        _, index, place = self._written
        self._flushed, self.flushed_index = place, index

    with patch.object(writer.LogWriter, "flush", flush):
        yield


@contextmanager
def marker_lies() -> Iterator[None]:
    """A marker promises what is only about to be flushed."""
    real = marker.encode_marker

    def encode(seed: int, generation: int, own: int, flushed: int, size: int) -> bytes:
        return real(seed, generation, own, own + size, size)

    with patch.object(writer, "encode_marker", encode):
        yield


@contextmanager
def roll_without_flush() -> Iterator[None]:
    """The next segment's header promises the one before, which was not flushed."""
    real = writer.LogWriter._roll

    def roll(self: writer.LogWriter) -> None:
        self._flushed = self._written[2]
        with patch.object(self, "flush", lambda: None):
            real(self)

    with patch.object(writer.LogWriter, "_roll", roll):
        yield


@contextmanager
def header_not_flushed() -> Iterator[None]:
    """A segment's first frame is written before the segment's header is on the disk."""
    real = writer.LogWriter._begin_segment

    def begin(self: writer.LogWriter, previous_end: int) -> None:
        with patch.object(self._fs, "fdatasync", lambda _: None):
            real(self, previous_end)

    with patch.object(writer.LogWriter, "_begin_segment", begin):
        yield


@contextmanager
def new_name_not_durable() -> Iterator[None]:
    """A prepared segment is used before its name is flushed."""

    class Pool(segment_pool.SegmentPool):
        def prepare(self, pace: segment_pool.FillMode = segment_pool.FillMode.BACKGROUND) -> bool:
            with patch.object(self._fs, "fsync_dir", lambda _: None):
                return super().prepare(pace)

    with patch("lockstep.storage.log.data_log.SegmentPool", Pool):
        yield


@contextmanager
def generation_kept() -> Iterator[None]:
    """Recovery cuts a torn tail without beginning a new generation: stale frames can come back."""
    real = StateFile.save

    def save(self: StateFile, state: LogState) -> None:
        generation = max(1, self.state.generation)
        real(self, LogState(state.hard, generation, self.state.generation_start, state.oldest_sequence))

    with patch.object(StateFile, "save", save):
        yield


@contextmanager
def hard_state_not_flushed() -> Iterator[None]:
    """A vote counts before it is on the disk."""

    def save(self: StateFile, state: LogState) -> None:
        self._saves += 1
        slot = encode_slot(self._group_id, self._saves, state)
        write_all(self._fs, self._fd, [slot], state_file.SLOT_BYTES * (self._saves % 2))
        self.state = state

    with patch.object(StateFile, "save", save):
        yield


@contextmanager
def checkpoint_not_flushed() -> Iterator[None]:
    """A checkpoint gets its name before its bytes are on the disk."""
    real = checkpoint_file.write_checkpoint

    def write(fs: Any, *rest: Any) -> str:
        with patch.object(fs, "fdatasync", lambda _: None):
            return real(fs, *rest)

    with patch("lockstep.storage.log.background_maintenance.write_checkpoint", write):
        yield


@contextmanager
def freed_before_the_state_says_so() -> Iterator[None]:
    """Dead segments get other names while the state file still counts on them."""
    real = BackgroundMaintenance._free_dead_segments

    def record_freed(self: BackgroundMaintenance) -> None:
        with (
            patch.object(StateFile, "save", lambda self, state: None),
            patch.object(self._fs, "open", _open_no_freed_file(self._fs.open)),
        ):
            real(self)

    with patch.object(BackgroundMaintenance, "_free_dead_segments", record_freed):
        yield


def _open_no_freed_file(real: Callable[..., int]) -> Callable[..., int]:
    def opened(path: Any, create: bool = False) -> int:
        if create and path.name.endswith(".freed"):
            return real(path.with_name("state"))
        return real(path, create)

    return opened


@contextmanager
def recovered_not_flushed() -> Iterator[None]:
    """What recovery read from the page cache counts without having been flushed."""
    with patch.object(recovery, "flush_scanned", lambda fs, segment, promise: None):
        yield


@contextmanager
def payload_not_verified() -> Iterator[None]:
    """A frame counts when its header does, whatever its payload is."""
    with patch.object(segment_scan.SegmentScan, "_payloads_verify", lambda self, frame, payload: True):
        yield


@contextmanager
def cut_without_marker() -> Iterator[None]:
    """A generation begins without a marker at the cut: after a roll, the write cut there goes on again."""
    with patch("lockstep.storage.log.writer.LogWriter._mark", lambda self: None):
        yield


@contextmanager
def cut_without_generation() -> Iterator[None]:
    """A truncation is only made in memory and by writing over what was cut."""
    real = BackgroundMaintenance.begin_generation

    def begin(self: BackgroundMaintenance, position: int) -> int:
        later = self.state.generation_start > position_of(1, 0)
        return self.state.generation if later and self._table.sealed() else real(self, position)

    with patch.object(BackgroundMaintenance, "begin_generation", begin):
        yield


@contextmanager
def installed_not_flushed() -> Iterator[None]:
    """The switch is made to segments that are not on the disk yet."""
    real = SegmentRewrite.finish

    def finish(self: SegmentRewrite, *ends: int) -> Segment:
        with patch.object(self._fs, "fdatasync", lambda _: None):
            return real(self, *ends)

    with patch.object(SegmentRewrite, "finish", finish):
        yield


@contextmanager
def installed_names_not_durable() -> Iterator[None]:
    """The switch is made to segments and a checkpoint whose names are not on the disk yet."""
    real = Installation._prepare

    def prepare(self: Installation, made: Checkpoint) -> None:
        with patch.object(self._fs, "fsync_dir", lambda _: None):
            real(self, made)

    with patch.object(Installation, "_prepare", prepare):
        yield


@contextmanager
def installed_segments_count_at_once() -> Iterator[None]:
    """What is being installed looks as if it belonged to the log."""
    real = TruncatableLog.begin_install

    def begin(self: TruncatableLog) -> Installation:
        installation.INSTALLED_GENERATION = self._generation
        return real(self)

    with (
        patch.object(installation, "INSTALLED_GENERATION", 0),
        patch.object(TruncatableLog, "begin_install", begin),
    ):
        yield


@contextmanager
def incoming_checkpoint_counts_at_once() -> Iterator[None]:
    """A shipped checkpoint gets its final name before the switch."""
    final = checkpoint_file.checkpoint_name
    with patch("lockstep.storage.log.installation.incoming_name", lambda _, index: final(index)):
        yield


@contextmanager
def old_log_removed_before_the_switch() -> Iterator[None]:
    """The former log is given away first, then the state file says so."""
    real = BackgroundMaintenance.begin_installed

    def begin(self: BackgroundMaintenance, first_sequence: int, position: int) -> int:
        for segment in self._table:
            self._remove(segment.path)
        return real(self, first_sequence, position)

    with patch.object(BackgroundMaintenance, "begin_installed", begin):
        yield


@contextmanager
def incoming_checkpoint_overlooked() -> Iterator[None]:
    """Between the switch and the new checkpoint's final name recovery does not look for it."""
    with patch("lockstep.storage.log.checkpoint_file.is_installed", lambda name, oldest: False):
        yield


@contextmanager
def rewritten_not_flushed() -> Iterator[None]:
    """A rewritten segment takes the old one's name before it is on the disk."""
    real = SegmentRewriter.write_file

    def write(self: SegmentRewriter, *arguments: Any) -> Segment:
        with patch.object(self._fs, "fdatasync", lambda _: None):
            return real(self, *arguments)

    with patch.object(SegmentRewriter, "write_file", write):
        yield


@contextmanager
def cut_below_the_checkpoint() -> Iterator[None]:
    """A truncation goes on where its last frame ends, and gives away the segment a checkpoint lies in."""
    real_truncate, real_place = TruncatableLog.truncate, TruncatableLog._position_after

    def place_after(self: TruncatableLog, index: int) -> int:
        for segment in self._table:
            ends = segment.frame_ends
            if ends is not None and segment.first_index <= index < segment.first_index + len(ends):
                return position_of(segment.sequence, ends[index - segment.first_index])
        return real_place(self, index)

    def truncate(self: TruncatableLog, last_index: int) -> None:
        with patch.object(TruncatableLog, "_position_after", place_after):
            real_truncate(self, last_index)

    with patch.object(TruncatableLog, "truncate", truncate):
        yield


@contextmanager
def joined_not_flushed() -> Iterator[None]:
    """A joined file counts before it is on the disk."""
    real = Joiner._write_file

    def written(self: Joiner, *arguments: Any) -> Segment:
        with patch.object(self._fs, "fdatasync", lambda _: None):
            return real(self, *arguments)

    with patch.object(Joiner, "_write_file", written):
        yield


@contextmanager
def joined_name_not_durable() -> Iterator[None]:
    """A join is switched to before its file's name is on the disk."""
    real = Joiner._switch

    def switch(self: Joiner, *arguments: Any) -> None:
        with patch.object(self._fs, "fsync_dir", lambda _: None):
            real(self, *arguments)

    with patch.object(Joiner, "_switch", switch):
        yield


@contextmanager
def joined_segments_removed_before_the_switch() -> Iterator[None]:
    """The segments that were joined are removed first, then the state file says so."""
    real = Joiner._switch

    def switch(self: Joiner, old: list[Segment], *arguments: Any) -> None:
        save = self._maintenance.save_join_count

        def saved(joins: int) -> None:
            self._maintenance.remove_joined(old)
            save(joins)

        with patch.object(self._maintenance, "save_join_count", saved):
            real(self, old, *arguments)

    with patch.object(Joiner, "_switch", switch):
        yield


@contextmanager
def joined_freed_by_its_last_sequence() -> Iterator[None]:
    """A joined segment is freed, and nothing is said of the others that it stands for."""
    real = BackgroundMaintenance._free_dead_segments

    def record_freed(self: BackgroundMaintenance) -> None:
        for segment in self._dead:
            segment.first_sequence = segment.sequence
        real(self)

    with patch.object(BackgroundMaintenance, "_free_dead_segments", record_freed):
        yield


FAULTS: dict[str, SimpleFault] = {
    each.__name__: each
    for each in (
        flush_forgotten,
        marker_lies,
        roll_without_flush,
        header_not_flushed,
        new_name_not_durable,
        generation_kept,
        hard_state_not_flushed,
        checkpoint_not_flushed,
        freed_before_the_state_says_so,
        recovered_not_flushed,
        payload_not_verified,
        cut_without_marker,
        cut_without_generation,
        installed_not_flushed,
        installed_names_not_durable,
        installed_segments_count_at_once,
        incoming_checkpoint_counts_at_once,
        old_log_removed_before_the_switch,
        incoming_checkpoint_overlooked,
        rewritten_not_flushed,
        cut_below_the_checkpoint,
        joined_not_flushed,
        joined_name_not_durable,
        joined_segments_removed_before_the_switch,
        joined_freed_by_its_last_sequence,
    )
}

AIMED_AT: dict[str, tuple[str, ...]] = {
    "cut_without_generation": ("truncate_and_append",),
    "installed_not_flushed": ("install",),
    "installed_names_not_durable": ("install",),
    "installed_segments_count_at_once": ("install",),
    "incoming_checkpoint_counts_at_once": ("install",),
    "old_log_removed_before_the_switch": ("install_after_truncation",),
    "incoming_checkpoint_overlooked": ("install_after_truncation",),
    "rewritten_not_flushed": ("rewrite",),
    "cut_below_the_checkpoint": ("seal",),
    "joined_not_flushed": ("join",),
    "joined_name_not_durable": ("join",),
    "joined_segments_removed_before_the_switch": ("join",),
    "joined_freed_by_its_last_sequence": ("join",),
}
"""Where one protocol alone is broken, looking at that one saves time; others are looked for everywhere."""
