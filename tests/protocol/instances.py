"""Instances of messages from seeds that Hypothesis draws, made from our own field tables.

`messages(cls, version)` draws values that the version can carry; everything else keeps its default.
A deterministic handful per case is the default; CODEC_EXAMPLES=500 draws that many, at random.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from lockstep.protocol.api import ApiKey
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Field, Struct, WireType
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


Draw = Callable[[Random], Any]
"""A value, drawn; plain functions, as Hypothesis takes ten times as long for as many draws."""


def _integers(low: int, high: int) -> Draw:
    edges = (0, 1, max(low, -1), low, high)
    return lambda random: random.choice(edges) if random.random() < 0.5 else random.randint(low, high)


def _signed(bits: int) -> Draw:
    return _integers(-(1 << bits - 1), (1 << bits - 1) - 1)


_TEXTS = ("", "topic", "ß", "漢字", "🦀", "a\0b", "x" * 126, "x" * 127, "é" * 64, "y" * 300)
_CHARACTERS = ((0, 0x7F), (0x80, 0xFF), (0x100, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
_PIECES = (b"", b"z" * 127, b"z" * 128, b"R" * 5000)
_FLOATS = (0.0, -0.0, 1.5, -1e300, 5e-324, math.inf, -math.inf)


def _text(random: Random) -> str:
    if random.random() < 0.5:
        return random.choice(_TEXTS)
    return "".join(chr(random.randint(*random.choice(_CHARACTERS))) for _ in range(random.randint(0, 6)))


def _piece(random: Random) -> bytes:
    return random.choice(_PIECES) if random.random() < 0.5 else random.randbytes(random.randint(0, 8))


def _boolean(random: Random) -> bool:
    return random.random() < 0.5


def _float(random: Random) -> float:
    return random.choice(_FLOATS) if random.random() < 0.5 else random.uniform(-1e6, 1e6)


def _uuid(random: Random) -> bytes:
    return ZERO_UUID if random.random() < 0.5 else random.randbytes(16)


_values: dict[str, Draw] = {
    "bool": _boolean,
    "int8": _signed(8),
    "int16": _signed(16),
    "int32": _signed(32),
    "int64": _signed(64),
    "uint16": _integers(0, 0xFFFF),
    "uint32": _integers(0, 0xFFFF_FFFF),
    "float64": _float,
    "string": _text,
    "bytes": _piece,
    "records": _piece,
    "uuid": _uuid,
}
_CODES = [int(code) for code in ErrorCode]


def _error_code(random: Random) -> int:
    return random.choice(_CODES)


def _value(field: Field, wire: WireType, version: int, flexible: bool, tags: bool) -> Draw:
    if wire.element is not None:
        draw = _value(field, wire.element, version, flexible, tags)
        return lambda random: [draw(random) for _ in range(random.randint(0, 3))]
    if wire.struct is not None:
        return _struct(wire.struct, version, flexible, tags)
    return _error_code if field.name.endswith("error_code") else _values[wire.name]


_structs: dict[tuple[type[Struct], int, bool, bool], Draw] = {}


def _struct(cls: type[Struct], version: int, flexible: bool, tags: bool) -> Draw:
    """Instances of `cls` as part of a message at `version`; `tags` adds unknown tagged fields."""
    key = cls, version, flexible, tags
    if key not in _structs:
        _structs[key] = _made_struct(*key)
    return _structs[key]


def _made_struct(cls: type[Struct], version: int, flexible: bool, tags: bool) -> Draw:
    fields = [
        (each.name, version in each.tagged, version in each.nullable, draw)
        for each in cls.SCHEMA.fields
        if version in each.versions
        for draw in (_value(each, each.wire, version, flexible, tags),)
    ]
    known = {field.tag for field in cls.SCHEMA.fields}

    def drawn(random: Random) -> Struct:
        made = cls()
        for name, may_be_left_out, may_be_null, draw in fields:
            if not (may_be_left_out and _boolean(random)):
                setattr(made, name, None if may_be_null and _boolean(random) else draw(random))
        if tags and flexible:
            numbers = {random.randint(0, 400) for _ in range(random.randint(0, 2))} - known
            made.unknown_tags = {number: random.randbytes(random.randint(0, 5)) for number in numbers}
        return made

    return drawn


def messages(cls: type[Struct], version: int, *, tags: bool = True) -> st.SearchStrategy[Any]:
    """Instances of a top-level message that `version` can carry; seed 0 is the one of defaults."""
    draw = _struct(cls, version, version in cls.SCHEMA.flexible, tags)
    seeds = st.integers(0, (1 << 64) - 1)
    return seeds.map(lambda seed: draw(Random(seed)) if seed else cls())


def each_message(cls: type[Struct], version: int, *, tags: bool = True) -> Iterator[Any]:
    """As many of them as PROFILE asks for, one after the other; with Hypothesis they take twice as long."""
    draw = _struct(cls, version, version in cls.SCHEMA.flexible, tags)
    seeds = Random(None if _asked else f"{cls.SCHEMA.name} {version}")
    yield cls()
    for _ in range(PROFILE.max_examples - 1):
        yield draw(Random(seeds.getrandbits(64)))


def each_noise(cls: type[Struct], version: int) -> Iterator[bytes]:
    """As many bytes that are no message, but for luck."""
    random = Random(None if _asked else f"{cls.SCHEMA.name} {version}")
    for _ in range(PROFILE.max_examples):
        size = random.randint(0, 60)
        yield bytes(random.choice((0, 0, 1, 2, 0xFF, random.randrange(256))) for _ in range(size))
