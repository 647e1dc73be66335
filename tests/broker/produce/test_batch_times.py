"""When the records of a batch are from: computed where the header cannot be right, and within limits."""

from __future__ import annotations

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import read_header, verify
from lockstep.protocol.records.batch_filter import MAX_RECORDS
from lockstep.protocol.records.compression import Codec
from tests.broker.appends import HOUR_MS, NOW_MS, Limits, World, batch, changed, dated


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
async def test_the_broker_sets_the_max_timestamp(world: World, codec: Codec) -> None:
    """Sarama left it at -1 until 2025: its topics had no record to be found by time, and none expired."""
    for told in (-1, 0):
        data = changed(dated(NOW_MS - 5, NOW_MS - 1, NOW_MS - 9, codec=codec), max_timestamp=told)
        base_offset = world.append(data)
        await world.group.committed()
        stored = world.group.read(world.partition, base_offset, 1 << 20).buffers[0]
        header = read_header(stored)
        verify(stored, 0, header)
        assert (header.max_timestamp, header.base_timestamp) == (NOW_MS - 1, NOW_MS - 5)
    early = changed(dated(NOW_MS, NOW_MS + HOUR_MS + 1, codec=codec), max_timestamp=-1)
    world.refuse(early, ErrorCode.INVALID_TIMESTAMP)
    unreadable = changed(batch(b"a" * 99, codec=codec), max_timestamp=-1, record_count=2, last_offset_delta=1)
    world.refuse(unreadable, ErrorCode.INVALID_RECORD)


async def test_every_record_of_a_batch_is_within_the_limits(world: World) -> None:
    limits = Limits(timestamp_before_max_ms=10)
    for at, times in enumerate(((NOW_MS, NOW_MS - 11), (NOW_MS - 11, NOW_MS))):
        world.refuse(bytes(dated(*times)), ErrorCode.INVALID_TIMESTAMP, limits)
        assert world.append(bytes(dated(*times))) == 2 * at, "where the topic sets no limit"
    assert world.append(bytes(dated(NOW_MS, NOW_MS - 10, -1)), limits) == 4
    assert world.append(bytes(dated(-1, -1)), limits) == 7
    count = MAX_RECORDS + 1
    many = changed(batch(codec=Codec.ZSTD), record_count=count, last_offset_delta=count - 1)
    assert world.append(many, limits) == 9, "too many to look at: their header is believed"
