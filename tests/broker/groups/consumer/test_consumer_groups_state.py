"""The consumer groups of one data log group: records in, groups by id, the same again from rows."""

from __future__ import annotations

import pytest

from lockstep.broker.groups.consumer import consumer_group_records as records
from lockstep.broker.groups.consumer.consumer_group_records import ConsumerGroupMember, GroupEpoch
from lockstep.broker.groups.consumer.consumer_groups_state import ConsumerGroupsState
from lockstep.broker.groups.group_records import Record, UnknownGroupRecord
from lockstep.protocol.primitives import MalformedMessage


def replayed(*written: Record) -> ConsumerGroupsState:
    state = ConsumerGroupsState()
    for key, value in written:
        state.apply(key[1], key, value)
    return state


def epoch(group_id: str, number: int = 1) -> Record:
    return records.group_epoch_record(group_id, GroupEpoch(number))


def member(group_id: str, *topics: str) -> Record:
    return records.member_record(group_id, ConsumerGroupMember("m", topics=topics))


def test_it_is_empty_at_first() -> None:
    state = ConsumerGroupsState()
    assert (bool(state), list(state), list(state.ids()), list(state.rows())) == (False, [], [], [])
    assert ("g" in state, state.group("g"), state.memory_bytes) == (False, None, 0)


def test_groups_by_id() -> None:
    state = replayed(epoch("g"), epoch("h", 2), member("g", "t"))
    assert (bool(state), list(state.ids()), "g" in state, "x" in state) == (True, ["g", "h"], True, False)
    assert [(each.group_id, each.group_epoch, list(each.members)) for each in state] == [
        ("g", 1, ["m"]),
        ("h", 2, []),
    ]
    found = state.group("h")
    assert found is not None and found.group_epoch == 2
    assert state.memory_bytes == sum(each.memory_bytes for each in state)


def test_a_group_is_there_as_long_as_one_of_its_records() -> None:
    written = [epoch("g"), member("g", "t")]
    state = replayed(*written, epoch("h"))
    state.apply(3, written[0][0], None)
    assert "g" in state and state.memory_bytes == sum(each.memory_bytes for each in state)
    state.apply(5, written[1][0], None)
    assert list(state.ids()) == ["h"] and state == replayed(epoch("h"))
    assert state.memory_bytes == replayed(epoch("h")).memory_bytes


def test_memory_grows_and_shrinks_with_a_record() -> None:
    state = replayed(member("g", "t"))
    small = state.memory_bytes
    state.apply(5, *member("g", "t", "much longer"))
    assert state.memory_bytes == replayed(member("g", "t", "much longer")).memory_bytes > small
    state.apply(5, *member("g", "t"))
    assert state.memory_bytes == small


def test_a_tombstone_of_no_group_makes_none() -> None:
    state = replayed((epoch("g")[0], None))
    assert state == ConsumerGroupsState() and state.memory_bytes == 0


def test_a_record_that_cannot_be_read_makes_no_group() -> None:
    state = ConsumerGroupsState()
    for error, value in ((MalformedMessage, b"\0\0"), (UnknownGroupRecord, b"\0\1\0")):
        with pytest.raises(error):
            state.apply(3, epoch("g")[0], value)
    assert not state and state.memory_bytes == 0


def test_rows_restore_an_equal_state() -> None:
    state = replayed(epoch("g"), member("g", "t"), epoch("h"), member("h", "u"), epoch("g", 5))
    rows = list(state.rows())
    assert dict(rows) == dict([epoch("g", 5), member("g", "t"), epoch("h"), member("h", "u")])
    copy = ConsumerGroupsState()
    copy.restore(rows)
    assert copy == state and copy.memory_bytes == state.memory_bytes
    assert copy != ConsumerGroupsState() and copy != "g"
