"""Rot that the disk itself reports, and what a repair from another node's frames must not bring back."""

from __future__ import annotations

import errno

import pytest

from storage.log.rewriting import cleaned
from tests.storage.log.frames import whole, whole_batches
from tests.storage.log.test_rewriting import agree, reopened, two_logs


def test_a_segment_that_the_disk_cannot_read_has_rotted() -> None:
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
    log.rewrite_segment(segment.sequence, model.ship_frames(segment.first_index, segment.last_index, 1 << 30))
    assert log.scrub(segment.sequence) is None
    agree(log, model)


def test_a_repair_brings_no_batch_back_that_was_cleaned_away() -> None:
    log, model, disk = two_logs()
    segment = log.segments()[0]
    frames = model.ship_frames(segment.first_index, segment.last_index, 1 << 30)
    gone = {(e.partition, e.base_offset) for frame in frames[1:4] for e in frame.directory}
    log.clean(segment.sequence, whole_batches(lambda entry: (entry.partition, entry.base_offset) not in gone))
    left = [whole(log.read_cold(number, 0, 1 << 20, 1 << 40).buffers) for number in (1, 2, 3)]
    log.rewrite_segment(segment.sequence, frames)
    assert [whole(log.read_cold(number, 0, 1 << 20, 1 << 40).buffers) for number in (1, 2, 3)] == left
    log, disk = reopened(log, disk)
    assert [whole(log.read_cold(number, 0, 1 << 20, 1 << 40).buffers) for number in (1, 2, 3)] == left


def test_a_segment_that_may_be_replayed_from_is_not_repaired_with_what_another_node_cleaned() -> None:
    log, model, _ = two_logs()
    places = [placed.place >> 32 for placed in log._house.checkpoints]
    segment = next(s for s in log.segments() if places[0] < s.sequence < places[1])
    frames = model.ship_frames(segment.first_index, segment.last_index, 1 << 30)
    fewer = [*(cleaned(frame, lambda entry, _: False) for frame in frames[:2]), *frames[2:]]
    with pytest.raises(ValueError, match="may be replayed from"):
        log.rewrite_segment(segment.sequence, fewer)
    log.rewrite_segment(segment.sequence, frames)
    agree(log, model)
