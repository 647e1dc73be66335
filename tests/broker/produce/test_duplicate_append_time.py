"""What is told of a batch that its producer sends again: when it was appended, where log times count."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.duplicate_append_time import append_time_of_duplicate
from lockstep.protocol.records.batch import read_header
from lockstep.storage.types import Buffer, CorruptLog, OffsetOutOfRange, ReadResult
from tests.broker import wire
from tests.broker.appends import LIMITS, NOW_MS, Limits, World, idempotent
from tests.broker.wire import Client

STAMPED = Limits(log_append_time=True)
FIRST_MS, SECOND_MS = NOW_MS + 5_000, NOW_MS + 65_000
"""By the appender's clock; the group's stands at NOW_MS, which is the frames' time."""

Tell = Callable[[bytes, Limits], tuple[int, int]]


async def appended(world: World, limits: Limits) -> Tell:
    """Two batches at offsets 0 and 1, both committed; what an append of one of them is answered."""
    now_ms = [FIRST_MS]
    appender = Appender(world.group, world.producers, lambda: now_ms[0])

    def tell(data: bytes, limits: Limits) -> tuple[int, int]:
        done = appender.append(world.partition, data, limits, 9)
        return done.base_offset, done.log_append_time_ms

    told = [tell(idempotent(0), limits)]
    now_ms[0] = SECOND_MS
    told.append(tell(idempotent(1), limits))
    times = [FIRST_MS, SECOND_MS] if limits.log_append_time else [-1, -1]
    assert told == list(enumerate(times))
    if limits.log_append_time:
        assert tell(idempotent(0), limits) == (0, NOW_MS), "not committed yet: as the frame says"
    await world.group.committed()
    return tell


async def test_a_duplicate_gets_the_append_time_of_its_records(world: World) -> None:
    tell = await appended(world, STAMPED)
    assert tell(idempotent(0), STAMPED) == (0, FIRST_MS)
    assert tell(idempotent(1), STAMPED) == (1, SECOND_MS)


async def test_a_duplicate_with_create_time_gets_no_append_time(world: World) -> None:
    tell = await appended(world, LIMITS)
    assert tell(idempotent(0), LIMITS) == (0, -1)
    assert tell(idempotent(0), STAMPED) == (0, -1), "the topic has changed since"


async def test_an_unreadable_duplicate_gets_its_frames_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = await appended(world, STAMPED)
    (second,) = world.group.read(world.partition, 1, 1).buffers
    found: list[list[Buffer]] = [[], [second], [bytes(second)[:70]]]
    for buffers in found:  # on the disk, cleaned away, no batch any more
        monkeypatch.setattr(world.group, "read", lambda *_, buffers=buffers: ReadResult(buffers, 1))
        assert tell(idempotent(0), STAMPED) == (0, NOW_MS)
    for failure in (OSError(5, "no answer"), OffsetOutOfRange("deleted"), CorruptLog("rotten")):

        def fail(*_: object, failure: Exception = failure) -> ReadResult:
            raise failure

        monkeypatch.setattr(world.group, "read", fail)
        assert tell(idempotent(0), STAMPED) == (0, NOW_MS)


async def test_nothing_is_known_of_a_producer_that_is_forgotten(world: World) -> None:
    sent = read_header(idempotent(0))
    assert append_time_of_duplicate(world.group, world.producers, world.partition, sent, 0) == -1


async def test_a_client_gets_the_same_time_twice(client: Client) -> None:
    await client.create("t", message_timestamp_type="LogAppendTime")
    data = wire.batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    first = await client.produce("t", data)
    again = await client.produce("t", data)
    assert (again.base_offset, again.log_append_time_ms) == (0, first.log_append_time_ms)
    assert again.log_append_time_ms > 0
