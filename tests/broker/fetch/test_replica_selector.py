"""Whether a follower holds what a consumer asks for: its match index beside what the leader has in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from lockstep.broker.fetch.replica_selector import missing_offsets
from lockstep.storage.log.recent_frames import RecentFrames
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import DirectoryEntry, Frame, FrameKind
from tests.support.cases import each_case

OURS, OTHER = 1, 2


def group(kept_bytes: int = 1 << 20) -> LogGroup:
    """Entries 1 to 6 are committed, 7 is not: offsets 0 to 3 of ours in 1, 3, 4, 7; the rest is another's."""
    recent = RecentFrames(kept_bytes)
    offsets = {OURS: 0, OTHER: 0}
    for index, numbers in enumerate([[OURS], [OTHER], [OTHER, OURS], [OURS], [OTHER], [], [OURS]], 1):
        directory = []
        for number in numbers:
            directory.append(DirectoryEntry(number, offsets[number], 1, 100, 0, 1, 0))
            offsets[number] += 1
        kind = FrameKind.DATA if numbers else FrameKind.NO_OP
        recent.add(Frame(kind, 1, index, 1, 0, directory, [], len(numbers)), 100)
    return cast(LogGroup, SimpleNamespace(applied_index=6, log=SimpleNamespace(frames=recent.read)))


@each_case(
    ("match_index", "missing"),
    [
        (0, {OURS: 0, OTHER: 0}),
        (1, {OURS: 1, OTHER: 0}),
        (2, {OURS: 1, OTHER: 1}),
        (3, {OURS: 2, OTHER: 2}),
        (4, {OURS: 3, OTHER: 2}),
        (5, {OURS: 3}),
        (6, {}),
        (7, {}),
    ],
)
def test_what_a_follower_lacks(match_index: int, missing: dict[int, int]) -> None:
    assert missing_offsets(group(), match_index) == missing


def test_one_that_lacks_more_than_is_in_memory_is_not_known_to_hold_anything() -> None:
    short = group(kept_bytes=300)
    assert missing_offsets(short, 1) is None
    assert missing_offsets(short, 6) == {}
