"""Fetch sessions (KIP-227): epochs, updates, forgetting, and the bounds of the cache."""

from __future__ import annotations

import itertools

import pytest

from lockstep.broker.fetch.fetch_session import EVICTION_SECONDS, FetchSessionError, FetchSessions
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from tests.support.cases import each_case

LARGEST = 2**31 - 1


class Fixture:
    def __init__(self, max_sessions: int = 3, max_partitions: int = 100) -> None:
        self.now = 0.0
        ids = itertools.count(1)
        self.sessions = FetchSessions(
            max_sessions, max_partitions, lambda: self.now, lambda largest: next(ids)
        )

    def begin(
        self,
        session_id: int = 0,
        epoch: int = 0,
        version: int = 12,
        forget: tuple[int, ...] = (),
        **partitions: int,
    ) -> tuple[int, list[tuple[str | bytes, int, int]], bool]:
        """p3=7 asks partition 3 from offset 7; returns (session id, what is read, incremental)."""
        asked = [FetchPartition(partition=int(name[1:]), fetch_offset=at) for name, at in partitions.items()]
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[FetchTopic(topic="t", topic_id=b"i" * 16, partitions=asked)] if asked else [],
            forgotten_topics_data=[ForgottenTopic(topic="t", topic_id=b"i" * 16, partitions=list(forget))],
        )
        turn = self.sessions.begin(request, version)
        items = [(item.topic, item.index, item.fetch_offset) for item in turn.items]
        return turn.session_id, items, turn.is_incremental


def test_a_closed_session_is_forgotten() -> None:
    fixture = Fixture()
    fixture.begin(p0=0, p1=5)
    session = fixture.sessions.find(1)
    assert session is not None
    fixture.sessions.close(session)
    assert fixture.sessions.find(1) is None and fixture.sessions.partition_count == 0


def test_a_session_remembers() -> None:
    fixture = Fixture()
    session, items, incremental = fixture.begin(p0=0, p1=5)
    assert (session, items, incremental) == (1, [("t", 0, 0), ("t", 1, 5)], False)
    assert fixture.begin(session, 1) == (1, [("t", 0, 0), ("t", 1, 5)], True)
    assert fixture.begin(session, 2, p1=9, p2=1)[1] == [("t", 0, 0), ("t", 1, 9), ("t", 2, 1)]
    assert fixture.begin(session, 3, forget=(0, 1))[1] == [("t", 2, 1)]
    assert fixture.sessions.partition_count == 1


def test_refusals() -> None:
    fixture = Fixture()
    session, _, _ = fixture.begin(p0=0)
    for session_id, epoch, version, error in (
        (77, 1, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (session, 2, 12, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session, 1, 13, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        with pytest.raises(FetchSessionError) as refused:
            fixture.begin(session_id, epoch, version)
        assert refused.value.error == error
    fixture.begin(session, 1)
    with pytest.raises(FetchSessionError):
        fixture.begin(session, 1)


def test_ends() -> None:
    fixture = Fixture()
    session, _, _ = fixture.begin(p0=0)
    assert fixture.begin(session, -1, p0=3) == (0, [("t", 0, 3)], False)
    assert len(fixture.sessions) == 0
    session, _, _ = fixture.begin(p0=0)
    replaced, _, _ = fixture.begin(session, 0, p0=1)
    assert replaced != session
    assert len(fixture.sessions) == 1
    assert fixture.begin(replaced, 1, forget=(0,)) == (0, [], False)
    assert len(fixture.sessions) == 0
    assert fixture.sessions.partition_count == 0


def test_a_session_may_begin_empty_and_only_where_requested() -> None:
    fixture = Fixture()
    assert fixture.begin(0, -1, p0=0)[0] == 0
    assert len(fixture.sessions) == 0
    session, items, _ = fixture.begin()
    assert items == []
    assert fixture.begin(session, 1, p0=4) == (session, [("t", 0, 4)], True)


def test_topic_ids() -> None:
    fixture = Fixture()
    session, items, _ = fixture.begin(version=13, p0=0)
    assert items == [(b"i" * 16, 0, 0)]
    assert fixture.begin(session, 1, version=17, forget=(0,))[1] == []


def test_a_full_cache_keeps_sessions_in_use() -> None:
    fixture = Fixture(max_sessions=2)
    first, _, _ = fixture.begin(p0=0)
    second, _, _ = fixture.begin(p0=0)
    assert fixture.begin(p0=0)[0] == 0
    fixture.now = EVICTION_SECONDS - 1
    fixture.begin(first, 1)
    fixture.now = EVICTION_SECONDS + 1
    third, _, _ = fixture.begin(p0=0)
    assert third != 0
    with pytest.raises(FetchSessionError):
        fixture.begin(second, 1)
    assert fixture.begin(first, 2)[0] == first


def test_partitions_of_all_sessions_are_bounded() -> None:
    fixture = Fixture(max_sessions=10, max_partitions=5)
    session, _, _ = fixture.begin(p0=0, p1=0, p2=0)
    assert fixture.begin(p0=0, p1=0, p2=0)[0] == 0
    assert fixture.begin(p0=0, p1=0)[0] != 0
    with pytest.raises(FetchSessionError):
        fixture.begin(session, 1, p7=0)  # it would grow beyond the bound: the client starts afresh
    assert fixture.sessions.partition_count <= 5


def test_epoch_wraps_to_one() -> None:
    fixture = Fixture()
    session, _, _ = fixture.begin(p0=0)
    fixture.sessions._sessions[session].epoch = LARGEST
    fixture.begin(session, LARGEST)
    assert fixture.begin(session, 1)[0] == session


def test_what_an_incremental_answer_mentions() -> None:
    fixture = Fixture()
    request = FetchRequest(
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])], session_epoch=0
    )
    item = fixture.sessions.begin(request, 12).items[0]
    quiet = PartitionData(high_watermark=5, log_start_offset=1, records=b"")
    assert item.has_changed(quiet)
    item.update_cached(quiet)
    assert not item.has_changed(quiet)
    assert item.has_changed(PartitionData(high_watermark=5, log_start_offset=1, records=b"x"))
    assert item.has_changed(PartitionData(high_watermark=6, log_start_offset=1, records=b""))
    assert item.has_changed(PartitionData(high_watermark=5, log_start_offset=2, records=b""))
    failed = PartitionData(high_watermark=5, log_start_offset=1, error_code=3, records=b"")
    assert item.has_changed(failed)
    item.update_cached(failed)
    assert item.has_changed(quiet)


def named(
    name: str, session_id: int = 0, epoch: int = 0, forget: bool = False, indexes: int = 1
) -> FetchRequest:
    """A request for the partitions of one topic."""
    asked = [FetchPartition(partition=index) for index in range(indexes)]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[] if forget else [FetchTopic(topic=name, partitions=asked)],
        forgotten_topics_data=[ForgottenTopic(topic=name, partitions=[0])] if forget else [],
    )


@each_case("name", ["x" * 250, "x" * 32_000, "ü"])
def test_what_can_be_no_topic_is_answered_and_forgotten(name: str) -> None:
    sessions = Fixture().sessions
    turn = sessions.begin(named(name), 12)
    assert [item.topic for item in turn.items] == [name]
    assert (turn.session_id, sessions.partition_count) == (1, 0), "a session, of which it is no part"
    assert sessions.begin(named("t", 1, 1), 12).session_id == 1
    turn = sessions.begin(named(name, 1, 2, indexes=2), 12)
    assert [(item.topic, item.index) for item in turn.items] == [("t", 0), (name, 0), (name, 1)]
    assert (turn.session_id, turn.is_incremental, sessions.partition_count) == (1, True, 1)
    assert turn.session is not None
    turn.session.move_to_end(turn.items[1])
    assert [item.topic for item in sessions.begin(named(name, 1, 3, forget=True), 12).items] == ["t"]
    assert sessions.partition_count == 1
    sessions.begin(named("t", 1, -1), 12)
    assert sessions.partition_count == 0


def test_long_names_count_for_more() -> None:
    """Each may be of a topic that there is not, with a name of its own to keep."""
    fixture = Fixture(max_partitions=5)
    sessions, longest = fixture.sessions, "x" * 249
    turn = sessions.begin(named(longest, indexes=2), 12)
    assert (turn.session_id, sessions.partition_count) == (1, 4)
    assert sessions.begin(named("y" * 200), 12).session_id == 0, "no room"
    assert sessions.begin(named("t"), 12).session_id == 2
    sessions.begin(named(longest, 1, 1, forget=True), 12)
    assert sessions.partition_count == 3
    with pytest.raises(FetchSessionError):
        sessions.begin(named("z" * 249, 1, 2, indexes=2), 12)
    assert sessions.partition_count == 1


def test_a_partition_with_data_moves_behind_the_others() -> None:
    fixture = Fixture()
    session_id = fixture.begin(p0=0, p1=0)[0]
    session = fixture.sessions.find(session_id)
    assert session is not None
    session.move_to_end(session.items["t", 0])
    assert fixture.begin(session_id, 1)[1] == [("t", 1, 0), ("t", 0, 0)]
    assert fixture.sessions.find(session_id + 1) is None


def test_an_id_in_use_is_not_given_again() -> None:
    drawn = iter([7, 7, 8])
    sessions = FetchSessions(3, 100, lambda: 0.0, lambda largest: next(drawn))
    assert [sessions.begin(named("t"), 12).session_id for _ in range(2)] == [7, 8]


def test_more_partitions_than_the_cache_may_hold_have_no_session() -> None:
    sessions = Fixture(max_partitions=2).sessions
    turn = sessions.begin(named("t", indexes=3), 12)
    assert (turn.session_id, len(turn.items), sessions.partition_count) == (0, 3, 0)
