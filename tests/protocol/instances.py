"""Hypothesis strategies for message instances, made from our own field tables.

`messages(cls, version)` draws values that the version can carry; everything else keeps its default.
A deterministic handful per case is the default; CODEC_EXAMPLES=500 draws that many, at random.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lockstep.protocol.api import ApiKey
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Field, Schema, Struct, WireType
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.primitives import ZERO_UUID

_asked = os.environ.get("CODEC_EXAMPLES")

PROFILE = settings(
    max_examples=int(_asked or 10),
    derandomize=_asked is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


APIS = [ApiKey(key) for key in MESSAGES]


def api_name(api: ApiKey) -> str:
    return api.name.lower()


def cases(api: ApiKey) -> list[tuple[type[Struct], int]]:
    """An API's request and response, with each of their versions."""
    return [(cls, version) for cls in MESSAGES[api] for version in cls.SCHEMA.versions]


def case_id(value: object) -> str:
    return value.SCHEMA.name if isinstance(value, type) and issubclass(value, Struct) else f"v{value}"


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.one_of(st.sampled_from([0, -1, 1, low, high]), st.integers(low, high))


_text = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["", "topic", "ß", "漢字", "🦀", "a\0b", "x" * 126, "x" * 127, "é" * 64, "y" * 300]),
)
_bytes = st.one_of(st.binary(max_size=8), st.sampled_from([b"", b"z" * 127, b"z" * 128, b"R" * 5000]))

_values: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": st.integers(0, 0xFFFF),
    "uint32": st.integers(0, 0xFFFF_FFFF),
    "float64": st.floats(allow_nan=False),
    "string": _text,
    "bytes": _bytes,
    "records": _bytes,
    "uuid": st.one_of(st.just(ZERO_UUID), st.binary(min_size=16, max_size=16)),
}
_BOOLEANS = st.booleans()
_error_codes = st.sampled_from([int(code) for code in ErrorCode])


def _value(field: Field, wire: WireType, version: int, flexible: bool, tags: bool) -> st.SearchStrategy[Any]:
    if wire.element is not None:
        return st.lists(_value(field, wire.element, version, flexible, tags), max_size=3)
    if wire.struct is not None:
        return structs(wire.struct, version, flexible, tags)
    if field.name.endswith("error_code"):
        return _error_codes
    return _values[wire.name]


_structs: dict[tuple[type[Struct], int, bool, bool], st.SearchStrategy[Any]] = {}


def structs(cls: type[Struct], version: int, flexible: bool, tags: bool) -> st.SearchStrategy[Any]:
    """Instances of `cls` as part of a message at `version`; `tags` adds unknown tagged fields."""
    key = cls, version, flexible, tags
    if key not in _structs:
        unknown = _unknown_tags(cls) if tags and flexible else None
        _structs[key] = _drawn(cls, _fields(*key), unknown)
    return _structs[key]


@st.composite
def _drawn(
    draw: st.DrawFn,
    cls: type[Struct],
    fields: list[tuple[str, bool, st.SearchStrategy[Any]]],
    unknown_tags: st.SearchStrategy[Any] | None,
) -> Any:
    made = cls()
    for name, may_be_left_out, strategy in fields:
        if not (may_be_left_out and draw(_BOOLEANS)):
            setattr(made, name, draw(strategy))
    if unknown_tags is not None:
        made.unknown_tags = draw(unknown_tags)
    return made


def _fields(
    cls: type[Struct], version: int, flexible: bool, tags: bool
) -> list[tuple[str, bool, st.SearchStrategy[Any]]]:
    """Each field's name, whether it may be left out, and its values: made once, as making them is dear."""
    found = []
    for field in cls.SCHEMA.fields:
        if version in field.versions:
            strategy = _value(field, field.wire, version, flexible, tags)
            if version in field.nullable:
                strategy = st.one_of(st.none(), strategy)
            found.append((field.name, version in field.tagged, strategy))
    return found


def _unknown_tags(cls: type[Struct]) -> st.SearchStrategy[Any]:
    known = {field.tag for field in cls.SCHEMA.fields}
    numbers = st.integers(0, 400).filter(lambda tag: tag not in known)
    return st.dictionaries(numbers, st.binary(max_size=5), max_size=2)


def messages(cls: type[Struct], version: int, *, tags: bool = True) -> st.SearchStrategy[Any]:
    """Instances of a top-level message that `version` can carry."""
    schema: Schema = cls.SCHEMA
    return structs(cls, version, version in schema.flexible, tags)
