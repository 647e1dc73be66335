"""Rot that the disk itself reports, and what a repair from another node's frames must not bring back."""

from __future__ import annotations

import errno

import pytest

from lockstep.storage.log.format import segment_of
from lockstep.storage.log.frame_rewrite import rewrite_frame
from lockstep.storage.types import CorruptLog
from tests.storage.log.frames import whole, whole_batches
from tests.storage.log.test_segment_compaction import agree, reopened, two_logs
from tests.support.cases import each_case


def test_a_segment_that_the_disk_cannot_read_is_corrupt() -> None:
    log, model, disk = two_logs()
    segment = log.segments()[0]
    name = f"{segment.sequence:016d}.segment"
    for number in (errno.EIO, errno.EUCLEAN, errno.EMFILE):
        error = OSError(number, "!")
        disk.fault = lambda what, where, e=error: e if what == "read" and where.endswith(name) else None
        if number == errno.EMFILE:
            with pytest.raises(OSError, match="!"):
                log.scrub(segment.sequence)
        else:
            assert log.scrub(segment.sequence) == (segment.first_index, segment.last_index)
    disk.fault = None
    log.rewrite_segment(
        segment.sequence, model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30)
    )
    assert log.scrub(segment.sequence) is None
    agree(log, model)


def test_a_repair_brings_no_batch_back_that_was_cleaned_away() -> None:
    log, model, disk = two_logs()
    segment = log.segments()[0]
    frames = model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30)
    gone = {(e.partition, e.base_offset) for frame in frames[1:4] for e in frame.directory}
    log.clean(segment.sequence, whole_batches(lambda entry: (entry.partition, entry.base_offset) not in gone))
    left = [whole(log.read_cold(number, 0, 1 << 20, 1 << 40).buffers) for number in (1, 2, 3)]
    log.rewrite_segment(segment.sequence, frames)
    assert [whole(log.read_cold(number, 0, 1 << 20, 1 << 40).buffers) for number in (1, 2, 3)] == left
    log, disk = reopened(log, disk)
    assert [whole(log.read_cold(number, 0, 1 << 20, 1 << 40).buffers) for number in (1, 2, 3)] == left


def test_a_segment_that_may_be_replayed_from_is_not_repaired_with_what_another_node_cleaned() -> None:
    log, model, _ = two_logs()
    sequences = [segment_of(placed.position) for placed in log._maintenance.checkpoints]
    segment = next(s for s in log.segments() if sequences[0] < s.sequence < sequences[1])
    frames = model.snapshot_frames(segment.first_index, segment.last_index, 1 << 30)
    fewer = [*(rewrite_frame(frame, lambda entry, _: False) for frame in frames[:2]), *frames[2:]]
    with pytest.raises(ValueError, match="may be replayed from"):
        log.rewrite_segment(segment.sequence, fewer)
    log.rewrite_segment(segment.sequence, frames)
    agree(log, model)


@each_case("part", ["batch", "head"])
def test_a_damaged_frame_costs_no_other_frame_of_its_segment(part: str) -> None:
    """Members whose copies of a segment are damaged in different sequences repair one another."""
    log, model, disk = two_logs()
    segment = log.segments()[0]
    first, last = segment.first_index, segment.last_index
    damaged = first + 3
    place = log._frame_reader.read(damaged, 0, damaged)[0]
    assert place.head is not None
    data = disk._inodes[disk._names[f"{segment.sequence:016d}.segment"]].data
    at = data.index(place.head)
    data[at + 12 if part == "head" else at + len(place.head) + 100] ^= 1
    log._frame_reader._scanned.clear()
    before = log.snapshot_frames(first, last, 1 << 30)
    assert [frame.index for frame in before] == list(range(first, damaged))
    with pytest.raises(CorruptLog):
        log.snapshot_frames(damaged, last, 1 << 30)
    if part == "head":  # nothing verifies behind it: the chain is lost
        with pytest.raises(CorruptLog):
            log.snapshot_frames(damaged + 1, last, 1 << 30)
        return
    behind = log.snapshot_frames(damaged + 1, last, 1 << 30)
    assert [frame.index for frame in behind] == list(range(damaged + 1, last + 1))
    other, _, _ = two_logs()
    assert log.chain_at_cold(damaged) == other.chain_at_cold(damaged)
    log.rewrite_segment(segment.sequence, [*before, *other.snapshot_frames(damaged, damaged, 1), *behind])
    agree(log, model)
