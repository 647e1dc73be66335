"""Declared messages: defaults, slots, comparison, and what a table may not say."""

from __future__ import annotations

import copy

import pytest

from lockstep.protocol.fields import (
    NO_VERSIONS,
    Struct,
    Versions,
    array,
    int16,
    int32,
    message,
    string,
    struct,
    struct_field,
    uuid,
)
from lockstep.protocol.primitives import ZERO_UUID
from tests.support.cases import each_case


@struct()
class Leader(Struct):
    """Who leads."""

    leader_id: int = int32(default=-1)


@struct()
class Part(Struct):
    """One part."""

    number: int = int32()
    leader: Leader = struct_field(Leader, versions="1+", tagged="1+", tag=0)
    cursor: Leader | None = struct_field(Leader, default=None, nullable="0+")


@message(api_key=7, versions="1-4", flexible="3+", kind="request")
class Sample(Struct):
    """A message."""

    name: str | None = string(default=None, nullable="0+")
    parts: list[Part] = array(Part)
    numbers: list[int] = array(int16, versions="2+", ignorable=True)
    topic_id: bytes = uuid()

    def part_count(self) -> int:
        return len(self.parts)


@struct()
class Empty(Struct):
    """Nothing."""


@each_case(
    ("text", "low", "high", "written"),
    [("3", 3, 3, "3"), ("3-13", 3, 13, "3-13"), ("9+", 9, 0x7FFF, "9+"), ("none", 0, -1, "none")],
)
def test_versions(text: str, low: int, high: int, written: str) -> None:
    versions = Versions.parse(text)
    assert versions == Versions(low, high)
    assert str(versions) == written
    assert list(versions)[:2] == list(range(low, high + 1))[:2]


def test_version_membership() -> None:
    assert 9 in Versions.parse("9+")
    assert 8 not in Versions.parse("9+")
    assert 0 not in NO_VERSIONS


def test_defaults_are_kafkas_and_never_shared() -> None:
    one, other = Sample(), Sample()
    assert (one.name, one.parts, one.numbers, one.topic_id) == (None, [], [], ZERO_UUID)
    one.parts.append(Part())
    assert other.parts == []
    one.parts[0].leader.leader_id = 5
    assert Part().leader.leader_id == -1
    one.parts[0].leader = given = Leader(leader_id=6)
    assert one.parts[0].leader is given
    assert one.parts[0].cursor is None


def test_constructor_takes_keywords_only() -> None:
    assert Sample(name="x").name == "x"
    with pytest.raises(TypeError):
        Sample("x")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Sample(nonsense=1)  # type: ignore[call-arg]


def test_no_attribute_beside_the_fields() -> None:
    with pytest.raises(AttributeError):
        Sample().nonsense = 1  # type: ignore[attr-defined]
    assert not hasattr(Sample(), "__dict__")


def test_methods_of_the_class_stay() -> None:
    assert Sample(parts=[Part(), Part()]).part_count() == 2


def test_equality() -> None:
    assert Sample(name="a", parts=[Part(number=1)]) == Sample(name="a", parts=[Part(number=1)])
    assert Sample(name="a") != Sample(name="b")
    assert Sample() != Part()
    assert Sample() != "Sample()"
    touched = Part()
    assert touched.leader == Leader()
    assert touched == Part()
    assert Part(leader=Leader(leader_id=2)) != Part()


def test_equality_counts_unknown_tags() -> None:
    tagged = Sample()
    tagged.unknown_tags[9] = b"x"
    assert tagged.unknown_tags == {9: b"x"}, "read again, kept"
    assert tagged != Sample()
    looked_at = Sample()
    assert looked_at.unknown_tags == {}
    assert looked_at == Sample()
    looked_at.unknown_tags = {9: b"x"}
    assert looked_at == tagged


def test_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Sample())


def test_repr_names_what_is_not_default() -> None:
    made = Sample(name="a", parts=[Part(leader=Leader(leader_id=3))])
    made.unknown_tags = {4: b"t"}
    expected = "Sample(name='a', parts=[Part(leader=Leader(leader_id=3))], unknown_tags={4: b't'})"
    assert repr(made) == expected
    assert repr(Sample()) == "Sample()"


def test_copies_are_independent() -> None:
    made = Sample(parts=[Part(leader=Leader(leader_id=3))])
    twin = copy.deepcopy(made)
    assert twin == made
    twin.parts[0].leader.leader_id = 4
    assert made.parts[0].leader.leader_id == 3


def test_schema() -> None:
    schema = Sample.SCHEMA
    assert (schema.name, schema.api_key, schema.kind) == ("Sample", 7, "request")
    assert schema.versions == Versions(1, 4)
    assert [str(field.wire) for field in schema.fields] == ["string", "[]Part", "[]int16", "uuid"]
    assert [field.ignorable for field in schema.fields] == [False, False, True, False]
    leader = Part.SCHEMA.fields[1]
    assert (leader.lazy, leader.slot, leader.tag) == (True, "_leader", 0)
    assert str(leader.wire) == "Leader"
    assert Empty.SCHEMA.fields == ()
    assert Empty() == Empty()


def test_a_table_class_derives_from_struct() -> None:
    with pytest.raises(TypeError, match="must derive from Struct"):

        @struct()
        class Plain:  # type: ignore[type-var]
            number: int = int32()


def test_every_field_has_a_type() -> None:
    with pytest.raises(TypeError, match=r"Loose\.number has no field type"):

        @struct()
        class Loose(Struct):
            number: int = 3


def test_tag_and_tagged_versions_belong_together() -> None:
    with pytest.raises(TypeError, match="belong together"):

        @struct()
        class Half(Struct):
            number: int = int32(tag=1)


def test_a_nullable_struct_is_null_by_default() -> None:
    with pytest.raises(TypeError, match="must be null by default"):

        @struct()
        class Odd(Struct):
            leader: Leader | None = struct_field(Leader, nullable="0+")
