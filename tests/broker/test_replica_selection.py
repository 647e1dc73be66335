"""Whether a follower holds what a consumer asks for: its match index beside what the leader has in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from broker.replica_selection import holds
from storage.group import LogGroup
from storage.log.recent_frames import RecentFrames
from storage.partition import PartitionLog
from storage.types import DirectoryEntry, Frame, FrameKind

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


@pytest.fixture
def log() -> PartitionLog:
    made = PartitionLog(OURS, bytes(16), 0)
    made.high_watermark, made.next_offset = 3, 4
    return made


@pytest.mark.parametrize(
    ("match_index", "end"),
    [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (6, 3), (7, 3)],
)
def test_the_end_of_a_follower(log: PartitionLog, match_index: int, end: int) -> None:
    held = [offset for offset in range(5) if holds(group(), match_index, log, offset)]
    assert held == list(range(end + 1))


def test_one_that_lacks_more_than_is_in_memory_is_not_known_to_hold_anything(log: PartitionLog) -> None:
    short = group(kept_bytes=300)
    assert not holds(short, 1, log, 0)
    assert holds(short, 6, log, 3)
