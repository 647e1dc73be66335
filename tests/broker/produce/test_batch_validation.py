"""What is no batch that a client may write is refused, with Kafka's errors; through the append path, which a
refusal leaves as it was."""

from __future__ import annotations

import pytest

from lockstep.broker.produce.batch_validation import check_transactional
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, read_header
from lockstep.protocol.records.batch_filter import MAX_RECORDS
from lockstep.protocol.records.compression import Codec
from tests.broker.appends import Limits, World, batch, changed
from tests.support.cases import each_case

BODY_BYTES = 1007
"""A record of 1,000 bytes without a key and without headers, as its length counts it."""


async def test_what_is_not_one_good_batch_is_refused(world: World) -> None:
    good = bytes(batch())
    for length in (0, 16, 40):
        world.refuse(good[:length], ErrorCode.INVALID_RECORD)
    world.refuse(good[:-1], ErrorCode.INVALID_RECORD)
    world.refuse(b"\0" * 7 + b"\7" + good[8:], ErrorCode.INVALID_RECORD)
    world.refuse(good + good, ErrorCode.INVALID_RECORD)
    world.refuse(good[:-1] + bytes([good[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE)
    for magic in (0, 1):
        world.refuse(good[:16] + bytes([magic]) + good[17:], ErrorCode.INVALID_RECORD)
    world.refuse(good[:16] + b"\x03" + good[17:], ErrorCode.CORRUPT_MESSAGE)
    world.refuse(good[:8] + (48).to_bytes(4, "big") + good[12:], ErrorCode.CORRUPT_MESSAGE)
    assert world.append(good) == 0


async def test_headers_that_lie_are_refused(world: World) -> None:
    world.refuse(changed(batch(), record_count=2), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), record_count=0), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), last_offset_delta=4), ErrorCode.INVALID_RECORD)
    tiny = batch(b"", b"")
    world.refuse(changed(tiny, record_count=3, last_offset_delta=2), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), attributes=CONTROL_FLAG), ErrorCode.INVALID_RECORD)
    for codec in (5, 6, 7):
        world.refuse(changed(batch(), attributes=codec), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    world.refuse(changed(batch(), producer_id=5), ErrorCode.INVALID_RECORD)
    world.refuse(changed(batch(), base_offset=1), ErrorCode.INVALID_RECORD)


async def test_zstd_needs_a_produce_version_that_knows_it(world: World) -> None:
    data = bytes(batch(codec=Codec.ZSTD))
    world.refuse(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, produce_version=6)
    assert world.append(data, produce_version=7) == 0


async def test_the_size_limit_is_the_topics(world: World) -> None:
    data = bytes(batch(b"x" * 1000))
    assert "max.message.bytes" in world.refuse(
        data, ErrorCode.MESSAGE_TOO_LARGE, Limits(max_message_bytes=len(data) - 1)
    )
    assert world.append(data, Limits(max_message_bytes=len(data))) == 0


async def test_a_compacted_topic_takes_no_record_without_a_key(world: World) -> None:
    compacted = Limits(is_compacted=True)
    assert "without key" in world.refuse(bytes(batch()), ErrorCode.INVALID_RECORD, compacted)
    assert world.append(bytes(batch())) == 0


async def test_a_transactional_batch_names_its_producer_in_a_request_with_an_id(world: World) -> None:
    plain, own = changed(batch(), attributes=TRANSACTIONAL_FLAG), batch(producer_id=7, producer_epoch=0)
    world.refuse(plain, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    check_transactional(read_header(changed(own, attributes=TRANSACTIONAL_FLAG)), "an id")
    with pytest.raises(RequestError) as refused:
        check_transactional(read_header(plain), "an id")
    assert refused.value.error is ErrorCode.INVALID_RECORD


@each_case("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_limit_on_decompressed_records_is_that_of_each(world: World, codec: Codec) -> None:
    data = bytes(batch(b"x" * 10, b"y" * 1000, codec=codec))
    taken, refused = (Limits(max_decompressed_message_bytes=size) for size in (BODY_BYTES, BODY_BYTES - 1))
    assert "record 1 of the batch has 1007 bytes" in world.refuse(data, ErrorCode.INVALID_RECORD, refused)
    assert world.append(data, taken) >= 0


async def test_a_limit_on_decompressed_records_leaves_uncompressed_ones_alone(world: World) -> None:
    assert world.append(bytes(batch(b"y" * 1000)), Limits(max_decompressed_message_bytes=1)) == 0


async def test_a_batch_that_cannot_be_opened_does_not_pass_the_limit(world: World) -> None:
    limits = Limits(max_decompressed_message_bytes=1 << 20)
    data = batch(b"x", b"y", codec=Codec.GZIP)
    for count in (3, MAX_RECORDS + 1):
        more = changed(data, record_count=count, last_offset_delta=count - 1)
        world.refuse(more, ErrorCode.INVALID_RECORD, limits)
    world.refuse(changed(batch(codec=Codec.GZIP), attributes=Codec.ZSTD), ErrorCode.INVALID_RECORD, limits)
