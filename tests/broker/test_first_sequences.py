"""The lowest sequence a producer has tried where it is not known: by epoch, until it begins, and bounded."""

from __future__ import annotations

import pytest

from broker import first_sequences
from broker.first_sequences import FirstSequences


def test_the_lowest_of_the_newest_epoch_counts() -> None:
    firsts = FirstSequences()
    assert firsts.lowest(1, 7, 0) is None and not firsts
    for sequence, lowest in ((5, 5), (9, 5), (5, 5), (2, 2), (3, 2)):
        firsts.note(1, 7, 1, sequence)
        assert firsts.lowest(1, 7, 1) == lowest
    firsts.note(1, 7, 0, 0)
    assert firsts.lowest(1, 7, 0) is None and firsts.lowest(1, 7, 1) == 2, "an older epoch is another's"
    firsts.note(1, 7, 2, 8)
    assert firsts.lowest(1, 7, 1) is None and firsts.lowest(1, 7, 2) == 8
    assert firsts.lowest(2, 7, 2) is None and firsts.lowest(1, 8, 2) is None and len(firsts) == 1


def test_what_has_begun_is_forgotten() -> None:
    firsts = FirstSequences()
    firsts.note(1, 7, 0, 3)
    firsts.note(2, 7, 0, 4)
    for _ in range(2):
        firsts.begun(1, 7)
    assert firsts.lowest(1, 7, 0) is None and firsts.lowest(2, 7, 0) == 4
    firsts.clear()
    assert not firsts


def test_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_sequences, "MOST_PLACES", 3)
    firsts = FirstSequences()
    for producer_id in (1, 2, 3, 2, 4):
        firsts.note(1, producer_id, 0, 5)
    assert [firsts.lowest(1, producer_id, 0) for producer_id in range(1, 5)] == [None, 5, 5, 5]
