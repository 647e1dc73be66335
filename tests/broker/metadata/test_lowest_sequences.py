"""The lowest refused sequence of an unknown producer: by epoch, until its batch is appended, and bounded."""

from __future__ import annotations

import pytest

from lockstep.broker.metadata import lowest_sequences
from lockstep.broker.metadata.lowest_sequences import TTL_SECONDS, LowestSequences, is_later

OLD, NEW = b"o" * 16, b"n" * 16


class Firsts(LowestSequences):
    """With a clock of its own."""

    def __init__(self) -> None:
        self.now = 100.0
        super().__init__(lambda: self.now)


def test_the_lowest_of_the_newest_epoch_counts() -> None:
    firsts = Firsts()
    assert firsts.lowest(OLD, 1, 7, 0) is None and not firsts
    for sequence, lowest in ((5, 5), (9, 5), (5, 5), (2, 2), (3, 2)):
        firsts.note(OLD, 1, 7, 1, sequence)
        assert firsts.lowest(OLD, 1, 7, 1) == lowest
    firsts.note(OLD, 1, 7, 0, 0)
    assert firsts.lowest(OLD, 1, 7, 0) is None, "an older epoch is another's"
    assert firsts.lowest(OLD, 1, 7, 1) == 2
    firsts.note(OLD, 1, 7, 2, 8)
    assert firsts.lowest(OLD, 1, 7, 1) is None and firsts.lowest(OLD, 1, 7, 2) == 8
    assert firsts.lowest(OLD, 2, 7, 2) is None and firsts.lowest(OLD, 1, 8, 2) is None
    assert firsts.lowest(NEW, 1, 7, 2) is None and len(firsts) == 1


def test_sequences_wrap_around() -> None:
    firsts = Firsts()
    firsts.note(OLD, 1, 7, 0, 2**31 - 3)
    firsts.note(OLD, 1, 7, 0, 0)
    assert firsts.lowest(OLD, 1, 7, 0) == 2**31 - 3
    assert is_later(0, 2**31 - 3) and not is_later(2**31 - 3, 0) and not is_later(4, 4)


def test_an_entry_is_removed_once_the_partition_knows_the_producer() -> None:
    firsts = Firsts()
    firsts.note(OLD, 1, 7, 0, 3)
    firsts.note(OLD, 2, 7, 0, 4)
    for _ in range(2):
        firsts.remove(OLD, 1, 7)
    firsts.remove(NEW, 1, 7)
    assert firsts.lowest(OLD, 1, 7, 0) is None and firsts.lowest(OLD, 2, 7, 0) == 4
    firsts.remove(OLD, 2, 7)
    assert not firsts


def test_an_entry_is_kept_for_a_while_after_the_last_refusal_of_its_batch() -> None:
    firsts = Firsts()
    firsts.note(OLD, 1, 7, 0, 3)
    firsts.now += TTL_SECONDS - 1
    firsts.note(OLD, 1, 7, 0, 3)
    firsts.now += TTL_SECONDS - 1
    firsts.note(OLD, 1, 7, 0, 9)
    assert firsts.lowest(OLD, 1, 7, 0) == 3, "a later batch does not count as another try"
    firsts.now += 1
    assert firsts.lowest(OLD, 1, 7, 0) is None and not firsts
    firsts.note(OLD, 1, 7, 4, 3)
    firsts.now += TTL_SECONDS
    firsts.note(OLD, 1, 7, 0, 9)
    assert firsts.lowest(OLD, 1, 7, 0) == 9 and len(firsts) == 1, "nothing is left of the older entry"


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowest_sequences, "MAX_ENTRIES", 3)
    firsts = Firsts()
    for producer_id in (1, 2, 3, 2, 4):
        firsts.note(OLD, 1, producer_id, 0, 5)
    assert [firsts.lowest(OLD, 1, each, 0) for each in range(1, 5)] == [None, 5, 5, 5]
    for producer_id in (1, 2, 3):
        firsts.note(NEW, 1, producer_id, 0, 5)
    assert len(firsts) == 3 and firsts.lowest(OLD, 1, 4, 0) is None
    firsts.note("n" * 250, 0, 1, 0, 5)
    assert firsts.lowest(NEW, 1, 1, 0) == 5, "no topic has such a name"


def test_entries_follow_a_topic_that_appears() -> None:
    firsts = Firsts()
    firsts.note("t", 1, 7, 0, 3)
    firsts.note("t", 2, 7, 0, 3)
    firsts.note(NEW, 2, 7, 0, 5)
    firsts.note("t", 3, 7, 1, 3)
    firsts.note(NEW, 3, 7, 0, 2)
    firsts.note("t", 4, 7, 0, 9)
    firsts.note(NEW, 4, 7, 0, 8)
    firsts.topic_created("t", NEW)
    assert [firsts.lowest(NEW, index, 7, 0) for index in (1, 2, 3, 4)] == [3, 3, None, 8]
    assert firsts.lowest(NEW, 3, 7, 1) == 3, "the newer epoch counts"
    assert len(firsts) == 4
    firsts.topic_created("other", OLD)
    assert len(firsts) == 4


def test_entries_follow_a_topic_that_comes_back_under_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowest_sequences, "MAX_FORMER_NAMES", 2)
    firsts = Firsts()
    firsts.note(OLD, 0, 7, 0, 40)
    firsts.topic_deleted("t", OLD)
    assert firsts.lowest(OLD, 0, 7, 0) is None and firsts.former_name(OLD) == "t"
    firsts.note("t", 0, 7, 0, 41)
    firsts.topic_created("t", NEW)
    assert firsts.lowest(NEW, 0, 7, 0) == 40
    for name in ("a", "b"):
        firsts.topic_deleted(name, name.encode())
    assert firsts.former_name(OLD) is None and firsts.former_name(b"b") == "b"
