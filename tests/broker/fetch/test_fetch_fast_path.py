"""The fast path does what `Fetch` does, or nothing: two nodes side by side, and what is declined."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.fetch.fetch_fast_path import PlainFetches
from lockstep.protocol.compiler import decode
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.api_versions import ApiVersionsResponse
from lockstep.protocol.messages.fetch import FetchResponse, ReplicaState
from lockstep.protocol.records.control import ControlKind, build
from tests.broker.fake_partitions import SETTINGS
from tests.broker.fetch.fetch_rig import TOPICS, Pair, request, transactional, write
from tests.broker.network.rig import ask
from tests.broker.produce.fast_path_rig import receive
from tests.broker.wire import batch

PLAIN_VERSIONS = range(11, 19)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    opened = await Pair(tmp_path).open()
    yield opened
    await opened.close()


async def answers(pair: Pair, *requests: bytes, version: int = 12) -> list[FetchResponse]:
    """The responses to requests, each sent after the one before."""
    found = []
    for each in requests:
        pair.receive(each)
        for _, body in await pair.settle():
            at = 1 if version >= 12 else 0
            found.append(decode(FetchResponse, version, body, at))
    return found


async def session(pair: Pair, version: int, *wanted: tuple[str, int, int], **fields: Any) -> int:
    """The id of a new session."""
    new = request(pair, *wanted, version=version, session_epoch=0, max_wait_ms=0, **fields)
    (answer,) = await answers(pair, new, version=version)
    assert answer.session_id > 0
    return answer.session_id


@pytest.mark.parametrize("version", PLAIN_VERSIONS)
async def test_requests_like_the_last_one_are_not_decoded(pair: Pair, version: int) -> None:
    await write(pair, batch(b"a"), batch(b"b" * 9000), batch(b"c"))
    for offset, taken in ((0, 0), (1, 1), (2, 2), (0, 3)):
        (answer,) = await answers(pair, request(pair, ("one", 0, offset), version=version), version=version)
        assert answer.responses[0].partitions[0].records
        assert pair.fast.taken == taken
    several = request(pair, ("one", 1, 0), ("one", 0, 1), ("two", 0, 0), version=version, correlation_id=9)
    assert len((await answers(pair, several, version=version))[0].responses) == 2
    assert pair.fast.taken == 4


@pytest.mark.parametrize("version", PLAIN_VERSIONS)
async def test_a_session_goes_on(pair: Pair, version: int) -> None:
    await write(pair, batch(b"a"), batch(b"b"))
    wanted = ("one", 0, 0), ("one", 1, 0), ("two", 0, 0)
    number = await session(pair, version, *wanted, max_bytes=1)

    async def more(epoch: int, *moved: tuple[str, int, int]) -> FetchResponse:
        each = request(
            pair, *moved, version=version, session_id=number, session_epoch=epoch, max_wait_ms=0, max_bytes=1
        )
        return (await answers(pair, each, version=version))[0]

    assert (await more(1, ("one", 0, 1))).responses[0].partitions[0].records
    assert not (await more(2, ("one", 0, 2))).responses
    await write(pair, batch(b"d"), topic="two")
    assert (await more(3)).responses[0].partitions[0].high_watermark == 1
    assert (await more(4, ("two", 0, 1), ("one", 0, 1))).responses
    assert (await more(9)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert pair.fast.taken == 4


@pytest.mark.parametrize("version", range(4, 11))
async def test_older_versions_are_declined(pair: Pair, version: int) -> None:
    await write(pair, batch(b"a"))
    await answers(pair, *[request(pair, ("one", 0, 0), version=version)] * 3, version=version)
    assert pair.fast.taken == 0


async def test_what_is_not_plain_is_declined(pair: Pair) -> None:
    await write(pair, batch(b"a"), batch(b"b"))
    first = request(pair, ("one", 0, 0), version=15)

    def other(*wanted: tuple[str, int, int], **fields: Any) -> bytes:
        return request(pair, *(wanted or (("one", 0, 0),)), version=15, max_wait_ms=0, **fields)

    cases = {
        "an unknown topic": other(("three", 0, 0)),
        "an unknown partition": other(("one", 7, 0)),
        "an offset above the log": other(("one", 0, 9)),
        "an offset below it": other(("one", 0, -5)),
        "an old leader epoch": other(leader_epoch=0),
        "a leader epoch to come": other(leader_epoch=99),
        "a last fetched epoch": other(last_fetched_epoch=1),
        "a partition twice": other(("one", 0, 0), ("one", 0, 1)),
        "nothing": request(pair, version=15, max_wait_ms=0),
        "a new session": other(session_epoch=0),
        "an unknown session": other(session_id=77, session_epoch=1),
        "an ended session": other(session_id=77),
        "a replica": other(replica_state=ReplicaState(replica_id=1)),
        "a partition to forget": other(forgotten=(("one", 1),)),
        "one that is plain, one that is not": other(("one", 0, 0), ("one", 1, 9)),
    }
    for what, declined in cases.items():
        pair.connect()
        before = pair.fast.taken
        await answers(pair, first, first, declined, version=15)
        assert pair.fast.taken == before + 1, what
    (leader_epoch,) = {
        node.group.leader_epoch(node.cluster.topics["one"].partitions[0].log) for node in pair.nodes
    }
    pair.connect()
    before = pair.fast.taken
    await answers(pair, first, first, other(leader_epoch=leader_epoch), version=15)
    assert pair.fast.taken == before + 2


async def test_a_client_in_a_rack(pair: Pair) -> None:
    """Its requests are plain as long as nobody is sent to another replica."""
    await write(pair, batch(b"a"))
    one = request(pair, ("one", 0, 0), rack_id="r")
    await answers(pair, one, one)
    assert pair.fast.taken == 1
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    for node in pair.nodes:
        node.cluster.settings = replace(SETTINGS, replica_selector_class=selector)
        node.cluster.node_count = 1  # type: ignore[attr-defined]
        node.cluster.nodes_of = lambda group_id: (1,)  # type: ignore[attr-defined]
    await answers(pair, one, one)
    assert pair.fast.taken == 1


# --- waiting ------------------------------------------------------------------------------------------------


async def waiting(pair: Pair, version: int = 12, **fields: Any) -> int:
    """A plain request of a session over all partitions waits at the end of the log; the session's id."""
    wanted = [(name, index, 0) for name in TOPICS for index in (0, 1)]
    number = await session(pair, version, *wanted, **fields)
    before = pair.fast.taken
    waits = request(pair, version=version, session_id=number, session_epoch=1, correlation_id=5, **fields)
    assert await answers(pair, waits, version=version) == []
    assert pair.fast.taken == before + 1
    assert [node.purgatory.count for node in pair.nodes] == [1, 1]
    return number


@pytest.mark.parametrize("version", [11, 12, 13, 18])
async def test_records_that_come_end_the_wait(pair: Pair, version: int) -> None:
    await waiting(pair, version)
    await write(pair, batch(b"a"), topic="two", index=1)
    ((correlation_id, body),) = await pair.settle()
    assert correlation_id == 5
    answer: FetchResponse = decode(FetchResponse, version, body, int(version >= 12))
    assert answer.responses[0].partitions[0].records
    assert [node.purgatory.count for node in pair.nodes] == [0, 0]


@pytest.mark.parametrize("what", ["expired", "deleted", "not led", "cold", "moved back", "fails"])
async def test_a_wait_ends(pair: Pair, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await waiting(pair, 16)
    for node in pair.nodes:
        if what == "expired":
            node.expire()
        elif what == "deleted":
            node.delete_topic("one")
        elif what == "not led":
            node.lead(False)
        elif what == "moved back":
            node.cluster.topics["one"].partitions[0].log.log_start_offset = 5
            node.expire()
        elif what == "fails":
            monkeypatch.setattr(node.group, "read", fail, raising=False)
    if what == "cold":
        for node in pair.nodes:
            node.is_cold = True
        await write(pair, batch(b"a"))
    elif what == "fails":
        for node in pair.nodes:
            monkeypatch.setattr(node._read_ahead, "_read", fail)
        await write(pair, batch(b"a"))
    found = await pair.settle()
    if what == "fails":
        assert found == [] and [transport.closed for transport in pair.transports] == [True, True]
    else:
        assert [correlation_id for correlation_id, _ in found] == [5]
    assert [node.purgatory.count for node in pair.nodes] == [0, 0]


def fail(*_: object) -> None:
    raise ValueError("planted")


async def test_a_connection_that_closes_while_it_waits(pair: Pair) -> None:
    await waiting(pair)
    for connection in pair.connections:
        connection.connection_lost(None)
    assert await pair.settle() == []
    assert [node.purgatory.count for node in pair.nodes] == [0, 0]


async def test_shutdown_closes_a_connection_that_waits(pair: Pair) -> None:
    await waiting(pair)
    for connection in pair.connections:
        connection.quiesce()
    assert await pair.settle() == []
    assert [transport.closed for transport in pair.transports] == [True, True]
    assert [node.purgatory.count for node in pair.nodes] == [0, 0]


async def test_another_fetch_waits_for_the_first(pair: Pair) -> None:
    number = await waiting(pair)
    second = request(pair, session_id=number, session_epoch=2, correlation_id=6, max_wait_ms=0)
    assert await answers(pair, second) == []
    await write(pair, batch(b"a"))
    assert [correlation_id for correlation_id, _ in await pair.settle()] == [5, 6]


async def test_more_than_a_byte_is_waited_for_by_the_general_path(pair: Pair) -> None:
    wanted = ("one", 0, 0)
    number = await session(pair, 12, wanted, min_bytes=100)
    assert await answers(pair, request(pair, session_id=number, session_epoch=1, min_bytes=100)) == []
    assert pair.fast.taken == 0
    await write(pair, batch(b"a"))
    assert await pair.settle() == []
    await write(pair, batch(b"a" * 100))
    assert len(await pair.settle()) == 1


# --- beside others ------------------------------------------------------------------------------------------


async def test_an_older_request_that_waits_keeps_its_place(pair: Pair) -> None:
    await write(pair, batch(b"a"))
    one = request(pair, ("one", 0, 0))
    await answers(pair, one, one)
    pair.receive(ask(2), request(pair, ("one", 0, 0), correlation_id=3), ask(4))
    assert await pair.settle() == []
    assert pair.fast.taken == 2
    for node in pair.nodes:
        dict(node.slow.asked)[2].complete(ApiVersionsResponse())
    assert [correlation_id for correlation_id, _ in await pair.settle()] == [2, 3]
    for node in pair.nodes:
        dict(node.slow.asked)[4].complete(ApiVersionsResponse())
    assert [correlation_id for correlation_id, _ in await pair.settle()] == [4]


async def test_a_client_that_does_not_read_is_throttled(pair: Pair) -> None:
    await write(pair, batch(b"a" * 5000))
    one = request(pair, ("one", 0, 0))
    await answers(pair, one, one)
    for node in pair.nodes:
        node.shared.write_buffer_bytes = 100
    for connection in pair.connections:
        connection.pause_writing()
    pair.receive(one, one)
    assert [transport.reading for transport in pair.transports] == [False, False]
    assert await pair.settle() == []
    for connection in pair.connections:
        connection.resume_writing()
    assert len(await pair.settle()) == 2
    assert [transport.reading for transport in pair.transports] == [True, True]


async def test_the_limits_of_all_clients(pair: Pair) -> None:
    await write(pair, *[batch(b"a" * 5000)] * 4)
    one = request(pair, ("one", 0, 0), ("one", 1, 0))
    await answers(pair, one, one)
    for node in pair.nodes:
        node.unsent_bytes.total = 1 << 40
        node.cluster.settings = replace(SETTINGS, lockstep_connection_write_buffer_bytes=6000)
    (answer,) = await answers(pair, one)
    assert len(bytes(answer.responses[0].partitions[0].records or b"")) < 6000  # type: ignore[arg-type]
    for node in pair.nodes:
        node.cluster.settings = replace(SETTINGS, fetch_max_bytes=1024)
    await answers(pair, one, one)
    assert pair.fast.taken == 4


@pytest.mark.parametrize("version", [11, 12])
async def test_committed_records_alone(pair: Pair, version: int) -> None:
    """Open transactions end the read; a list of aborted ones is made by the general path."""

    committed = {"isolation_level": 1, "max_wait_ms": 0, "version": version}
    await write(pair, batch(b"a"))
    one = request(pair, ("one", 0, 0), **committed)  # type: ignore[arg-type]
    await answers(pair, one, one, version=version)
    await write(pair, transactional(), batch(b"b"))
    (answer,) = await answers(pair, one, version=version)
    found = answer.responses[0].partitions[0]
    assert (found.high_watermark, found.last_stable_offset, found.aborted_transactions) == (3, 1, [])
    assert pair.fast.taken == 2
    marker = build(ControlKind.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5)
    await write(pair, marker)
    (answer,) = await answers(pair, one, version=version)
    assert len(answer.responses[0].partitions[0].aborted_transactions or ()) == 1
    assert pair.fast.taken == 2
    after = request(pair, ("one", 0, 4), **committed)  # type: ignore[arg-type]
    await answers(pair, after, after, version=version)
    assert pair.fast.taken == 4


async def test_a_topic_that_the_client_may_not_read_any_more(pair: Pair) -> None:
    """Asked again with each request, and at the end of a wait."""
    await waiting(pair)
    for node in pair.nodes:
        node.denied.add("one")
    await write(pair, batch(b"b"))
    ((_, body),) = await pair.settle()
    ended: FetchResponse = decode(FetchResponse, 12, body, 1)
    codes = {each.error_code for topic in ended.responses for each in topic.partitions}
    assert codes == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    pair.connect()
    before = pair.fast.taken
    denied, allowed = (request(pair, (name, 0, 0), max_wait_ms=0) for name in TOPICS)
    (answer,) = await answers(pair, denied)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await answers(pair, allowed, allowed, denied)
    assert pair.fast.taken == before + 2


async def test_a_lost_leadership_is_seen(pair: Pair) -> None:
    await write(pair, batch(b"a"))
    one = request(pair, ("one", 0, 0), version=16)
    await answers(pair, one, one, version=16)
    for node in pair.nodes:
        node.lead(False)
    (answer,) = await answers(pair, one, version=16)
    assert pair.fast.taken == 1, "a follower's copy is served by the general path"
    for node in pair.nodes:
        node.lead(True)
    await answers(pair, one, version=16)
    assert pair.fast.taken == 2
    assert answer.responses


async def test_a_topic_of_the_same_name_is_another_one(pair: Pair) -> None:
    await write(pair, batch(b"a"))
    by_name, by_id = request(pair, ("one", 0, 0)), request(pair, ("one", 0, 0), version=13)
    await answers(pair, by_name, by_name)
    for node in pair.nodes:
        node.delete_topic("one")
    assert (await answers(pair, by_name))[0].responses[0].partitions[0].error_code
    await pair.make_topic("one")
    (answer,) = await answers(pair, request(pair, ("one", 0, 0), max_wait_ms=0))
    assert answer.responses[0].partitions[0].high_watermark == 0
    (answer,) = await answers(pair, by_id, version=13)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_nobody_keeps_what_is_gone(pair: Pair) -> None:
    """A closed connection, also one that waited, and one that is idle."""
    one = request(pair, ("one", 0, 0))
    node = pair.fast
    closing, _ = node.connect()
    receive(closing, request(pair, ("one", 0, 0), max_wait_ms=0))
    receive(closing, one)
    assert node.taken == 1 and node.purgatory.count == 1
    connection, requests = weakref.ref(closing), closing._fast_requests
    assert isinstance(requests, PlainFetches)
    del requests
    closing.connection_lost(None)
    await asyncio.sleep(0)
    gc.disable()
    try:
        del closing
        assert connection() is None, "without the garbage collector"
    finally:
        gc.enable()
    receive(pair.connections[1], request(pair, ("one", 0, 0), max_wait_ms=0))
    assert pair.connections[1]._fast_requests is not None
    for now in (1.0, 2.0):
        node.shared.reap_idle(now)
    assert pair.connections[1]._fast_requests is None


async def test_a_consumer_that_is_never_plain_is_hardly_looked_at(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    real = PlainFetches._serve

    def serve(*arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        return real(*arguments)

    monkeypatch.setattr(PlainFetches, "_serve", serve)
    pair.receive(*[request(pair, ("nope", 0, 0), max_wait_ms=0)] * 500)
    await pair.settle()
    assert seen == 13, "after 0, 1, 3, 7, 15, 31 and 63 others, then after 63 each"


# --- any bytes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [11, 12, 16])
async def test_every_byte_may_differ(pair: Pair, version: int) -> None:
    """A request is followed by one that differs in one byte."""
    await write(pair, batch(b"a"), batch(b"b"))
    wanted = ("one", 0, 0), ("one", 1, 0), ("two", 0, 0)
    size = len(request(pair, *wanted, version=version, session_id=1001, session_epoch=2, correlation_id=7))
    for at in range(4, size):
        for change in (0x01, 0x80):
            pair.connect()
            pair.end_sessions()
            number = await session(pair, version, *wanted)
            first = {"session_id": number, "max_wait_ms": 0, "version": version}
            pair.receive(request(pair, *wanted, session_epoch=1, **first))  # type: ignore[arg-type]
            good = request(pair, *wanted, session_epoch=2, correlation_id=7, **first)  # type: ignore[arg-type]
            other = bytearray(good)
            other[at] ^= change
            pair.receive(bytes(other))
            for node in pair.nodes:
                node.expire()
            await pair.settle()
