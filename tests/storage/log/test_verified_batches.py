"""What was verified is believed for as long as the file is the same, and no longer than it says."""

from __future__ import annotations

from lockstep.storage.log.verified_batches import (
    MAX_OWNERS,
    MAX_RANGES,
    MERGE_SECONDS,
    TTL_SECONDS,
    VerifiedRangesCache,
)


def test_rows_that_were_verified_are_known_in_the_file_as_it_is() -> None:
    rows = VerifiedRangesCache()
    assert not rows.has(1, 0, 10, 77, 0.0)
    rows.note(1, 0, 10, 77, 0.0)
    assert rows.has(1, 0, 10, 77, 1.0) and rows.has(1, 3, 4, 77, 1.0)
    assert not rows.has(1, 0, 11, 77, 1.0)
    assert not rows.has(2, 0, 10, 77, 1.0)
    assert not rows.has(1, 0, 10, 78, 1.0), "the file was written to"
    assert not rows.has(1, 0, 10, 77, TTL_SECONDS)


def test_ranges_that_touch_are_one_as_old_as_the_older() -> None:
    rows = VerifiedRangesCache()
    for number in range(3):
        rows.note(1, 10 * number, 10 * number + 10, 77, float(number))
    assert rows.has(1, 0, 30, 77, TTL_SECONDS - 0.5)
    assert not rows.has(1, 20, 30, 77, TTL_SECONDS)
    rows.note(1, 30, 40, 77, 3 * MERGE_SECONDS)
    assert not rows.has(1, 20, 40, 77, 3 * MERGE_SECONDS), "verified too long after the others"
    assert rows.has(1, 30, 40, 77, TTL_SECONDS + MERGE_SECONDS)
    rows.note(1, 0, 40, 77, 4 * MERGE_SECONDS)
    assert rows.has(1, 0, 40, 77, TTL_SECONDS + MERGE_SECONDS)


def test_what_came_from_the_disk_is_verified_again_and_old_things_go() -> None:
    rows = VerifiedRangesCache()
    rows.note(1, 0, 10, 77, 0.0)
    rows.forget(1)
    rows.forget(2)
    assert not rows.has(1, 0, 10, 77, 0.0)
    for number in range(MAX_RANGES + 1):
        rows.note(1, 20 * number, 20 * number + 10, 77, 0.0)
    assert not rows.has(1, 0, 10, 77, 0.0) and rows.has(1, 20, 30, 77, 0.0)
    rows.note(1, 0, 5, 78, 0.0)
    assert not rows.has(1, 20, 30, 77, 0.0), "of the file as it was"
    for owner in range(2, MAX_OWNERS + 2):
        rows.note(owner, 0, 1, 77, 0.0)
    assert not rows.has(1, 0, 5, 78, 0.0)
