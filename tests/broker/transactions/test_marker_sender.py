"""Markers reach every partition of a transaction, wherever it is led, however often it takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions import marker_sender as of_markers
from lockstep.broker.transactions.marker_sender import MarkerSender, PendingMarkers
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import NotLeader, StorageFull

TOPIC = bytes(15) + b"\x07"
COMMIT = TxnMarkerEntry(7, 1, 3, True, 1)
FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED
WRONG_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_markers, "MIN_BACKOFF_SECONDS", 0.001)
    monkeypatch.setattr(of_markers, "MAX_BACKOFF_SECONDS", 0.002)


class Log:
    def __init__(self, index: int) -> None:
        self.local_id = 100 + index
        self.topic_id = TOPIC
        self.index = index


class Group:
    """A log group; commits take one turn."""

    def __init__(self, number: int, *indexes: int) -> None:
        self.group_id = number
        self.is_leader = self.has_lease = True
        self.term = 4
        self.applied_index = self.commit_index = 5
        self.logs = {index: Log(index) for index in indexes}
        self.lost: list[bool] = []
        """Whether each next commit never comes."""
        self.commits = 0

    async def committed(self) -> None:
        await asyncio.sleep(0)
        self.commits += 1
        if self.lost and self.lost.pop(0):
            raise NotLeader("lost it")


class Appends:
    """An `Appender` that notes markers."""

    def __init__(self) -> None:
        self.frames: list[tuple[list[int], TxnMarkerEntry]] = []
        self.refusals: dict[int, ErrorCode] = {}
        self.errors: list[Exception] = []

    def end_transactions(self, partitions: Sequence[Log], marker: TxnMarkerEntry) -> None:
        if self.errors:
            raise self.errors.pop(0)
        for each in partitions:
            if each.index in self.refusals:
                raise RequestError(self.refusals[each.index], "no")
        self.frames.append(([each.index for each in partitions], marker))

    @property
    def ended(self) -> list[int]:
        return sorted(index for indexes, _ in self.frames for index in indexes)


class Topic:
    topic_id = TOPIC


class Partition:
    def __init__(self, index: int, group: object) -> None:
        self.topic = Topic()
        self.index = index
        self.group = group


class Stand:
    """A `RemoteLeader`."""

    def __init__(self, number: int) -> None:
        self.group_id = number
        self.is_leader = False
        self.term = 4


class Node:
    """One node's cluster, appenders and way; topic "t" has its partitions in the groups of `spread`."""

    def __init__(self, spread: dict[int, int], *groups: Group, way: Way | None = None) -> None:
        self.groups = {each.group_id: each for each in groups}
        self.spread = spread
        self.appends = {number: Appends() for number in self.groups if number != METADATA_GROUP}
        self.way = way
        self.markers = MarkerSender(
            cast(MetadataCache, self),
            cast(dict[int, Appender], self.appends),
            cast(PeerRpc | None, way),
            asyncio.get_running_loop(),
        )

    def partition(self, name: str, index: int) -> Partition | None:
        if name != "t" or index not in self.spread:
            return None
        number = self.spread[index]
        return Partition(index, self.groups.get(number) or Stand(number))

    def open_partition(self, topic_id: bytes, number: int, index: int) -> Log | None:
        return self.groups[number].logs.get(index) if topic_id == TOPIC else None


class Way:
    """A `PeerRpc`: who leads each group is a node's way in `leaders`."""

    def __init__(self) -> None:
        self.handlers: dict[RequestKind, Callable[[int, bytes], Awaitable[bytes]]] = {}
        self.leaders: dict[int, Way] = {}
        self.questions: list[dict[str, Any]] = []
        self.hold: asyncio.Event | None = None
        self.answers: list[bytes] = []

    async def request_from_leader(self, group: int, kind: RequestKind, body: bytes, *seconds: float) -> bytes:
        assert kind is RequestKind.MARKERS
        self.questions.append(json.loads(body))
        if self.hold is not None:
            await self.hold.wait()
        if self.answers:
            return self.answers.pop(0)
        leader = self.leaders.get(group)
        if leader is None:
            raise NotLeader("nobody")
        try:
            return await leader.handlers[kind](1, body)
        except NotLeaderHere:
            raise NotLeader("not there") from None


class World:
    """A coordinator's node, which leads group 1, and another one, which leads groups 0 and 2."""

    def __init__(self) -> None:
        spread = {0: 1, 1: 2, 2: 2}
        self.way, there = Way(), Way()
        self.here = Node(dict(spread), Group(1, 0), way=self.way)
        self.there = Node(dict(spread), Group(METADATA_GROUP), Group(2, 1, 2), way=there)
        self.way.leaders = {METADATA_GROUP: there, 2: there}
        self.other_way = there

    async def write(self, *indexes: int, marker: TxnMarkerEntry = COMMIT) -> None:
        places = [("t", index) for index in indexes]
        await asyncio.wait_for(self.here.markers.write(places, marker), 5)


@pytest.fixture
async def world() -> World:
    return World()


async def test_here_and_elsewhere(world: World) -> None:
    await world.write(0, 1, 2)
    assert world.here.appends[1].frames == [([0], COMMIT)]
    assert world.there.appends[2].frames == [([1, 2], COMMIT)], "one question, one frame"
    assert (world.here.groups[1].commits, world.there.groups[2].commits) == (1, 1)


async def test_a_partition_named_twice_has_one_marker(world: World) -> None:
    await world.write(1, 1)
    assert world.there.appends[2].frames == [([1], COMMIT)]


async def test_a_node_alone() -> None:
    alone = Node({0: 1, 1: 2}, Group(METADATA_GROUP), Group(1, 0), Group(2, 1))
    await alone.markers.write([("t", 0), ("t", 1), ("deleted", 0), ("t", 9)], COMMIT)
    assert (alone.appends[1].ended, alone.appends[2].ended) == ([0], [1])


async def test_a_lost_commit_is_requested_again(world: World) -> None:
    world.there.groups[2].lost = [True, True]
    world.here.groups[1].lost = [True]
    await world.write(0, 1)
    assert world.there.appends[2].ended == [1, 1, 1]
    assert world.here.appends[1].ended == [0, 0]


async def test_the_next_leader_gets_the_request(world: World) -> None:
    world.there.groups[2].is_leader = False
    writing = asyncio.ensure_future(world.write(1, 2))
    await asyncio.sleep(0.02)
    assert not writing.done() and world.there.appends[2].frames == []
    world.here.groups[2] = Group(2, 1, 2)
    world.here.appends[2] = Appends()
    await writing
    assert world.here.appends[2].ended == [1, 2], "this node leads it now"


async def test_a_question_of_an_earlier_term_ends_nothing(world: World) -> None:
    """It was asked again meanwhile, and the next transaction of the same epoch may have begun."""
    world.there.groups[2].term = 6
    writing = asyncio.ensure_future(world.write(0, 1))
    await asyncio.sleep(0.02)
    assert not writing.done() and world.there.appends[2].frames == []
    world.there.groups[2].term = 4
    await writing
    assert (world.here.appends[1].ended, world.there.appends[2].ended) == ([0], [1])


async def test_no_room_is_waited_for(world: World) -> None:
    world.there.appends[2].errors = [StorageFull("full"), StorageFull("full")]
    world.here.appends[1].errors = [NotLeader("no"), StorageFull("full")]
    await world.write(0, 1)
    assert (world.here.appends[1].ended, world.there.appends[2].ended) == ([0], [1])


async def test_a_newer_coordinator_ends_it_and_the_others_have_theirs(world: World) -> None:
    world.there.appends[2].refusals = {1: FENCED}
    with pytest.raises(RequestError) as caught:
        await world.write(0, 1, 2)
    assert caught.value.error is FENCED
    assert (world.here.appends[1].ended, world.there.appends[2].ended) == ([0], [2])


async def test_a_newer_epoch_ends_it(world: World) -> None:
    world.here.appends[1].refusals = {0: WRONG_EPOCH}
    with pytest.raises(RequestError) as caught:
        await world.write(0, 1)
    assert caught.value.error is WRONG_EPOCH and world.there.appends[2].ended == [1]


# --- topics that go -------------------------------------------------------------------------------------


async def test_a_deleted_topic_needs_no_marker(world: World) -> None:
    del world.here.spread[1], world.there.spread[1]
    await world.write(0, 1)
    assert world.there.appends[2].frames == []


async def test_a_topic_that_this_node_does_not_know_yet_is_waited_for(world: World) -> None:
    del world.here.spread[1]
    writing = asyncio.ensure_future(world.write(1))
    await asyncio.sleep(0.02)
    assert not writing.done()
    world.here.spread[1] = 2
    await writing
    assert world.there.appends[2].ended == [1]


async def test_only_a_controller_with_all_metadata_reports_deleted_topics(world: World) -> None:
    del world.here.spread[1], world.there.spread[1]
    controller = world.there.groups[METADATA_GROUP]
    controller.applied_index = 4
    writing = asyncio.ensure_future(world.write(1))
    await asyncio.sleep(0.02)
    assert not writing.done()
    controller.applied_index, controller.has_lease = 5, False
    await asyncio.sleep(0.02)
    assert not writing.done()
    controller.has_lease = True
    await writing


async def test_markers_of_a_closed_partition_are_sent_until_its_topic_is_deleted(
    world: World,
) -> None:
    del world.there.groups[2].logs[1]
    writing = asyncio.ensure_future(world.write(1, 2))
    await asyncio.sleep(0.02)
    assert not writing.done() and world.there.appends[2].ended == [2]
    del world.here.spread[1]
    await asyncio.sleep(0.02)
    assert not writing.done(), "the controller still has it"
    del world.there.spread[1]
    await writing


# --- many at once ---------------------------------------------------------------------------------------


async def _turns() -> None:
    """Of the loop, enough for whoever waits for nobody else: a busy machine may have few in any time."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_what_waits_for_a_group_goes_together(world: World) -> None:
    world.way.hold = asyncio.Event()
    ends = [TxnMarkerEntry(each, 0, 3, each % 2 == 0, 1) for each in range(50)]
    writing = [asyncio.ensure_future(world.write(1, marker=each)) for each in ends[:1]]
    await _turns()
    writing += [asyncio.ensure_future(world.write(1, 2, marker=each)) for each in ends[1:]]
    await _turns()
    assert 1 < len(world.way.questions) <= of_markers.MAX_REQUESTS
    world.way.hold.set()
    await asyncio.gather(*writing)
    assert len(world.way.questions) <= of_markers.MAX_REQUESTS
    assert sorted(marker.producer_id for _, marker in world.there.appends[2].frames) == list(range(50))
    assert all(marker == ends[marker.producer_id] for _, marker in world.there.appends[2].frames)


async def test_questions_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_markers, "MAX_PARTITIONS", 3)
    monkeypatch.setattr(of_markers, "MAX_IN_FRAME", 1)
    await asyncio.gather(
        *(world.write(1, 2, marker=TxnMarkerEntry(each, 0, 3, True, 1)) for each in range(6))
    )
    assert [len(each["endings"]) for each in world.way.questions] == [1] * 6
    assert [len(indexes) for indexes, _ in world.there.appends[2].frames] == [1] * 12


async def test_a_marker_queued_at_the_last_response_does_not_wait(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes in the turn in which the answer does: the sender has nothing more to send, and is not gone."""
    monkeypatch.setattr(of_markers, "MAX_REQUESTS", 1)

    async def one_after_the_other() -> None:
        for each in range(5):  # puts again in the very step that the answer wakes
            await world.here.markers._end(
                2, PendingMarkers(TxnMarkerEntry(each, 0, 3, True, 1), 4, [(TOPIC, 1)])
            )

    await asyncio.wait_for(one_after_the_other(), 5)
    assert len(world.there.appends[2].frames) == 5


async def test_a_coordinator_that_is_closed_sends_no_more_requests(world: World) -> None:
    world.way.leaders = {}
    writing = asyncio.ensure_future(world.write(1))
    await _turns()
    writing.cancel()
    await asyncio.wait([writing])
    asked = len(world.way.questions)
    assert asked
    world.way.leaders = {2: world.other_way}
    await asyncio.sleep(0.02)
    assert len(world.way.questions) <= asked + 1 and len(world.there.appends[2].frames) <= 1


@pytest.mark.parametrize("answer", [b"", b"[]", b"[[]]", b"[[0, 0]]", b"[[77777]]", b"null", b'{"a": 1}'])
async def test_an_answer_that_makes_no_sense_is_none(world: World, answer: bytes) -> None:
    world.way.answers = [answer, answer]
    await world.write(1)
    assert len(world.way.questions) == 3


@pytest.mark.parametrize("answer", [b"", b"null", b"[-1]", b"[1]", b'{"a": 1}', b"7", b'["0"]'])
async def test_deleted_partitions_have_an_error_of_their_own(world: World, answer: bytes) -> None:
    del world.here.spread[1], world.there.spread[1]
    world.way.answers = [answer]
    await world.write(1)
    assert len(world.way.questions) == 2


async def test_a_transaction_that_waits_long_is_logged(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(of_markers, "WARNING_INTERVAL_SECONDS", 0.0)
    world.there.groups[2].lost = [True] * 3
    await world.write(1)
    assert [each.getMessage() for each in caplog.records] == [
        "the end of a transaction of producer 7 waits for 1 partitions, t-1 first: "
        "this broker does not lead the partition"
    ]


# --- what a peer says -----------------------------------------------------------------------------------

GOOD = [7, 0, 3, True, 1, 4, [[TOPIC.hex(), 1]]]


def _with(at: int, value: object) -> list[object]:
    return [*GOOD[:at], value, *GOOD[at + 1 :]]


@pytest.mark.parametrize(
    "ending",
    [
        [],
        None,
        GOOD[:6],
        _with(0, -1),
        _with(0, 1 << 63),
        _with(0, "7"),
        _with(1, -1),
        _with(1, 1 << 15),
        _with(2, -2),
        _with(2, 1 << 31),
        _with(3, 1),
        _with(4, 3),
        _with(4, -1),
        _with(6, [["07", 1]]),
        _with(6, [[TOPIC.hex(), -1]]),
        _with(6, [[TOPIC.hex(), 1 << 31]]),
        _with(6, [[TOPIC.hex()]]),
        _with(6, [["no hex", 1]]),
    ],
)
async def test_a_question_that_makes_no_sense_changes_nothing(world: World, ending: object) -> None:
    handler = world.other_way.handlers[RequestKind.MARKERS]
    body = {"do": "end", "group": 2, "endings": [GOOD, ending]}
    with pytest.raises(PeerError, match="malformed"):
        await handler(1, json.dumps(body).encode())
    assert world.there.appends[2].frames == []
    await handler(1, json.dumps(body | {"endings": [GOOD]}).encode())
    assert world.there.appends[2].ended == [1]


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"do": "absent", "partitions": [1]}']
)
async def test_no_question(world: World, body: bytes) -> None:
    with pytest.raises(PeerError, match="malformed"):
        await world.other_way.handlers[RequestKind.MARKERS](1, body)


async def test_a_node_that_does_not_lead_reports_that(world: World) -> None:
    for number in (1, 3):
        with pytest.raises(NotLeaderHere):
            body = {"do": "end", "group": number, "endings": [GOOD]}
            await world.other_way.handlers[RequestKind.MARKERS](1, json.dumps(body).encode())


# --- an admin tool --------------------------------------------------------------------------------------


async def test_written_here_for_an_admin(world: World) -> None:
    appends = world.there.appends[2]
    unknown, moved = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER

    async def codes(*indexes: int, marker: TxnMarkerEntry = COMMIT) -> list[ErrorCode]:
        found = await world.there.markers.write_here([("t", index) for index in indexes], marker)
        return [found["t", index] for index in indexes]

    assert await codes(0, 1, 2, 9) == [moved, ErrorCode.NONE, ErrorCode.NONE, unknown]
    assert appends.frames == [([1, 2], COMMIT)]
    appends.refusals = {1: FENCED}
    assert await codes(1, 2) == [FENCED, ErrorCode.NONE]
    appends.refusals = {}
    appends.errors = [StorageFull("full")]
    assert await codes(1, 2) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    world.there.groups[2].lost = [True]
    assert await codes(1) == [moved]
    for nobodys in (COMMIT._replace(producer_id=-1), COMMIT._replace(producer_epoch=-1)):
        assert await codes(1, 9, marker=nobodys) == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
