"""What both code generators stand on: lines that know their field, runs, names, words of errors."""

from __future__ import annotations

import pytest

from lockstep.protocol.fields import (
    Field,
    Struct,
    array,
    int8,
    int16,
    message,
    string,
    struct,
    struct_field,
    uuid,
)
from lockstep.protocol.primitives import MalformedMessage
from lockstep.protocol.source_text import SourceText, is_scalar_array
from tests.support.cases import each_case


@struct()
class Part(Struct):
    """A nested struct."""

    number: int = int8()


@message(versions="1-3", flexible="2+", kind="header")
class Row(Struct):
    """Fields that differ in where they are carried, tagged and compact."""

    plain: int = int8()
    old: int = int8(versions="1")
    rigid: str = string(flexible="none")
    parts: list[Part] = array(Part)
    numbers: list[int] = array(int16)
    ids: list[bytes] = array(uuid)
    late_tag: int = int8(versions="2+", tagged="3+", tag=1)
    early_tag: Part = struct_field(Part, versions="2+", tagged="2+", tag=0)


def text(version: int = 1) -> SourceText:
    return SourceText(Row.SCHEMA, version)


def field(name: str) -> Field:
    return next(each for each in Row.SCHEMA.fields if each.name == name)


@each_case("version", [0, 4])
def test_a_version_that_the_message_has_not_is_refused(version: int) -> None:
    with pytest.raises(MalformedMessage, match=f"Row has no version {version}, only 1-3"):
        text(version)


def test_blocks_indent_what_is_in_them_and_nothing_else() -> None:
    source = text()
    with source.block("if a:"):
        source.emit("b")
        with source.block("if c:"):
            source.emit("d")
    source.emit("e")
    assert source.text() == "if a:\n    b\n    if c:\n        d\ne\n"


def test_a_run_is_taken_once_with_its_fields() -> None:
    source = text()
    assert source.take_run() == ([], [], "")
    with source.about(field("plain")):
        source.postpone("b", "x")
    assert source.take_run() == (["b"], ["x"], "Row.plain")
    for name, form in (("plain", "b"), ("old", "q")):
        with source.about(field(name)):
            source.postpone(form, name)
    assert source.take_run() == (["b", "q"], ["plain", "old"], "Row.plain to Row.old")
    assert source.take_run() == ([], [], ""), "begun anew"


def test_names_are_fresh_and_bound_ones_are_globals_of_the_function() -> None:
    source = text()
    assert len({source.fresh("n") for _ in range(9)}) == 9
    with source.block("def f():"):
        source.emit(f"return {source.bind('given', 7)}, {source.struct_name(Part)}")
    assert source.finish("f")() == (7, Part)


def test_a_codec_is_big_endian_without_padding_and_named_after_its_formats() -> None:
    source = text()
    assert source.codec("pack", "pack", ["?", "q"]) == ("pack_oq", 9)
    assert source.scope["pack_oq"](True, 258) == bytes.fromhex("01 00000000 00000102")


def test_fields_are_compact_as_their_version_unless_declared_otherwise() -> None:
    assert [text(version).compact(None) for version in (1, 2)] == [False, True]
    assert [text(version).compact(field("plain")) for version in (1, 2)] == [False, True]
    assert [text(version).compact(field("rigid")) for version in (1, 2)] == [False, False]


@each_case(
    ("version", "untagged", "tagged", "absent"),
    [
        (1, ["plain", "old", "rigid", "parts", "numbers", "ids"], [], ["late_tag", "early_tag"]),
        (2, ["plain", "rigid", "parts", "numbers", "ids", "late_tag"], ["early_tag"], ["old"]),
        (3, ["plain", "rigid", "parts", "numbers", "ids"], ["early_tag", "late_tag"], ["old"]),
    ],
)
def test_where_a_version_has_each_field(
    version: int, untagged: list[str], tagged: list[str], absent: list[str]
) -> None:
    source = text(version)
    assert [each.name for each in source.untagged_fields(Row.SCHEMA)] == untagged
    assert [each.name for each in source.tagged_fields(Row.SCHEMA)] == tagged, "in the order of their tags"
    assert [each.name for each in source.absent_fields(Row.SCHEMA)] == absent
    assert [each.name for each in source.fields_with_tags(Row.SCHEMA)] == ["early_tag", "late_tag"]


@each_case(
    ("statement", "pos", "words"),
    [
        ("b''[0]", "5", "Row v1: Row.plain at byte 5: the bytes end here"),
        ("b''[0]", "None", "Row v1: Row.plain: index out of range"),
        ("str(b'\\xff', 'utf-8')", "5", "Row v1: Row.plain at byte 5: not UTF-8"),
        ("int('x')", "None", "Row v1: Row.plain: invalid literal for int() with base 10: 'x'"),
    ],
)
def test_an_error_names_the_field_of_the_line_that_raised_it(statement: str, pos: str, words: str) -> None:
    source = text()
    with source.block("def f():"):
        with source.block("try:"):
            source.emit("pass", "Row.before")
            with source.about(field("plain")):
                source.emit(statement)
            source.emit("pass", "Row.behind")
        with source.block("except Exception as error:"):
            source.emit(f"raise explain(error, {pos})")
    with pytest.raises(MalformedMessage) as raised:
        source.finish("f")()
    assert str(raised.value) == words


def test_an_error_without_a_line_is_about_the_message() -> None:
    source = text()
    with source.block("def f():"):
        source.emit("return explain(ValueError('odd'), 3)")
    assert str(source.finish("f")()) == "Row v1: Row at byte 3: odd"


def test_what_one_struct_call_reads() -> None:
    elements = {name: field(name).wire.element for name in ("parts", "numbers", "ids")}
    assert {name: is_scalar_array(each) for name, each in elements.items() if each is not None} == {
        "parts": False,
        "numbers": True,
        "ids": False,
    }
