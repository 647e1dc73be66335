"""Varints and the other ground types, to the byte and at their limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.primitives import (
    MAX_LENGTH,
    MAX_TAGS_PER_STRUCT,
    UNKNOWN_TAG_COST_BYTES,
    MalformedMessage,
    keep_tag,
    length_rest,
    read_tags,
    skip_tags,
    tag_and_end,
    tag_count,
    uvarint,
    uvarint_bytes,
    with_unknown_tags,
    write_tags,
)
from tests.support.cases import each_case

VARINTS = [
    (0, "00"),
    (127, "7f"),
    (128, "8001"),
    (300, "ac02"),
    (16383, "ff7f"),
    (16384, "808001"),
    (2**28, "8080808001"),
    (MAX_LENGTH, "ffffffff07"),
]


@each_case(("value", "text"), VARINTS)
def test_varint_in_as_few_bytes_as_it_takes(value: int, text: str) -> None:
    assert uvarint_bytes(value).hex() == text
    assert uvarint(memoryview(b"\xee" + bytes.fromhex(text) + b"\xee"), 1) == (value, 1 + len(text) // 2)


@given(st.integers(0, MAX_LENGTH))
def test_varint_round_trip(value: int) -> None:
    data = uvarint_bytes(value)
    assert uvarint(memoryview(data), 0) == (value, len(data))


@each_case("value", [-1, MAX_LENGTH + 1])
def test_varint_of_what_does_not_fit(value: int) -> None:
    with pytest.raises(MalformedMessage, match="does not fit"):
        uvarint_bytes(value)


def test_longer_spelling_of_a_varint_is_read_as_kafka_reads_it() -> None:
    assert uvarint(memoryview(b"\x85\x80\x00"), 0) == (5, 3)


@each_case(
    ("text", "words"),
    [("8080808008", "larger than"), ("ffffffffff01", "longer than 5"), ("808080808000", "longer than 5")],
)
def test_varint_too_large_or_too_long(text: str, words: str) -> None:
    with pytest.raises(MalformedMessage, match=words):
        uvarint(memoryview(bytes.fromhex(text)), 0)


def test_varint_cut_short() -> None:
    with pytest.raises(IndexError):
        uvarint(memoryview(b"\x80"), 0)


def test_null_length_has_one_spelling() -> None:
    assert length_rest(memoryview(b"\x81\x01"), 1, 0x81) == (129, 2)
    with pytest.raises(MalformedMessage, match="more than one byte"):
        length_rest(memoryview(b"\x80\x00"), 1, 0x80)


def test_tags_are_written_in_ascending_order() -> None:
    out = bytearray(b"!")
    write_tags(out, {300: b"ab", 1: bytearray(b"c")})
    assert out == b"!\x02" + b"\x01\x01c" + b"\xac\x02\x02ab"


def test_no_tags_are_one_zero_byte() -> None:
    out = bytearray()
    write_tags(out, {})
    assert out == b"\0"


def test_unknown_tags_join_known_ones_unless_they_have_a_field() -> None:
    assert with_unknown_tags({0: b"k"}, {7: b"u"}, frozenset({0, 1})) == {0: b"k", 7: b"u"}
    with pytest.raises(MalformedMessage, match="tag 1 has a field"):
        with_unknown_tags({}, {1: b"u"}, frozenset({0, 1}))


def test_tag_count_of_one_byte_and_of_more() -> None:
    assert tag_count(memoryview(b"....."), 1, 2) == (2, 1)
    data = memoryview(b"\x01" + b"." * 300)
    assert tag_count(data, 0, 0x81) == (129, 1)


@each_case("count", [3, MAX_TAGS_PER_STRUCT + 1])
def test_more_tags_than_bytes_or_than_any_struct_has(count: int) -> None:
    rest = bytes(5) if count == 3 else bytes(3 * count)
    spelled = uvarint_bytes(count)
    with pytest.raises(MalformedMessage, match=f"{count} tagged fields"):
        tag_count(memoryview(spelled[1:] + rest), 0, spelled[0])


def test_tag_head() -> None:
    assert tag_and_end(memoryview(b"\x05\x02ab"), 0) == (5, 4, 2)
    with pytest.raises(MalformedMessage, match="tag 5 of 3 bytes, 2 remain"):
        tag_and_end(memoryview(b"\x05\x03ab"), 0)


def test_kept_tag_costs_room_and_comes_once() -> None:
    tags: dict[int, bytes] = {}
    assert keep_tag(tags, 5, memoryview(b"ab"), 1000) == 998 - UNKNOWN_TAG_COST_BYTES
    assert tags == {5: b"ab"}
    with pytest.raises(MalformedMessage, match="tag 5 comes twice"):
        keep_tag(tags, 5, memoryview(b""), 1000)
    with pytest.raises(MalformedMessage, match="more memory"):
        keep_tag(tags, 6, memoryview(b""), UNKNOWN_TAG_COST_BYTES - 1)


def test_read_and_skip_a_section() -> None:
    section = bytearray()
    write_tags(section, {3: b"abc", 200: b""})
    data = memoryview(bytes(section) + b"rest")
    room = 10_000
    left = room - 2 * UNKNOWN_TAG_COST_BYTES - 3
    assert read_tags(data, 1, section[0], room) == ({3: b"abc", 200: b""}, len(section), left)
    assert skip_tags(data, 0) == len(section)
