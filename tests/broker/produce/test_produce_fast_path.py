"""The fast path does what `Produce` does, or nothing: two nodes side by side, and what is declined. Each test
runs with the path in Python, and with its C extension where that is built."""

from __future__ import annotations

import asyncio
import gc
import struct
import tempfile
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from lockstep import extension
from lockstep.broker.network.connection import Connection
from lockstep.broker.produce import produce_fast_path
from lockstep.broker.produce.produce_fast_path import PlainRequests, ProduceFastPath
from lockstep.broker.requests import time_slices
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.api import ApiKey
from lockstep.protocol.messages.api_versions import ApiVersionsResponse
from lockstep.protocol.records.batch import crc_of
from lockstep.protocol.records.compression import Codec
from tests.broker.appends import HOUR_MS, NOW_MS, batch, changed
from tests.broker.fake_partitions import SETTINGS
from tests.broker.network.rig import ask
from tests.broker.produce import fast_path_rig
from tests.broker.produce.fast_path_rig import COMPILED, CONFIGS, PYTHON, Pair, receive, request

VERSIONS = range(3, 14)
NEEDS_EXTENSION = pytest.mark.skipif(extension.load()[0] is None, reason="`make extension` builds it")
LAST_SEQUENCE = (1 << 31) - 1


@pytest.fixture(autouse=True)
def one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request takes longer than a time slice, however busy the machine is."""
    monkeypatch.setattr(time_slices, "clock", lambda: 0.0)


@pytest.fixture(params=[PYTHON, pytest.param(COMPILED, marks=NEEDS_EXTENSION)])
def fast(request: pytest.FixtureRequest) -> str:
    """Which fast path."""
    return str(request.param)


@pytest.fixture
async def pair(tmp_path: Path, fast: str) -> AsyncIterator[Pair]:
    opened = await Pair(tmp_path, fast).open()
    yield opened
    await opened.close()


def plain(*values: bytes, **more: Any) -> bytes:
    return bytes(batch(*values, **more))


def idempotent(sequence: int, *values: bytes, epoch: int = 0, producer_id: int = 9) -> bytes:
    return plain(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


async def taken(pair: Pair, *requests: bytes) -> list[int]:
    """Send each after the commit of the one before; how many of them the fast path took, after each."""
    found = []
    for each in requests:
        pair.receive(each)
        await pair.commit()
        found.append(pair.fast.taken)
    return found


@pytest.mark.parametrize("version", VERSIONS)
async def test_requests_like_the_last_one_are_not_decoded(pair: Pair, version: int) -> None:
    one = request((0, plain(b"a")), version=version)
    two = request((1, plain(b"bb", b"c" * 200)), version=version, correlation_id=7)
    large = request((1, plain(b"c" * 20_000)), version=version, correlation_id=8)
    several = request((2, plain(b"d")), (0, plain(b"e" * 200)), version=version, correlation_id=9)
    other_acks = request((0, plain(b"f")), version=version, acks=1)
    assert await taken(pair, one, one, two, large, several, other_acks) == [0, 1, 2, 3, 4, 5]


async def test_requests_of_one_read_have_one_waiter_and_one_write(pair: Pair) -> None:
    pair.receive(request((0, plain())))
    await pair.commit()
    pair.receive(b"".join(request((0, plain()), correlation_id=number) for number in range(20)))
    assert len(pair.fast.group.open_waiters._waiters) == 1
    assert [correlation_id for correlation_id, _ in await pair.commit()] == list(range(20))
    assert pair.fast.taken == 20


@pytest.mark.parametrize("topic", sorted(set(CONFIGS) - {"plain", "small", "not-new"}))
async def test_a_topic_whose_records_are_opened_is_declined(pair: Pair, topic: str) -> None:
    assert await taken(pair, *[request((0, plain()), topic=topic)] * 3) == [0, 0, 0]


async def test_what_is_not_plain_is_declined(pair: Pair) -> None:
    first = request((0, plain()))
    assert await taken(pair, first, first) == [0, 1]
    late, early = plain(timestamp_ms=NOW_MS + HOUR_MS + 1), plain(timestamp_ms=NOW_MS + HOUR_MS)
    cases = {
        "acks=0": request((0, plain()), acks=0),
        "a transactional id": request((0, plain()), transactional_id="t"),
        "an unknown topic": request((0, plain()), topic="nope"),
        "an unknown partition": request((7, plain())),
        "the same partition twice": request((0, plain()), (0, plain())),
        "no batch": request(),
        "a null batch": request((0, None)),  # type: ignore[arg-type]
        "a wrong checksum": request((0, plain()[:-1] + b"!")),
        "a batch from the future": request((0, late)),
        "zstd in an old version": request((0, plain(codec=Codec.ZSTD)), version=6),
        "a first batch of a producer": request((0, idempotent(0))),
        "a transactional batch": request((0, changed(batch(), attributes=0x10))),
        "a control batch": request((0, changed(batch(), attributes=0x20))),
        "append time": request((0, changed(batch(), attributes=0x08))),
        "too many records": request((0, changed(batch(), record_count=9, last_offset_delta=8))),
        "a newest time before the first": request((0, changed(batch(), max_timestamp=5))),
        "an offset": request((0, changed(batch(), base_offset=5))),
        "a good one and a bad one": request((0, plain()), (1, plain()[:-1] + b"!")),
    }
    for what, declined in cases.items():
        pair.connect()
        before = pair.fast.taken
        assert await taken(pair, first, first, declined) == [before, before + 1, before + 1], what
    assert (await taken(pair, request((0, early)), request((0, plain(codec=Codec.ZSTD)))))[-1] == before + 3


async def test_a_long_start_is_not_remembered(pair: Pair) -> None:
    """The header's tagged fields may be as long as a request."""
    body = request((0, plain()))[4:]
    tags_at = 10 + struct.unpack_from(">h", body, 8)[0]
    assert body[tags_at] == 0

    def with_tag(size: int) -> bytes:
        """One tagged field of a size whose compact length has two bytes."""
        tag = bytes([1, 9, size & 0x7F | 0x80, size >> 7]) + bytes(size)
        found = body[:tags_at] + tag + body[tags_at + 1 :]
        return struct.pack(">i", len(found)) + found

    assert await taken(pair, with_tag(800), with_tag(800)) == [0, 1]
    assert await taken(pair, *[with_tag(8_000)] * 4) == [1, 1, 1, 1]


async def test_many_batches_are_left_to_the_time_slices(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_path_rig, "PARTITIONS", 127)
    for node in pair.nodes:
        await node.make_topic("wide", bytes([50] * 16), {})
    for version in (8, 9):
        pair.connect()
        before = pair.fast.taken
        many, fewer = (
            request(*[(each, plain()) for each in range(count)], topic="wide", version=version)
            for count in (127, 126)
        )
        assert await taken(pair, many, fewer, fewer, many) == [
            before,
            before + 1,
            before + 2,
            before + 2,
        ]


async def test_only_so_many_responses_stay_prepared(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions are forgotten beyond the limit, also in the middle of a request."""
    monkeypatch.setattr(produce_fast_path, "MAX_PREPARED", 2)
    path = pair.fast.shared.fast_paths[ApiKey.PRODUCE]
    assert isinstance(path, ProduceFastPath)
    for version in (8, 9, 13):
        pair.connect()
        every = request((0, plain()), (1, plain()), (2, plain()), version=version)
        before = pair.fast.taken
        assert await taken(pair, every, every, every) == [before, before + 1, before + 2]
        kept = list(path._topics.values())
        assert sum(len(each._partitions) for each in kept) in (1, 2)


async def test_a_closed_connection_is_freed_at_once(pair: Pair) -> None:
    """Its receive buffer does not wait for the garbage collector."""
    one = request((0, plain()))

    def connections() -> int:
        return sum(type(each) is Connection for each in gc.get_objects())

    async def visit() -> None:
        """A client that comes, produces and goes."""
        connection, _ = pair.fast.connect()
        for _ in range(2):
            receive(connection, one)
            await pair.fast.group.committed()
        await asyncio.sleep(0)
        connection.connection_lost(None)

    gc.collect()
    gc.disable()
    try:
        before, visits = connections(), pair.fast.taken
        await visit()
        await asyncio.sleep(0)
        assert pair.fast.taken == visits + 1
        assert connections() == before
    finally:
        gc.enable()


async def test_an_idempotent_producer_continues(pair: Pair) -> None:
    first, second = request((0, idempotent(0, b"a", b"b"))), request((0, idempotent(2)))
    assert await taken(pair, first, second, request((0, idempotent(3)))) == [0, 1, 2]
    duplicate, gap = second, request((0, idempotent(7)))
    next_epoch, fenced = request((0, idempotent(0, epoch=1))), request((0, idempotent(4)))
    assert await taken(pair, duplicate, gap, next_epoch, fenced) == [2, 2, 2, 2]
    assert (await taken(pair, request((0, idempotent(1, epoch=1)))))[-1] == 3
    other_partition = request((1, idempotent(2, epoch=1)))
    assert (await taken(pair, other_partition))[-1] == 3, "the first batch of a partition is declined"


async def test_sequences_wrap_around(pair: Pair) -> None:
    for node in pair.nodes:
        node.producers._producer(node.cluster.topics["plain"].partitions[0].log.local_id, 9, 0).append(
            LAST_SEQUENCE - 3, LAST_SEQUENCE - 2, 0, NOW_MS
        )
    pair.receive(request((1, plain())))
    wrapping = request((0, idempotent(LAST_SEQUENCE - 1, b"a", b"b", b"c")))
    assert await taken(pair, wrapping, request((0, idempotent(1))), request((0, idempotent(0)))) == [1, 2, 2]


@pytest.mark.parametrize("version", [8, 13])
async def test_every_byte_may_differ(pair: Pair, version: int) -> None:
    """A request is followed by one that differs in one byte, with a right checksum and with a wrong one."""
    good = request((0, idempotent(1, b"abc")), (1, plain(b"d")), version=version, correlation_id=0x01020304)
    start = good.index(idempotent(1, b"abc"))
    for at in range(4, len(good)):
        for change in (0x01, 0x80):
            await pair_with_producer(pair, version)
            other = bytearray(good)
            other[at] ^= change
            if at >= start + 21:
                size = struct.unpack_from(">i", good, start + 8)[0] + 12
                struct.pack_into(">I", other, start + 17, crc_of(other, start, size))
            pair.receive(good[:4] + bytes(other[4:]))
            await pair.commit()


async def pair_with_producer(pair: Pair, version: int) -> None:
    """New connections that have sent a request; the producer continues with sequence 1."""
    pair.connect()
    for node in pair.nodes:
        producers = node.producers._partitions
        for number in [log.local_id for log in node.group.partitions.values()]:
            producers.pop(number, None)
        node.cluster.first_sequences._topics.clear()
    first = request((0, idempotent(0)), version=version)
    pair.receive(first, request((1, plain()), version=version))
    await pair.commit()


# --- any requests -------------------------------------------------------------------------------------------


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch that may be good."""
    values = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=3))
    fields: dict[str, Any] = {"codec": draw(st.sampled_from([Codec.NONE] * 4 + [Codec.GZIP, Codec.ZSTD]))}
    if draw(st.booleans()):
        fields["producer_id"] = draw(st.integers(1, 2))
        fields["producer_epoch"] = draw(st.sampled_from([0, 0, 0, 1, 2, -1]))
        fields["base_sequence"] = draw(st.integers(0, 6) | st.sampled_from([-1, LAST_SEQUENCE]))
    fields["timestamp_ms"] = draw(
        st.sampled_from([NOW_MS, NOW_MS, -1, 0, NOW_MS - 2_000, NOW_MS + 1, NOW_MS + 2 * HOUR_MS])
    )
    made = bytearray(batch(*values, **fields))
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(made) - 1))
        made[at] = draw(st.integers(0, 255))
        if draw(st.booleans()):
            struct.pack_into(">I", made, 17, crc_of(made, 0, len(made)))
    return bytes(made)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request that may be good, and like the one before."""
    version = draw(st.sampled_from([*VERSIONS, 9, 9, 9, 9, 9, 9]))
    topic = draw(st.sampled_from(["plain"] * 12 + [*CONFIGS, "nope"]))
    indexes = draw(st.lists(st.sampled_from([0, 0, 1, 2, 3]), min_size=1, max_size=3))
    data = [(index, draw(batches() | st.none() | st.just(b""))) for index in indexes]
    number = list(CONFIGS).index(topic) + 1 if topic in CONFIGS else 99
    made = request(
        *data,  # type: ignore[arg-type]
        topic=topic,
        version=version,
        topic_id=bytes([number] * 16),
        acks=draw(st.sampled_from([-1] * 6 + [1, 1, 0, 2])),
        transactional_id=draw(st.sampled_from([None] * 8 + ["", "t"])),
        correlation_id=draw(st.integers(0, 1000)),
    )
    if draw(st.integers(0, 5)):
        return made
    body = bytearray(made[4:])
    if draw(st.booleans()):
        body[draw(st.integers(0, min(60, len(body)) - 1))] = draw(st.integers(0, 255))
    else:
        del body[draw(st.integers(0, len(body))) :]
    return struct.pack(">i", len(body)) + bytes(body)


STEPS = st.lists(
    st.lists(requests(), min_size=1, max_size=4) | st.sampled_from(["commit", "change", "later"]), max_size=8
)


def test_any_requests_leave_the_same(loop_of_pairs: tuple[asyncio.AbstractEventLoop, Pair]) -> None:
    loop, pair = loop_of_pairs

    @settings(max_examples=150)
    @given(STEPS)
    def run(steps: list[Any]) -> None:
        loop.run_until_complete(example(pair, steps))

    run()


async def example(pair: Pair, steps: list[Any]) -> None:
    """Any requests over new topics, each read compared before its commit and after it."""
    for node in pair.nodes:
        await node.renew()
    pair.connect()
    before = pair.fast.taken
    pair.receive(request((0, plain())))
    for step in steps:
        if step == "commit":
            await pair.commit()
        elif step == "change":
            for node in pair.nodes:
                node.cluster.changes += 1
        elif step == "later":
            for node in pair.nodes:
                node.now_ms += 1
        else:
            pair.receive(b"".join(step))
            if pair.transports[0].closed:
                break
    await pair.commit()
    event(f"the fast path took some: {pair.fast.taken > before}")


@pytest.fixture
def loop_of_pairs(fast: str) -> Any:
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as directory:
        pair = loop.run_until_complete(Pair(Path(directory), fast).open())
        yield loop, pair
        loop.run_until_complete(pair.close())
    loop.close()


# --- changes between requests -------------------------------------------------------------------------------


async def test_a_change_of_the_topic_is_seen(pair: Pair) -> None:
    """Each is made after requests that the fast path took, whose bytes come again."""
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    for node in pair.nodes:
        topic = node.cluster.topics["plain"]
        topic.config = topic_config({"compression.type": "gzip"}, SETTINGS)
        node.cluster.changes += 1
    assert await taken(pair, one) == [1]
    for node in pair.nodes:
        del node.cluster.topics["plain"]
        node.cluster.changes += 1
    pair.connect()
    assert await taken(pair, one, one) == [1, 1]
    for node in pair.nodes:
        await node.make_topic("plain", bytes([77] * 16), {})
    assert (await taken(pair, *[one] * 4))[-1] > 1
    assert all(node.cluster.topics["plain"].partitions[0].log.next_offset == 4 for node in pair.nodes)
    by_id = request((0, plain()), version=13)
    assert (await taken(pair, by_id))[-1] == pair.fast.taken, "the id of the deleted topic stays unknown"


async def test_an_older_request_that_waits_keeps_its_place(pair: Pair) -> None:
    """The fast path appends behind a request that is not answered yet, and responds after it."""
    one = request((0, plain()), correlation_id=1)
    assert await taken(pair, one, one) == [0, 1]
    pair.receive(ask(2), request((0, plain()), correlation_id=3), ask(4))
    assert await pair.commit() == []
    assert pair.fast.taken == 2
    for node in pair.nodes:
        dict(node.slow.asked)[2].complete(ApiVersionsResponse())
    assert [correlation_id for correlation_id, _ in await pair.commit()] == [2, 3]
    for node in pair.nodes:
        dict(node.slow.asked)[4].complete(ApiVersionsResponse())
    assert [correlation_id for correlation_id, _ in await pair.commit()] == [4]


async def test_too_many_in_flight_are_left_unread(pair: Pair) -> None:
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    for node in pair.nodes:
        node.shared.max_in_flight = 3
    pair.receive(b"".join(request((0, plain()), correlation_id=number) for number in range(10)))
    assert [transport.reading for transport in pair.transports] == [False, False]
    assert len(pair.fast.group._open._entries) == 3
    found: list[int] = []
    while len(found) < 10:
        found += [correlation_id for correlation_id, _ in await pair.commit()]
    assert found == list(range(10))
    assert [transport.reading for transport in pair.transports] == [True, True]


async def test_no_memory_for_requests(pair: Pair) -> None:
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    for node in pair.nodes:
        node.shared.max_in_flight_bytes = 0
    pair.receive(one + one)
    assert [len(node.group._open._entries) for node in pair.nodes] == [1, 1]
    assert [transport.reading for transport in pair.transports] == [False, False]
    found = await pair.commit()
    assert len(found + await pair.commit()) == 2


async def test_a_lost_leadership_fails_what_is_not_committed(pair: Pair) -> None:
    for version in (9, 10, 13):
        one = request((0, plain()), version=version)
        pair.connect()
        before = pair.fast.taken
        assert await taken(pair, one, one) == [before, before + 1]
        several = request((1, plain()), (2, plain()), version=version, correlation_id=2)
        pair.receive(request((0, plain()), version=version, correlation_id=1), several)
        for node in pair.nodes:
            node.group.on_not_accepting()
        assert [each for each, _ in await pair.commit()] == [1, 2]
        pair.receive(request((0, plain()), version=version, correlation_id=3))
        assert [each for each, _ in await pair.commit()] == [3], "rejected at once"
        for node in pair.nodes:
            node.group._serve(True)
        pair.receive(request((0, plain()), version=version, correlation_id=4))
        assert [each for each, _ in await pair.commit()] == [4]
        assert pair.fast.taken == before + 4


@pytest.mark.parametrize("limit", ["disk", "backlog", "frame"])
async def test_no_room_is_declined(pair: Pair, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    for node in pair.nodes:
        if limit == "disk":
            monkeypatch.setattr(node.group.log, "has_space_for", lambda *_, **__: False)
        elif limit == "backlog":
            node.group._options = replace(node.group._options, max_uncommitted_bytes=10)
            node.group.plain._max_uncommitted_bytes = 10
        else:
            node.group._open._max_frame_bytes = 300
    pair.receive(one, one)
    assert len(await pair.commit()) == 2
    assert pair.fast.taken == (2 if limit == "frame" else 1)


async def test_a_connection_that_closes_before_the_commit(pair: Pair) -> None:
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    pair.receive(one, one)
    for connection in pair.connections:
        connection.connection_lost(None)
    pair.compare()
    assert [node.shared.in_flight_bytes for node in pair.nodes] == [0, 0]
    assert await pair.commit() == []


async def test_a_connection_that_fails_leaves_the_others_theirs(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    failing, transport = pair.fast.connect()
    for _ in range(2):
        receive(failing, one)
        await pair.fast.group.committed()
    receive(failing, one)
    monkeypatch.setattr(Connection, "on_reply", fail_for(failing))
    receive(pair.connections[1], one)
    pair.transports[1].writes.clear()
    await pair.fast.group.committed()
    await asyncio.sleep(0)
    assert transport.closed and not pair.transports[1].closed
    assert len(pair.transports[1].writes) == 1
    assert "a connection failed" in caplog.text


def fail_for(failing: Connection) -> Any:
    """`Connection.on_reply`, which fails for one of them."""
    real = Connection.on_reply

    def on_reply(connection: Connection, reply: Any) -> None:
        if connection is failing:
            raise ValueError("planted")
        real(connection, reply)

    return on_reply


async def test_shutdown_lets_what_is_in_flight_be_answered(pair: Pair) -> None:
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    pair.receive(one)
    assert [connection.has_requests for connection in pair.connections] == [True, True]
    for connection in pair.connections:
        connection.quiesce()
    assert len(await pair.commit()) == 1
    assert [connection.is_busy for connection in pair.connections] == [False, False]


async def test_nobody_keeps_what_is_gone(pair: Pair) -> None:
    """A closed connection, one that is idle, and a deleted topic whose producers are silent."""
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    node = pair.fast
    closing, _ = node.connect()
    receive(closing, one)
    await node.group.committed()
    receive(closing, one)
    await node.group.committed()
    connection, topic = weakref.ref(closing), weakref.ref(node.cluster.topics.pop("plain"))
    node.cluster.changes += 1
    closing.connection_lost(None)
    gc.disable()
    try:
        del closing
        assert connection() is None, "without the garbage collector"
    finally:
        gc.enable()
    for now in (1.0, 2.0, 3.0):
        node.shared.reap_idle(now)
    gc.collect()
    assert topic() is None
    assert not pair.transports[1].closed


async def test_locks_of_a_former_setting_are_declined(pair: Pair) -> None:
    """The log knows of locks that this node's topic no longer has."""
    one = request((0, plain()))
    assert await taken(pair, one, one) == [0, 1]
    for node in pair.nodes:
        node.cluster.topics["plain"].config = topic_config({"lockstep.locks": "true"}, SETTINGS)
        node.cluster.changes += 1
    assert await taken(pair, one) == [1]
    for node in pair.nodes:
        node.cluster.topics["plain"].config = topic_config({}, SETTINGS)
        node.cluster.changes += 1
    assert await taken(pair, one, one) == [1, 2], "the first ends the locks"


async def test_a_producer_that_is_never_plain_is_hardly_looked_at(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = 0
    real = PlainRequests._learn

    def learn(*arguments: Any) -> Any:
        nonlocal seen
        seen += 1
        return real(*arguments)

    monkeypatch.setattr(PlainRequests, "_learn", learn)
    pair.receive(*[request((0, plain()), topic="compacted")] * 500)
    assert seen == 13, "after 0, 1, 3, 7, 15, 31 and 63 others, then after 63 each"
