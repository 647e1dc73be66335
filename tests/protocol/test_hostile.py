"""Frames made to eat memory: every API and version, every array in it, peak allocation measured.

The bound for requests is eight times the frame, or 4 MiB for small frames, 32 MiB where a client names
whatever it reads (`lockstep.protocol.primitives`).
Cases by name: CVE-2022-34917 (counts up to 2^31-1), CVE-2026-111108 (counts that fit, of elements that are
fat in memory), CVE-2026-111115 (twenty million tagged fields).
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest

from lockstep.protocol import decoder_source
from lockstep.protocol.api import ApiKey
from lockstep.protocol.compiler import decode, decoder, encode_bytes
from lockstep.protocol.fields import Field, Struct, WireType, array, byte_string, message
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lockstep.protocol.primitives import ALLOCATION_FLOOR_BYTES, Buffer, MalformedMessage, uvarint_bytes
from tests.protocol.instances import APIS, api_name, case_id, cases
from tests.support.cases import check_each

FRAME_BYTES = 768 * 1024
"""Large enough for the ratio, not the floor, to be the bound of a request."""

SMALL_FLOOR_BYTES = 32 * 1024
SMALL_FRAME_BYTES = 40 * 1024
"""The same bound on a smaller scale, so that every version can be measured."""

SLACK_BYTES = 24 * 1024
"""What measuring itself, the message around the array and a fresh error take."""

STYLES = ("meagre", "wide", "tagged")
ALL = [cls for pair in MESSAGES.values() for cls in pair]

_WIDEST = {
    "bool": True,
    "int8": -100,
    "int16": -3000,
    "int32": -(1 << 31),
    "int64": -(1 << 63),
    "uint16": 0xFFFF,
    "uint32": 0xFFFF_FFFF,
    "float64": 1.5,
    "string": "a🦀",
    "bytes": b"",
    "records": b"",
    "uuid": b"u" * 16,
}
_MEAGRE: dict[str, Any] = {"string": "", "bytes": b"", "records": None}


def peak_of(decode_it: Callable[[bytes], Any], frame: bytes) -> tuple[int, bool]:
    """(most bytes allocated at once while decoding, was the frame accepted?)"""
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        try:
            made = decode_it(frame)
        except MalformedMessage:
            made = None
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    return peak, made is not None


def ordinary(cls: type[Struct], version: int) -> Callable[[bytes], Any]:
    """The decoder as everyone uses it, compiled before anything is measured."""
    decoder(cls, version)
    return lambda frame: decode(cls, version, frame)


_SMALL_FLOOR: dict[tuple[type[Struct], int], Callable[..., Any]] = {}


def with_small_floor(
    cls: type[Struct], version: int, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes], Any]:
    """A decoder of its own, compiled once, whose floor is SMALL_FLOOR_BYTES."""
    if (cls, version) not in _SMALL_FLOOR:
        monkeypatch.setattr(decoder_source, "ALLOCATION_FLOOR_BYTES", SMALL_FLOOR_BYTES)
        text = decoder_source.Decoder(cls, version)
        text.generate()
        _SMALL_FLOOR[cls, version] = text.finish("decode")
    function = _SMALL_FLOOR[cls, version]
    return lambda frame: function(frame, 0)


def floors_of(cls: type[Struct]) -> int:
    """How many floors are allowed."""
    every = {"Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch", "OffsetForLeaderEpoch"}
    return 8 if cls.__name__.removesuffix("Request") in every | {"TxnOffsetCommit"} else 1


def bound_of(cls: type[Struct], frame: bytes, floor_bytes: int = ALLOCATION_FLOOR_BYTES) -> int:
    ratio = 32 if cls.SCHEMA.kind == "response" else 8
    return max(floor_bytes * floors_of(cls), ratio * len(frame)) + SLACK_BYTES


def arrays(cls: type[Struct], version: int, before: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """The path of every array a version has, nested ones and those in tagged structs included."""
    for field in cls.SCHEMA.fields:
        if version not in field.versions:
            continue
        inner = field.wire.element or field.wire
        if field.wire.element is not None:
            yield (*before, field)
        if inner.struct is not None:
            yield from arrays(inner.struct, version, (*before, field))


def _value(wire: WireType, version: int, style: str, flexible: bool) -> Any:
    if wire.element is not None:
        return []
    if wire.struct is None:
        return (_MEAGRE if style == "meagre" else _WIDEST).get(wire.name, _WIDEST[wire.name])
    made = wire.struct()
    for field in wire.struct.SCHEMA.fields:
        if version in field.versions and not (style == "meagre" and version in field.tagged):
            value = _value(field.wire, version, style, flexible)
            if value is None and version not in field.nullable:
                value = b""
            setattr(made, field.name, value)
    if style == "tagged" and flexible:
        made.unknown_tags = {1000: b""}
    return made


def _with_elements(cls: type[Struct], version: int, path: tuple[Field, ...], style: str, count: int) -> bytes:
    """A message whose array at `path` has `count` elements and the arrays above it one each."""
    top: Any = cls()
    at = top
    flexible = version in cls.SCHEMA.flexible
    for field in path[:-1]:
        inner = _value(field.wire.element or field.wire, version, style, flexible)
        setattr(at, field.name, inner if field.wire.element is None else [inner])
        at = inner
    last = path[-1]
    assert last.wire.element is not None
    setattr(at, last.name, [_value(last.wire.element, version, style, flexible)] * count)
    return encode_bytes(top, version)


def fat_frame(
    cls: type[Struct], version: int, path: tuple[Field, ...], style: str, frame_bytes: int
) -> bytes | None:
    """The same with as many elements as fill `frame_bytes`, put together from bytes; None inside tags."""
    if any(version in field.tagged for field in path):
        return None  # sizes around the array would change with it
    one = _with_elements(cls, version, path, style, 2)
    two = _with_elements(cls, version, path, style, 3)
    at = next(i for i in range(len(one)) if one[i] != two[i])
    size = len(two) - len(one)
    element = two[at + 1 : at + 1 + size]
    count = frame_bytes // size
    rest = two[at + 1 + 3 * size :]
    if version in cls.SCHEMA.flexible:
        return two[:at] + uvarint_bytes(count + 1) + element * count + rest
    return two[: at - 3] + count.to_bytes(4, "big") + element * count + rest


@pytest.mark.parametrize("api", APIS, ids=api_name)
def test_fat_elements_stay_within_the_bound(monkeypatch: pytest.MonkeyPatch, api: ApiKey) -> None:
    def check(cls: type[Struct], style: str) -> None:
        seen: set[bytes] = set()
        frame_bytes = SMALL_FRAME_BYTES if cls.SCHEMA.kind == "request" else SMALL_FRAME_BYTES // 4
        for version in cls.SCHEMA.versions:
            measured = with_small_floor(cls, version, monkeypatch)
            for path in arrays(cls, version):
                frame = fat_frame(cls, version, path, style, frame_bytes)
                if frame is None or frame in seen:
                    continue
                seen.add(frame)
                peak, _ = peak_of(measured, frame)
                bound = bound_of(cls, frame, SMALL_FLOOR_BYTES)
                assert peak <= bound, (version, [field.name for field in path], peak / len(frame))

    check_each(product(MESSAGES[api], STYLES), check, case_id)


@pytest.mark.tier(name="rest")  # the test above has the same bound, at a smaller scale
@pytest.mark.parametrize("api", APIS, ids=api_name)
def test_large_frames_stay_within_eight_times_their_size(api: ApiKey) -> None:
    cls, _ = MESSAGES[api]
    version = cls.SCHEMA.versions.high

    def check(style: str) -> None:
        for path in arrays(cls, version):
            frame = fat_frame(cls, version, path, style, FRAME_BYTES)
            if frame is not None:
                peak, _ = peak_of(ordinary(cls, version), frame)
                bound = bound_of(cls, frame) if floors_of(cls) > 1 else 8 * len(frame)
                assert peak <= bound, ([field.name for field in path], peak / len(frame))

    check_each(STYLES, check)


@pytest.mark.parametrize("cls", [FetchRequest, ListOffsetsRequest, OffsetCommitRequest], ids=case_id)
def test_a_client_of_fifty_thousand_topics_is_no_attack(cls: Any) -> None:
    made = cls()
    number = bytes(16)
    if cls is FetchRequest:
        made.topics = [FetchTopic(topic_id=number, partitions=[FetchPartition()])] * 50_000
    elif cls is ListOffsetsRequest:
        parts = [ListOffsetsPartition()]
        made.topics = [ListOffsetsTopic(name="orders-of-customers", partitions=parts)] * 50_000
    else:
        made.group_id = "g"
        committed = [OffsetCommitRequestPartition(committed_metadata="")]
        made.topics = [OffsetCommitRequestTopic(name="orders-of-customers", partitions=committed)] * 50_000
    version = min(cls.SCHEMA.versions.high, 9) if cls is OffsetCommitRequest else cls.SCHEMA.versions.high
    assert len(decode(cls, version, encode_bytes(made, version)).topics) == 50_000


@pytest.mark.parametrize("api", APIS, ids=api_name)
def test_counts_beyond_the_frame_allocate_nothing(api: ApiKey) -> None:
    """Each array's count replaced by large ones: refused without a list being made."""

    def check(cls: type[Struct]) -> None:
        for version in cls.SCHEMA.versions:
            flexible = version in cls.SCHEMA.flexible
            for path in arrays(cls, version):
                if any(version in field.tagged for field in path):
                    continue
                one = _with_elements(cls, version, path, "wide", 1)
                two = _with_elements(cls, version, path, "wide", 2)
                at = next(i for i in range(len(one)) if one[i] != two[i])
                for count in (len(one) + 1, 1 << 24, (1 << 31) - 2):
                    if flexible:
                        frame = one[:at] + uvarint_bytes(count + 1) + one[at + 1 :]
                    else:
                        frame = one[: at - 3] + count.to_bytes(4, "big") + one[at + 1 :]
                    with pytest.raises(MalformedMessage, match=f"{count} elements of at least"):
                        decode(cls, version, frame)
                    peak, accepted = peak_of(ordinary(cls, version), frame)
                    assert not accepted
                    assert peak < 64 * 1024

    check_each(MESSAGES[api], check, case_id)


def test_the_count_check_is_what_refuses() -> None:
    """The helper above really builds acceptable frames: with the true count they decode."""
    accepted = 0
    for cls in ALL:
        version = cls.SCHEMA.versions.high
        for path in arrays(cls, version):
            for style in STYLES:
                decode(cls, version, _with_elements(cls, version, path, style, 3))
                accepted += 1
    assert accepted > 50


FLEXIBLE = {api: [(cls, v) for cls, v in cases(api) if v in cls.SCHEMA.flexible] for api in APIS}


@pytest.mark.parametrize("api", [api for api in APIS if FLEXIBLE[api]], ids=api_name)
def test_twenty_million_tagged_fields(api: ApiKey) -> None:
    def check_version(cls: type[Struct], version: int) -> None:
        body = encode_bytes(cls(), version)
        assert body.endswith(b"\0")
        frame = body[:-1] + uvarint_bytes(20_000_000) + bytes(2_000_000)
        with pytest.raises(MalformedMessage, match="20000000 tagged fields"):
            decode(cls, version, frame)
        tags = b"".join(uvarint_bytes(1000 + i) + b"\0" for i in range(1024))
        peak, accepted = peak_of(ordinary(cls, version), body[:-1] + uvarint_bytes(1024) + tags)
        assert accepted
        assert peak < 1 << 20

    check_each(FLEXIBLE[api], check_version, case_id)


def test_tags_without_number_in_one_struct_and_with_number_in_many() -> None:
    """Many structs with many tags each are bounded by memory, not by the count in each."""
    from lockstep.protocol.messages.create_topics import CreateTopicsRequest

    tags = b"".join(uvarint_bytes(200 + i) + b"\0" for i in range(1000))
    topic = b"\x01" + bytes(6) + b"\x01\x01" + uvarint_bytes(1000) + tags
    count = FRAME_BYTES // len(topic)
    frame = uvarint_bytes(count + 1) + topic * count + bytes(6)
    peak, accepted = peak_of(ordinary(CreateTopicsRequest, 5), frame)
    assert not accepted
    assert peak <= bound_of(CreateTopicsRequest, frame)


def test_text_that_grows_fourfold_after_the_rest_is_spent() -> None:
    """One character outside the BMP makes four bytes of every ASCII character beside it."""
    from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest

    long_key = ("🦀" + "a" * 32000).encode()
    long_element = uvarint_bytes(len(long_key) + 1) + long_key
    short_element = b"\x03" + "ā".encode()

    def frame_of(short: int, long: int) -> bytes:
        keys = short_element * short + long_element * long
        return b"\0" + uvarint_bytes(short + long + 1) + keys + b"\0"

    for short, long, fits in ((0, 24, True), (60_000, 2, False), (60_000, 19, False)):
        frame = frame_of(short, long)
        peak, accepted = peak_of(ordinary(FindCoordinatorRequest, 4), frame)
        assert accepted == fits
        assert peak <= bound_of(FindCoordinatorRequest, frame)


@message(versions="0", flexible="none", kind="request")
class Views(Struct):
    """Many pieces of data, each of which is an object."""

    pieces: list[Buffer] = array(byte_string)


def test_empty_pieces_of_data_are_charged_as_the_objects_they_are() -> None:
    count = FRAME_BYTES // 4
    frame = count.to_bytes(4, "big") + bytes(4 * count)
    peak, accepted = peak_of(ordinary(Views, 0), frame)
    assert not accepted
    assert peak < SLACK_BYTES
    assert len(decode(Views, 0, b"\0\0\x10\0" + bytes(4 * 4096)).pieces) == 4096


def test_a_large_honest_request_is_accepted() -> None:
    """Ten thousand partitions in one Fetch, five thousand topics by name in one Metadata request."""
    from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
    from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    partitions = [
        FetchPartition(
            partition=i, current_leader_epoch=700, fetch_offset=10**10 + i, partition_max_bytes=1 << 20
        )
        for i in range(10_000)
    ]
    for version in (4, 11, 12, 18):
        topic = FetchTopic(partitions=partitions, topic="t" if version < 13 else "")
        frame = encode_bytes(FetchRequest(topics=[topic]), version)
        assert len(decode(FetchRequest, version, frame).topics[0].partitions) == 10_000
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{i}") for i in range(5_000)])
    for version in (1, 9, 13):
        assert len(decode(MetadataRequest, version, encode_bytes(asked, version)).topics or []) == 5_000


def test_a_produce_of_a_million_tiny_partitions_is_refused_at_once() -> None:
    """However large a request is for its records: millions of objects would be one piece of work."""
    from lockstep.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

    def frame_of(count: int, records: bytes) -> bytes:
        data = [PartitionProduceData(index=7, records=records)] * count
        return encode_bytes(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=data)]), 9)

    few = decode(ProduceRequest, 9, frame_of(100_000, bytes(200)))
    assert len(few.topic_data[0].partition_data) == 100_000
    peak, accepted = peak_of(ordinary(ProduceRequest, 9), frame_of(1_000_000, bytes(60)))
    assert not accepted
    assert peak < 64 * 1024


def test_a_large_cluster_fits_a_metadata_response() -> None:
    from lockstep.protocol.messages.metadata import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

    parts = [
        MetadataResponsePartition(
            partition_index=i, leader_id=1000, leader_epoch=500, replica_nodes=[1000], isr_nodes=[1000]
        )
        for i in range(1000)
    ]
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=parts)] * 40)
    for version in (1, 12):
        assert len(decode(MetadataResponse, version, encode_bytes(answer, version)).topics) == 40
