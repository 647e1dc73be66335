"""Decoder and encoder on a message that has one of everything, byte by byte."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lockstep.protocol.api import ApiKey
from lockstep.protocol.compiler import _main, decode, decoder, encode, encode_bytes, encoder, generated_source
from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    float64,
    int8,
    int16,
    int64,
    message,
    record_data,
    string,
    struct,
    struct_field,
    uint16,
    uint32,
    uuid,
)
from lockstep.protocol.messages.fetch import FetchRequest, FetchResponse
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from lockstep.protocol.primitives import Buffer, Data, MalformedMessage
from tests.protocol.instances import APIS, api_name, case_id, cases, each_message, each_noise
from tests.protocol.structs import Point
from tests.support.cases import check_each


@message(versions="0-2", flexible="1+", kind="header")
class Everything(Struct):
    """One field of every kind."""

    flag: bool = boolean()
    small: int = uint16()
    large: int = uint32(default=5)
    real: float = float64()
    text: str = string()
    old_text: str | None = string(default=None, nullable="0+", flexible="none")
    data: Buffer = byte_string()
    maybe_data: Buffer | None = byte_string(default=None, nullable="0+")
    batch: Data | None = record_data(nullable="0+")
    ident: bytes = uuid()
    point: Point = struct_field(Point)
    maybe_point: Point | None = struct_field(Point, default=None, nullable="0+")
    flags: list[bool] = array(boolean)
    longs: list[int] | None = array(int64, nullable="0+")
    idents: list[bytes] = array(uuid)
    datas: list[Buffer] = array(byte_string)
    texts: list[str] = array(string)
    tagged_point: Point = struct_field(Point, versions="1+", tagged="1+", tag=1)
    tagged_data: Buffer = byte_string(versions="1+", tagged="1+", tag=0)
    tagged_later: int = int16(versions="1+", tagged="2+", tag=2)
    late_ident: bytes = uuid(versions="2+", ignorable=True)
    late_points: list[Point] = array(Point, versions="2+")
    late_maybe: Point | None = struct_field(Point, default=None, versions="2+", nullable="2+")


def full() -> Everything:
    return Everything(
        flag=True,
        small=0xFFFF,
        large=0xFFFF_FFFF,
        real=1.5,
        text="té",
        old_text="old",
        data=b"dd",
        maybe_data=b"",
        batch=b"RRR",
        ident=bytes(range(16)),
        point=Point(x=1),
        maybe_point=Point(x=-1),
        flags=[True, False],
        longs=[1, -2],
        idents=[b"i" * 16],
        datas=[b"", b"x"],
        texts=["a", ""],
    )


V0_BYTES = (
    "01 ffff ffffffff 3ff8000000000000 0003 74c3a9 0003 6f6c64 00000002 6464 00000000 00000003 525252"
    "000102030405060708090a0b0c0d0e0f 01 01 ff 00000002 01 00 00000002 0000000000000001 fffffffffffffffe"
    "00000001 69696969696969696969696969696969 00000002 00000000 00000001 78 00000002 0001 61 0000"
)
V1_BYTES = (
    "01 ffff ffffffff 3ff8000000000000 04 74c3a9 0003 6f6c64 03 6464 01 04 525252"
    "000102030405060708090a0b0c0d0e0f 01 07 00 01 ff 00 00 03 01 00 03 0000000000000001 fffffffffffffffe"
    "02 69696969696969696969696969696969 03 01 02 78 03 02 61 01 0000"
    "03 00 02 02 7a 01 03 02 03 00 64 02 ffee"
)


def test_version_0_byte_by_byte() -> None:
    assert encode_bytes(full(), 0).hex() == V0_BYTES.replace(" ", "")
    assert decode(Everything, 0, bytes.fromhex(V0_BYTES)) == full()


def test_flexible_version_byte_by_byte() -> None:
    made = full()
    made.point.y = 7
    made.tagged_point = Point(x=2, y=3)
    made.tagged_data = b"z"
    made.unknown_tags = {100: b"\xff\xee"}
    assert encode_bytes(made, 1).hex() == V1_BYTES.replace(" ", "")
    assert decode(Everything, 1, bytes.fromhex(V1_BYTES)) == made


def test_nulls_and_defaults() -> None:
    made = Everything(longs=None)
    for version in (0, 1, 2):
        assert decode(Everything, version, encode_bytes(made, version)) == made


def test_tagged_only_from_a_later_version() -> None:
    made = Everything(tagged_later=9)
    assert encode_bytes(made, 1).endswith(b"\x00\x09\x00")
    assert encode_bytes(made, 2).endswith(b"\x01\x02\x02\x00\x09")
    for version in (1, 2):
        assert decode(Everything, version, encode_bytes(made, version)) == made


def test_bytes_are_views_of_the_input() -> None:
    frame = bytearray(encode_bytes(full(), 0))
    made = decode(Everything, 0, frame)
    assert isinstance(made.batch, memoryview)
    at = bytes(frame).index(b"RRR")
    frame[at] = ord("S")
    assert bytes(made.batch) == b"SRR"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_at_any_position(kind: type) -> None:
    data = kind(b"????" + encode_bytes(full(), 0))
    assert decode(Everything, 0, data, 4) == full()


def test_values_of_a_version_the_bytes_lack_are_defaults() -> None:
    made = decode(Everything, 0, encode_bytes(full(), 0))
    assert (made.tagged_later, made.late_ident, made.late_points, made.late_maybe) == (0, bytes(16), [], None)
    assert made.tagged_point == Point()
    assert made.unknown_tags == {}


def test_a_broker_passes_over_trailing_bytes() -> None:
    data = encode_bytes(full(), 0)
    assert decode(Everything, 0, data + b"\0\0\0", trailing=True) == full()
    with pytest.raises(MalformedMessage):
        decode(Everything, 0, data[:-1], trailing=True)


# What encode refuses.


@pytest.mark.parametrize(
    ("version", "changes", "words"),
    [
        (
            0,
            {"tagged_data": b"x"},
            "Everything v0: Everything.tagged_data: set, but only versions 1",
        ),
        (0, {"tagged_point": Point(x=1)}, "tagged_point: set, but only"),
        (1, {"late_points": [Point()]}, "late_points: set, but only versions 2"),
        (1, {"late_maybe": Point()}, "late_maybe: set, but only"),
        (0, {"point": Point(y=1)}, r"Everything\.point\.y: set, but only"),
        (0, {"small": -1}, "Everything.flag to Everything.text: argument out of range"),
        (0, {"large": 1 << 32}, "Everything.text: 'I' format requires 0 <= number"),
        (0, {"text": None}, "Everything.text: 'NoneType'"),
        (0, {"text": "x" * 32768}, "Everything.text: string of 32768 bytes, at most 32767"),
        (1, {"text": "x" * 32768}, "string of 32768 bytes, at most 32767"),
        (1, {"old_text": "x" * 32768}, "old_text: string of 32768 bytes"),
        (0, {"text": "\ud800"}, "Everything.text: not UTF-8"),
        (0, {"data": None}, "Everything.data"),
        (0, {"flags": None}, "Everything.flags"),
        (0, {"flags": 7}, "Everything.flags"),
        (0, {"longs": [1 << 63]}, "Everything.longs"),
        (0, {"longs": ["x"]}, "Everything.longs"),
        (0, {"ident": b"short"}, "Everything.ident: 5 bytes where a UUID has 16"),
        (0, {"idents": [b""]}, "Everything.idents: 0 bytes where"),
        (0, {"point": 3}, r"Everything\.point"),
        (0, {"texts": [None]}, "Everything.texts"),
    ],
)
def test_encode_refuses(version: int, changes: dict[str, object], words: str) -> None:
    made = full()
    for name, value in changes.items():
        setattr(made, name, value)
    with pytest.raises(MalformedMessage, match=words):
        encode(made, version)


def test_encode_drops_ignorable_fields_and_default_structs() -> None:
    made = full()
    made.late_ident = b"L" * 16
    made.tagged_point = Point()
    assert encode_bytes(made, 0).hex() == V0_BYTES.replace(" ", "")


def test_unknown_tags_need_a_flexible_version_and_a_free_number() -> None:
    made = full()
    made.unknown_tags = {1: b""}
    with pytest.raises(MalformedMessage, match="tagged fields in a version that has none"):
        encode(made, 0)
    with pytest.raises(MalformedMessage, match="tag 1 has a field"):
        encode(made, 1)
    made.unknown_tags = {}
    made.point.unknown_tags = {300: b"ab"}
    assert decode(Everything, 1, encode_bytes(made, 1)) == made


@pytest.mark.parametrize("call", [encode, encode_bytes])
def test_only_messages_are_encoded(call: object) -> None:
    with pytest.raises(MalformedMessage, match="str is not a message"):
        call("text", 0)  # type: ignore[operator]


@pytest.mark.parametrize("version", [2, 14, -1])
def test_versions_that_are_not(version: int) -> None:
    with pytest.raises(MalformedMessage, match=f"ProduceRequest has no version {version}, only 3-13"):
        decode(ProduceRequest, version, b"")
    with pytest.raises(MalformedMessage, match="has no version"):
        encode(ProduceRequest(), version)


# What decode refuses.


@pytest.mark.parametrize(
    ("version", "text", "words"),
    [
        (0, "", "Everything v0: Everything.flag to Everything.text at byte 0: the bytes end here"),
        (0, V0_BYTES + "00", "1 bytes too many"),
        (1, V1_BYTES + "0000", "2 bytes too many"),
        (0, V0_BYTES.replace("0003 74c3a9", "0003 74c329"), "Everything.text at byte 17: not UTF-8"),
        (
            0,
            V0_BYTES.replace("0003 74c3a9", "7fff 74c3a9"),
            "text at byte 17: string of 32767 bytes, 112 remain",
        ),
        (0, V0_BYTES.replace("0003 74c3a9", "ffff 74c3a9"), "length -1: neither null nor less"),
        (1, V1_BYTES.replace("04 74c3a9", "00 74c3a9"), "Everything.text at byte 16: length -1"),
        (1, V1_BYTES.replace("04 74c3a9", "8000 74c3a9"), "null length encoded in more than one byte"),
        (0, V0_BYTES.replace("0003 6f6c64", "fffe 6f6c64"), "Everything.old_text at byte 22: length -2"),
        (
            0,
            V0_BYTES.replace("00000003 525252", "7fffffff 525252"),
            "batch at byte 39: 2147483647 bytes of data",
        ),
        (0, V0_BYTES.replace("00000003 525252", "fffffffe 525252"), "Everything.batch at byte 39: length -2"),
        (
            0,
            V0_BYTES.replace("00000002 01 00", "00000200 01 00"),
            "flags at byte 65: 512 elements of at least 1",
        ),
        (0, V0_BYTES.replace("00000002 01 00", "ffffffff 01 00"), "Everything.flags at byte 65: length -1"),
        (1, V1_BYTES.replace("03 00 02 02 7a", "03 00 03 02 7a"), "Everything.tagged_data"),
        (1, V1_BYTES.replace("03 00 02 02 7a", "03 00 01 02 7a"), "tagged field is -1 bytes longer"),
        (1, V1_BYTES.replace("02 ffee", "03 ffee"), "tag 100 of 3 bytes, 2 remain"),
        (1, V1_BYTES.replace("64 02 ffee", "02 02 ffee"), "tag 2 is not valid in version 1"),
        (
            1,
            V1_BYTES.replace("64 02 ffee", "6402ffee 6400").replace("03 00 02", "04 00 02"),
            "tag 100 comes twice",
        ),
        (1, V1_BYTES.replace("03 00 02 02 7a", "818080808000"), "varint is longer than 5 bytes"),
        (1, V1_BYTES.replace("03 00 02 02 7a", "ff7f"), "16383 tagged fields in"),
    ],
)
def test_decode_refuses(version: int, text: str, words: str) -> None:
    with pytest.raises(MalformedMessage, match=words):
        decode(Everything, version, bytes.fromhex(text))


def test_compact_string_longer_than_kafka_allows() -> None:
    made = full()
    made.old_text = None
    data = encode_bytes(made, 1).replace(b"\x04t\xc3\xa9", b"\x81\x80\x02" + b"x" * 32768)
    with pytest.raises(MalformedMessage, match="string of 32768 bytes, at most 32767"):
        decode(Everything, 1, data)


def test_null_where_a_struct_must_be_is_not_possible_and_nullable_reads_null() -> None:
    made = full()
    made.maybe_point = None
    for version in (0, 1, 2):
        assert decode(Everything, version, encode_bytes(made, version)) == made


def test_elements_without_bytes_are_refused_when_compiled() -> None:
    @struct()
    class Void(Struct):
        number: int = int8(versions="5+")

    @message(versions="0-5", flexible="none", kind="request")
    class Voids(Struct):
        voids: list[Void] = array(Void)

    with pytest.raises(TypeError, match="Void has no bytes in version 0"):
        decoder(Voids, 0)
    assert decode(Voids, 5, b"\0\0\0\x01\x09") == Voids(voids=[Void(number=9)])


def test_a_struct_that_may_be_null_still_counts_a_byte() -> None:
    @struct()
    class Holder(Struct):
        point: Point | None = struct_field(Point, default=None, nullable="0+")

    @message(versions="0", flexible="none", kind="request")
    class Holders(Struct):
        holders: list[Holder] = array(Holder)

    with pytest.raises(MalformedMessage, match="3 elements of at least 1 bytes, 2 remain"):
        decode(Holders, 0, b"\0\0\0\x03\xff\xff")
    assert len(decode(Holders, 0, b"\0\0\0\x02\xff\xff").holders) == 2


def is_refused(cls: type[Struct], version: int, data: bytes) -> bool:
    """For so many bytes that pytest.raises takes longer than the decoder."""
    try:
        decode(cls, version, data)
    except MalformedMessage:
        return True
    return False


@pytest.mark.parametrize("api", APIS, ids=api_name)
def test_every_prefix_and_every_tail_is_refused(api: ApiKey) -> None:
    def check_version(cls: type[Struct], version: int) -> None:
        for made in each_message(cls, version):
            data = encode_bytes(made, version)
            assert decode(cls, version, data) == made
            for cut in range(0, len(data), max(1, len(data) // 40)):
                assert is_refused(cls, version, data[:cut]), cut
            assert is_refused(cls, version, data + b"\0")

    check_each(cases(api), check_version, case_id)


@pytest.mark.parametrize("api", APIS, ids=api_name)
def test_noise_raises_nothing_but_malformed_message(api: ApiKey) -> None:
    def check_version(cls: type[Struct], version: int) -> None:
        for noise in each_noise(cls, version):
            try:
                made = decode(cls, version, noise)
            except MalformedMessage:
                continue
            assert decode(cls, version, encode_bytes(made, version)) == made

    check_each(cases(api), check_version, case_id)


# Hot paths.


def test_large_records_are_sent_as_they_are() -> None:
    records = bytearray(b"R" * 5000)
    partition = PartitionProduceData(index=1, records=records)
    made = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition] * 2)])
    chunks = encode(made, 9)
    assert [chunk is records for chunk in chunks] == [False, True, False, True, False]
    assert decode(ProduceRequest, 9, b"".join(chunks)) == made


def test_no_empty_buffer_behind_the_last_records() -> None:
    partition = PartitionProduceData(records=b"R" * 5000)
    made = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    assert [len(chunk) for chunk in encode(made, 3)] == [27, 5000]
    assert encode(ListGroupsRequest(), 0) == [b""]


def test_small_records_are_copied() -> None:
    partition = PartitionProduceData(index=1, records=b"R" * 4096)
    made = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
    assert len(encode(made, 9)) == 1


def test_records_from_several_buffers() -> None:
    from lockstep.protocol.messages.fetch import FetchableTopicResponse, PartitionData

    parts: list[bytes | bytearray | memoryview] = [b"a" * 5000, memoryview(b"b" * 10), bytearray(b"c" * 6000)]
    partition = PartitionData(partition_index=1, records=parts)
    made = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    chunks = encode(made, 12)
    assert chunks[1] is parts[0] and chunks[3] is parts[2]
    got = decode(FetchResponse, 12, b"".join(chunks)).responses[0].partitions[0].records
    assert got == b"a" * 5000 + b"b" * 10 + b"c" * 6000


def test_fields_of_a_later_version() -> None:
    partition = PartitionProduceResponse(current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=2))
    made = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    with pytest.raises(
        MalformedMessage, match=r"partition_responses\.current_leader: set, but only versions 10"
    ):
        encode(made, 9)
    assert decode(ProduceResponse, 10, encode_bytes(made, 10)) == made


def test_all_topics_is_null_and_none_is_empty() -> None:
    assert encode_bytes(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    assert encode_bytes(MetadataRequest(), 1) == b"\0\0\0\0"
    with pytest.raises(MalformedMessage, match="topics"):
        encode(MetadataRequest(topics=None), 0)


def test_functions_are_compiled_once() -> None:
    assert decoder(FetchRequest, 12) is decoder(FetchRequest, 12)
    assert encoder(FetchRequest, 12) is encoder(FetchRequest, 12)
    assert decoder(FetchRequest, 12) is not decoder(FetchRequest, 11)


# The command.


def test_generated_source_is_python() -> None:
    examples: list[tuple[type[Struct], int]] = [(ProduceRequest, 9), (FetchResponse, 18)]
    for cls, version in examples:
        text = generated_source(cls, version)
        compile(text, "generated", "exec")
        assert text.startswith(f"# {cls.SCHEMA.name} v{version}\ndef decode(buf, p, ")


def test_command_prints_request_and_response(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(["produce", "9"]) == 0
    printed = capsys.readouterr().out
    assert "# ProduceRequest v9" in printed
    assert "# ProduceResponse v9" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage:"),
        (["produce", "x"], "usage:"),
        (["produce", "99"], "ProduceRequest has no version 99, only 3-13"),
        (["nonsense", "1"], "no API is called 'nonsense'"),
        (["stop-replica", "1"], "no message tables for API key 5"),
    ],
)
def test_the_command_reports_each_error(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert _main(arguments) == 2
    assert words in capsys.readouterr().out


def test_command_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockstep.protocol.compiler", "api-versions", "3"], capture_output=True
    )
    assert done.returncode == 0
    assert b"# ApiVersionsResponse v3" in done.stdout
