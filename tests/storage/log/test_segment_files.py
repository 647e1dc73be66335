"""Joined files that a later join has taken are told from those that count; the names are all there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.log.segment_files import JoinedFile, SegmentFiles, joined_of, outermost, segment_name

SEQUENCES = st.integers(1, 12)
NUMBERS = st.integers(1, 6)
JOINED = st.builds(
    lambda one, other, number: JoinedFile(min(one, other), max(one, other), number),
    SEQUENCES,
    SEQUENCES,
    NUMBERS,
)


def is_in(file: JoinedFile, other: JoinedFile) -> bool:
    return other.first <= file.first and file.last <= other.last and other.number > file.number


@given(st.lists(JOINED, max_size=12))
def test_outermost_files_are_in_no_later_one(joined: list[JoinedFile]) -> None:
    assert outermost(joined) == {each for each in joined if not any(is_in(each, other) for other in joined)}


@given(st.lists(JOINED, max_size=8, unique=True), st.sets(SEQUENCES), st.integers(1, 8), NUMBERS, st.data())
def test_each_name_is_live_or_left_over_or_unfinished(
    joined: list[JoinedFile], singles: set[int], oldest: int, joins: int, data: st.DataObject
) -> None:
    """Against the definition: each joined file beside each other one."""
    void = data.draw(st.sets(st.sampled_from(joined))) if joined else set()
    names = [*map(segment_name, singles), *[each.name for each in joined]]
    files = SegmentFiles(names, oldest, joins, lambda name: name in {each.name for each in void})
    unfinished = [each for each in sorted(joined) if each.number > joins or each in void]
    whole = [each for each in sorted(joined) if each not in unfinished]
    kept = [each for each in whole if each.last >= oldest and not any(is_in(each, other) for other in whole)]
    covered = {sequence for each in kept for sequence in range(each.first, each.last + 1)}
    live = {sequence for sequence in singles if sequence >= oldest} - covered
    assert files.unfinished == [each.name for each in unfinished]
    assert files.covered == covered
    assert files.live == sorted([*live, *{each.last for each in kept}])
    assert files.leftover == [
        *map(segment_name, sorted(singles - live)),
        *[each.name for each in whole if each not in kept],
    ]


def test_a_name_is_taken_apart_as_it_was_put_together() -> None:
    joined = JoinedFile(1, 4, 2)
    assert joined_of([segment_name(1), joined.name, f"{joined.stem}.index", "1-2.segment"]) == [joined]
