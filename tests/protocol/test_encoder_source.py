"""The generated encode functions: values to bytes, what goes by reference, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.protocol.encoder_source import Encoder
from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    message,
    record_data,
    string,
    struct_field,
    uuid,
)
from lockstep.protocol.primitives import BY_REFERENCE_BYTES, Buffer, Data, MalformedMessage
from tests.protocol.structs import Point
from tests.support.cases import each_case


@message(versions="0-2", flexible="1+", kind="header")
class Fixed(Struct):
    """Fields of one size, structs, tags, and fields that not every version has."""

    flag: bool = boolean()
    number: int = int16()
    ident: bytes = uuid(versions="1+")
    point: Point = struct_field(Point)
    maybe: Point | None = struct_field(Point, default=None, versions="1+", nullable="1+")
    dropped: int = int32(versions="2+", ignorable=True)
    tagged: int = int32(versions="1+", tagged="1+", tag=3)
    tagged_data: Buffer = byte_string(versions="1+", tagged="1+", tag=4)
    tagged_point: Point = struct_field(Point, versions="1+", tagged="1+", tag=5)


@message(versions="0-1", flexible="1+", kind="header")
class Varying(Struct):
    """Fields whose bytes say how long they are, once with null and once without."""

    text: str = string()
    maybe_text: str | None = string(default=None, nullable="0+")
    data: Buffer = byte_string()
    records: Data | None = record_data(nullable="0+")
    numbers: list[int] | None = array(int32, nullable="0+")
    texts: list[str] = array(string)
    datas: list[Buffer] = array(byte_string)
    idents: list[bytes] = array(uuid)
    points: list[Point] = array(Point)


def chunks(made: Struct, version: int) -> list[Any]:
    encoder = Encoder(type(made), version)
    encoder.generate()
    encoded: list[Any] = encoder.finish("encode")(made)
    return encoded


def encode(made: Struct, version: int) -> str:
    return b"".join(chunks(made, version)).hex()


def packed(text: str) -> str:
    return text.replace(" ", "")


def fixed(**more: Any) -> Fixed:
    return Fixed(flag=True, number=-2, point=Point(x=5), **more)


def test_neighbours_of_one_size_are_written_with_one_call() -> None:
    encoder = Encoder(Fixed, 0)
    encoder.generate()
    assert encoder.text().count("pack_ohb(") == 0, "a struct begins a run of its own"
    assert encoder.text().count("pack_oh(") == 1
    assert encode(fixed(), 0) == packed("01 fffe 05")


def test_tags_are_written_in_order_and_only_where_they_are_set() -> None:
    head = packed("01 fffe") + "11" * 16 + packed("05 07 00")
    made = fixed(ident=b"\x11" * 16)
    made.point.y = 7
    assert encode(made, 1) == head + packed("ff 00")
    made.maybe, made.tagged_point, made.tagged_data, made.tagged = Point(x=1, y=2), Point(x=3), b"zz", 9
    made.point.unknown_tags = {8: b"\xaa"}
    made.unknown_tags = {1: b"u"}
    assert encode(made, 1) == packed("01 fffe") + "11" * 16 + packed(
        "05 07 01 08 01 aa 01 01 02 00 04 01 01 75 03 04 00000009 04 03 03 7a7a 05 03 03 00 00"
    )
    made.unknown_tags = {3: b""}
    with pytest.raises(MalformedMessage, match="tag 3 has a field"):
        encode(made, 1)


def test_data_in_a_tag_is_not_taken_out_of_it_however_large() -> None:
    made = fixed(tagged_data=b"d" * (BY_REFERENCE_BYTES + 1))
    (whole,) = chunks(made, 1)
    assert len(whole) == 23 + 1 + 1 + 2 + 2 + BY_REFERENCE_BYTES + 1


def test_lengths_of_both_kinds() -> None:
    made = Varying(
        text="ab",
        data=b"z",
        records=None,
        numbers=[1, -1],
        texts=["c"],
        datas=[b"dd"],
        idents=[b"\x22" * 16],
        points=[Point(x=5), Point(x=6)],
    )
    assert encode(made, 0) == packed(
        "0002 6162 ffff 00000001 7a ffffffff 00000002 00000001 ffffffff 00000001 0001 63"
        "00000001 00000002 6464 00000001" + "22" * 16 + "00000002 05 06"
    )
    assert encode(made, 1) == packed(
        "03 6162 00 02 7a 00 03 00000001 ffffffff 02 02 63 02 03 6464 02" + "22" * 16 + "03 050000 060000 00"
    )
    made.maybe_text, made.numbers = "m", None
    assert encode(made, 1).startswith(packed("03 6162 02 6d 02 7a 00 00 02"))
    assert encode(made, 0).startswith(packed("0002 6162 0001 6d 00000001 7a ffffffff ffffffff 00000001"))
    made.numbers = []
    assert encode(made, 0).startswith(packed("0002 6162 0001 6d 00000001 7a ffffffff 00000000 00000001"))


def test_a_length_of_127_takes_two_bytes() -> None:
    assert encode(Varying(text="x" * 126), 1)[:2] == "7f"
    assert encode(Varying(text="x" * 127), 1)[:4] == "8001"


def test_large_data_goes_as_it_is_and_small_data_is_copied() -> None:
    large, small = bytearray(BY_REFERENCE_BYTES + 1), bytearray(BY_REFERENCE_BYTES)
    parts: list[Buffer] = [small, large]
    sent = chunks(Varying(records=parts), 0)
    assert [part is large for part in sent] == [False, True, False]
    assert len(sent[0]) == 2 + 2 + 4 + 4 + len(small)
    assert sent[0][8:12] == (len(small) + len(large)).to_bytes(4, "big")
    assert len(chunks(Varying(records=small), 0)) == 1

    @message(versions="0", flexible="none", kind="header")
    class Last(Struct):
        records: Data | None = record_data(nullable="0+")

    assert [len(part) for part in chunks(Last(records=large), 0)] == [4, len(large)], "nothing empty behind"


def test_a_message_of_nothing_is_one_empty_buffer() -> None:
    @message(versions="0", flexible="none", kind="header")
    class Nothing(Struct):
        """No field at all."""

    assert chunks(Nothing(), 0) == [b""]


@each_case(
    ("version", "changes", "words"),
    [
        (0, {"ident": b"i" * 16}, r"Fixed\.ident: set, but only versions 1"),
        (0, {"maybe": Point()}, r"Fixed\.maybe: set, but only versions 1"),
        (0, {"tagged": 1}, r"Fixed\.tagged: set, but only versions 1"),
        (0, {"tagged_point": Point(x=1)}, r"Fixed\.tagged_point: set, but only versions 1"),
        (0, {"point": Point(y=1)}, r"Fixed\.point\.y: set, but only versions 1"),
        (0, {"unknown_tags": {9: b""}}, "tagged fields in a version that has none"),
        (1, {"ident": b"short"}, r"Fixed\.ident: 5 bytes where a UUID has 16"),
        (0, {"number": 1 << 15}, "Fixed.flag to Fixed.number: "),
        (0, {"point": None}, None),
    ],
)
def test_fields_that_a_version_lacks_are_rejected(
    version: int, changes: dict[str, Any], words: str | None
) -> None:
    made = fixed()
    for name, value in changes.items():
        setattr(made, name, value)
    if words is None:
        assert encode(made, version) == packed("01 fffe 00"), "nobody set it: its defaults"
    else:
        with pytest.raises(MalformedMessage, match=words):
            encode(made, version)


def test_what_may_be_ignored_is_left_out_and_a_struct_of_defaults_counts_as_not_set() -> None:
    assert encode(fixed(dropped=7, tagged_point=Point()), 0) == encode(fixed(), 0)
    assert encode(fixed(dropped=7), 2) != encode(fixed(), 2)


@each_case(
    ("changes", "words"),
    [
        ({"text": None}, r"Varying\.text: 'NoneType'"),
        ({"text": "x" * 32768}, "string of 32768 bytes, at most 32767"),
        ({"maybe_text": "\ud800"}, r"Varying\.maybe_text: not UTF-8"),
        ({"data": None}, r"Varying\.data"),
        ({"numbers": ["x"]}, r"Varying\.numbers"),
        ({"texts": [None]}, r"Varying\.texts"),
        ({"idents": [b""]}, r"Varying\.idents: 0 bytes where"),
        ({"points": None}, r"Varying\.points"),
    ],
)
def test_values_of_other_kinds_are_refused(changes: dict[str, Any], words: str) -> None:
    made = Varying()
    for name, value in changes.items():
        setattr(made, name, value)
    with pytest.raises(MalformedMessage, match=words):
        encode(made, 0)
