"""What groups have committed: replay, snapshots, and records that nobody understands."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.broker.groups.group_records import (
    CommittedOffset,
    GroupMetadata,
    Record,
    RecordedMember,
    group_record,
    offset_record,
)
from lockstep.broker.groups.group_state import WARNINGS, GroupsState
from lockstep.protocol.records.batch import CONTROL_FLAG
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.types import DirectoryEntry, NewerFormat

ENTRY = DirectoryEntry(1, 0, 1, 1, 0, 0, 0)
MEMBER = RecordedMember("m-1", None, "client", "/127.0.0.1", 300_000, 45_000, b"sub", b"part")
STABLE = GroupMetadata("consumer", 3, "range", "m-1", 1_000, (MEMBER,))
EMPTY = GroupMetadata("consumer", 4, None, None, 2_000, ())


def replay(state: GroupsState, *records: Record, codec: Codec = Codec.NONE, control: bool = False) -> None:
    builder = BatchBuilder(codec, control=control)
    for key, value in records:
        builder.append(value, key, timestamp_ms=1)
    state.replay(ENTRY, builder.build(), 1)


def again(state: GroupsState) -> GroupsState:
    """What a checkpoint makes of it."""
    restored = GroupsState()
    restored.restore(state.snapshot(0))
    return restored


def test_offsets_come_and_go() -> None:
    state = GroupsState()
    assert state.offsets("g") == {} and list(state.group_ids()) == [] and "g" not in state
    replay(
        state, offset_record("g", "t", 0, CommittedOffset(5)), offset_record("g", "u", 1, CommittedOffset(6))
    )
    replay(
        state, offset_record("g", "t", 0, CommittedOffset(7)), offset_record("h", "t", 0, CommittedOffset(8))
    )
    assert state.offsets("g") == {("t", 0): CommittedOffset(7), ("u", 1): CommittedOffset(6)}
    assert list(state.group_ids()) == ["g", "h"] and "g" in state and state.group("g") is None
    assert state.topics() == {"t": 2, "u": 1}
    for _ in range(2):  # a tombstone for nothing does nothing
        replay(state, offset_record("g", "t", 0, None), offset_record("g", "u", 1, None))
    assert list(state.group_ids()) == ["h"] and state.topics() == {"t": 1}
    replay(state, offset_record("nobody", "t", 0, None))
    assert state.topics() == {"t": 1}


def test_generations_come_and_go() -> None:
    state = GroupsState()
    replay(state, group_record("g", STABLE), offset_record("g", "t", 0, CommittedOffset(5)))
    assert state.group("g") == STABLE and list(state.group_ids()) == ["g"]
    replay(state, group_record("g", EMPTY))
    assert state.group("g") == EMPTY
    replay(state, group_record("g", None))
    assert state.group("g") is None and list(state.group_ids()) == ["g"]
    assert again(state) == state


def test_compressed_batches_are_read() -> None:
    state = GroupsState()
    replay(state, offset_record("g", "t", 0, CommittedOffset(5)), codec=Codec.GZIP)
    assert state.offsets("g") == {("t", 0): CommittedOffset(5)}


def test_transaction_markers_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    state = GroupsState()
    replay(state, (b"\0\0\0\1", b"\0\0\0\0\0\0"), control=True)
    assert state == GroupsState() and not caplog.records
    assert CONTROL_FLAG == 0x20


STRANGE: list[Record] = [
    (b"", b""),
    (b"\0", b"x"),
    (b"\0\1", b"x"),
    (b"\0\1\0\5g", None),
    (b"\0\3\0\1g", b"\0\0"),  # a consumer group of the new protocol
    (b"\xff\xff", b"x"),
    (offset_record("g", "t", 0, None)[0], b"\0\5" + bytes(40)),
    (offset_record("g", "t", 0, None)[0], b""),
    (offset_record("g", "t", 0, None)[0] + b"x", b"\0\4"),
    (group_record("g", None)[0], b"\0\3\0\1"),
]


@pytest.mark.parametrize("record", STRANGE, ids=str)
def test_what_is_not_understood_is_passed_over(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    state = GroupsState()
    good = offset_record("g", "t", 0, CommittedOffset(5))
    with caplog.at_level(logging.WARNING):
        replay(state, good, record, offset_record("g", "t", 1, CommittedOffset(6)))
    assert state.offsets("g") == {("t", 0): CommittedOffset(5), ("t", 1): CommittedOffset(6)}
    assert len(caplog.records) == 1


def test_a_batch_that_cannot_be_read_and_a_flood_of_them(caplog: pytest.LogCaptureFixture) -> None:
    state = GroupsState()
    builder = BatchBuilder()
    builder.append(b"value", b"key", timestamp_ms=1)
    batch = bytearray(builder.build())
    batch[-3] = 0x7F
    for _ in range(WARNINGS + 5):
        state.replay(ENTRY, batch, 1)
    assert state == GroupsState()
    assert len(caplog.records) == WARNINGS


def test_a_snapshot_of_nothing_and_of_the_future() -> None:
    assert again(GroupsState()) == GroupsState()
    state = GroupsState()
    replay(state, group_record("g", STABLE))
    state.restore(b"")
    assert state == GroupsState()
    with pytest.raises(NewerFormat):
        state.restore(b"\0\4" + bytes(10))


IDS = st.sampled_from(["g", "h", "", "group with a long name", "\u00e4\U0001f600"])
TOPICS = st.sampled_from(["t", "u", "a.topic"])
OFFSETS = st.builds(
    CommittedOffset,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(["", "m", "\u00e4\n\"'"]),
    st.integers(-(2**63), 2**63 - 1),
    st.just(-1) | st.integers(0, 2**63 - 1),
    st.sampled_from([bytes(16), bytes(range(16))]),
)
GENERATIONS = st.sampled_from([STABLE, EMPTY, GroupMetadata("", 0, None, None, -1, ())])
OPERATIONS = st.one_of(
    st.builds(offset_record, IDS, TOPICS, st.integers(0, 3), st.none() | OFFSETS),
    st.builds(group_record, IDS, st.none() | GENERATIONS),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=5), max_size=20), st.integers(0, 20))
def test_a_restart_anywhere_gives_an_equal_state(batches: list[Sequence[Record]], cut: int) -> None:
    """Replay all; or replay some, snapshot, restore, replay the rest."""
    whole, restarted = GroupsState(), GroupsState()
    for number, records in enumerate(batches):
        if number == cut:
            restarted = again(restarted)
        replay(whole, *records)
        replay(restarted, *records)
    assert again(restarted) == restarted == whole
    assert sorted(restarted.group_ids()) == sorted(whole.group_ids())
    counted: dict[str, int] = {}
    for group_id in whole.group_ids():
        for topic, _ in whole.offsets(group_id):
            counted[topic] = counted.get(topic, 0) + 1
    assert whole.topics() == counted
