"""The generated decode functions: bytes to values, and every bound before anything is made."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.protocol.decoder_source import Decoder
from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    float64,
    int8,
    int32,
    int64,
    message,
    string,
    struct,
    struct_field,
    uuid,
)
from lockstep.protocol.primitives import TOO_MUCH_MEMORY, MalformedMessage
from tests.protocol.structs import Point
from tests.support.cases import each_case


@struct()
class Holder(Struct):
    """What counts bytes of its own: text, a list, a struct that may be null, lists that may be absent."""

    name: str = string()
    point: Point | None = struct_field(Point, default=None, nullable="0+")
    numbers: list[int] = array(int32, versions="1+")


@message(versions="0-2", flexible="1+", kind="header")
class Fixed(Struct):
    """Fields of one size, one behind the other, and a struct."""

    flag: bool = boolean()
    real: float = float64()
    ident: bytes = uuid(versions="1+")
    point: Point = struct_field(Point, versions="1+")
    tagged: int = int32(versions="1+", tagged="2+", tag=3)
    tagged_point: Point = struct_field(Point, versions="2+", tagged="2+", tag=5)


@message(versions="0-1", flexible="1+", kind="header")
class Varying(Struct):
    """Fields whose bytes say how long they are, once with null and once without."""

    text: str = string()
    maybe_text: str | None = string(default=None, nullable="0+")
    data: bytes = byte_string()
    numbers: list[int] | None = array(int32, nullable="0+")
    texts: list[str] = array(string)
    datas: list[bytes] = array(byte_string)
    idents: list[bytes] = array(uuid)
    holders: list[Holder] = array(Holder)


def decode(cls: type[Struct], version: int, data: bytes | str, **options: Any) -> Any:
    decoder = Decoder(cls, version)
    decoder.generate()
    taken = bytes.fromhex(data) if isinstance(data, str) else data
    return decoder.finish("decode")(taken, 0, **options)


def test_neighbours_of_one_size_are_read_with_one_call() -> None:
    decoder = Decoder(Fixed, 0)
    decoder.generate()
    assert decoder.text().count("unpack_od(buf, p)") == 1
    made = decode(Fixed, 0, "01 3ff8000000000000")
    assert (made.flag, made.real, made.ident, made.point, made.tagged) == (True, 1.5, bytes(16), Point(), 0)


def test_tags_of_a_flexible_version() -> None:
    head = "01 3ff8000000000000" + "11" * 16 + "05 06 00"
    assert decode(Fixed, 1, head + "00000009 00") == Fixed(
        flag=True, real=1.5, ident=b"\x11" * 16, point=Point(x=5, y=6), tagged=9
    )
    made = decode(Fixed, 2, head + "03 03 04 00000007 05 03 0102 00 09 01 ff")
    assert (made.tagged, made.tagged_point, made.unknown_tags) == (7, Point(x=1, y=2), {9: b"\xff"})
    assert decode(
        Fixed, 2, "01 3ff8000000000000" + "11" * 16 + "05 06 01 08 01 aa 00"
    ).point.unknown_tags == {8: b"\xaa"}, "a struct without tags of its own"


@each_case(
    ("version", "tags", "words"),
    [
        (1, "00000009 01 03 04 00000007", "tag 3 is not valid in version 1"),
        (2, "01 03 05 00000007 00", "tagged field is 1 bytes longer than its content"),
        (2, "01 03 03 000007", r"Fixed.tagged at byte \d+: the bytes end here"),
    ],
)
def test_tags_that_are_refused(version: int, tags: str, words: str) -> None:
    with pytest.raises(MalformedMessage, match=words):
        decode(Fixed, version, "01 3ff8000000000000" + "11" * 16 + "05 06 00" + tags)


PLAIN = [
    "0002 6162",
    "ffff",
    "00000001 7a",
    "00000002 00000001 ffffffff",
    "00000001 0001 63",
    "00000001 00000002 6464",
    "00000001" + "22" * 16,
    "00000002 0001 68 ff 0000 01 05",
]
COMPACT = [
    "03 6162",
    "00",
    "02 7a",
    "03 00000001 ffffffff",
    "02 02 63",
    "02 03 6464",
    "02" + "22" * 16,
    "03 02 68 ff 02 00000008 00 01 01 05 06 00 01 00",
    "00",
]
MADE: dict[str, Any] = {
    "text": "ab",
    "maybe_text": None,
    "data": b"z",
    "numbers": [1, -1],
    "texts": ["c"],
    "datas": [b"dd"],
    "idents": [b"\x22" * 16],
}


def test_lengths_of_both_kinds() -> None:
    assert decode(Varying, 0, "".join(PLAIN)) == Varying(
        **MADE,
        holders=[Holder(name="h"), Holder(point=Point(x=5))],
    )
    assert decode(Varying, 1, "".join(COMPACT)) == Varying(
        **MADE, holders=[Holder(name="h", numbers=[8]), Holder(point=Point(x=5, y=6))]
    )


def test_null_is_what_a_nullable_array_may_be() -> None:
    assert decode(Varying, 0, "".join([*PLAIN[:3], "ffffffff", *PLAIN[4:]])).numbers is None
    assert decode(Varying, 1, "".join([*COMPACT[:3], "00", *COMPACT[4:]])).numbers is None


@each_case(
    ("version", "place", "bytes_", "words"),
    [
        (0, 0, "ffff", "Varying.text .*length -1: neither null nor less"),
        (0, 0, "7fff", "string of 32767 bytes, 0 remain"),
        (0, 1, "fffe", "Varying.maybe_text .*length -2"),
        (0, 2, "7fffffff 7a", "2147483647 bytes of data"),
        (0, 3, "40000000", "1073741824 elements of at least 4 bytes"),
        (0, 4, "7fffffff", "elements of at least 2 bytes"),
        (0, 5, "7fffffff", "elements of at least 4 bytes"),
        (0, 6, "7fffffff", "elements of at least 16 bytes"),
        (0, 7, "00000009 ff", "9 elements of at least 3 bytes, 1 remain"),
        (1, 0, "00", "length -1: neither null nor less"),
        (1, 7, "0a ff", "9 elements of at least 4 bytes"),
    ],
)
def test_a_length_is_checked_against_what_is_left(version: int, place: int, bytes_: str, words: str) -> None:
    parts = list(COMPACT if version else PLAIN)
    parts[place] = bytes_
    with pytest.raises(MalformedMessage, match=words):
        decode(Varying, version, "".join(parts[: place + 1]))


def test_a_compact_text_is_no_longer_than_a_plain_one_may_be() -> None:
    with pytest.raises(MalformedMessage, match="string of 32768 bytes, at most 32767"):
        decode(Varying, 1, b"\x81\x80\x02" + b"x" * 32768)


def test_what_follows_is_refused_unless_it_may_trail() -> None:
    data = "01 3ff8000000000000 00"
    with pytest.raises(MalformedMessage, match="1 bytes too many"):
        decode(Fixed, 0, data)
    assert decode(Fixed, 0, data, trailing=True).flag


def test_an_element_without_bytes_is_no_table() -> None:
    @struct()
    class Void(Struct):
        late: int = int8(versions="1+")

    @message(versions="0-1", flexible="none", kind="request")
    class Voids(Struct):
        voids: list[Void] = array(Void)

    with pytest.raises(TypeError, match="Void has no bytes in version 0"):
        Decoder(Voids, 0).generate()
    assert decode(Voids, 1, "00000001 07").voids == [Void(late=7)]


# Memory.


def taker(kind: str, api_key: int | None = None) -> type[Struct]:
    """A message of two lists: texts, and numbers of eight bytes."""

    @message(api_key=api_key, versions="0", flexible="none", kind=kind)
    class Lists(Struct):
        texts: list[str] = array(string)
        numbers: list[int] = array(int64)

    return Lists


def texts(count: int) -> bytes:
    return count.to_bytes(4, "big") + bytes(2 * count + 4)


def is_taken(cls: type[Struct], data: bytes) -> bool:
    try:
        decode(cls, 0, data)
    except MalformedMessage as error:
        assert TOO_MUCH_MEMORY in str(error)
        return False
    return True


def test_many_empty_texts_cost_more_than_a_small_request_may() -> None:
    fits, many = texts(40_000), texts(60_000)  # 92 bytes each, 4 MiB in all
    assert is_taken(taker("request", 0), fits)
    assert not is_taken(taker("request", 0), many)
    assert is_taken(taker("request", 3), many), "Metadata names every partition"
    assert not is_taken(taker("response", 3), many), "that is about requests"


def test_answers_and_what_is_read_back_may_cost_more_for_their_size() -> None:
    long = (60_000).to_bytes(4, "big") + bytes(2 * 60_000) + (20_000).to_bytes(4, "big") + bytes(160_000)
    assert not is_taken(taker("header"), long)
    assert is_taken(taker("response"), long)
    assert is_taken(taker("coordinator-value"), long)


def test_a_request_has_an_end_to_what_it_may_cost_however_large_it_is() -> None:
    numbers = 1_400_000  # 52 bytes each in memory, 8 on the wire
    data = bytes(4) + numbers.to_bytes(4, "big") + bytes(8 * numbers)
    assert not is_taken(taker("request", 0), data)
    assert is_taken(taker("header"), data)


def test_the_letters_of_texts_in_a_list_are_charged_for() -> None:
    text = b"\x00\x0a" + b"x" * 10
    data = (60_000).to_bytes(4, "big") + text * 60_000 + bytes(4)
    assert is_taken(taker("response"), data)
    assert not is_taken(taker("header"), data), "0.2 MB less than it may cost, without its letters"
