"""The fuzzer's grammar: Hypothesis strategies made from the message tables, and mutations of what they draw.

Owns: how valid requests, sequences of them, responses and record batches are drawn (names, offsets, ids and
sizes that a broker knows among them), and how nearly valid bytes are made of valid ones. One drawn example
gives one valid input and `MUTANTS` mutated ones: drawing costs a hundred times what decoding does.
Invariants: a chunk's inputs depend on the seed and the chunk's number only. Nothing is shrunk: an input
that finds something is kept as it is.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, cast

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.fields import Field, Struct, WireType
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.primitives import ZERO_UUID, MalformedMessage
from lockstep.protocol.records.compression import Codec, compress
from lockstep.protocol.records.record import BatchBuilder
from tests.campaigns.batches import make_bombs
from tests.campaigns.frames import _MUTATIONS
from tests.campaigns.fuzz_broker import KEYS as SERVED_KEYS
from tests.campaigns.fuzz_broker import RAW_FRAME, SERVED, TOPIC_ID_MARKS, TOPICS, item, items_of
from tests.campaigns.fuzz_targets import KEYS, version_byte
from tests.support.handmade_frames import batch, record

MUTANTS: Final = 24
CHUNK_INPUTS: Final = 2_500
_PREFIX: Final = bytes(8)
"""The mutations leave a header of eight bytes in place; inputs have none."""

_NAMES: Final = [
    *TOPICS,
    *TOPICS,
    *TOPICS,
    "",
    ".",
    "..",
    "a/b",
    "x" * 250,
    "ä",
    "🦀",
    "a\0b",
    "new",
    "group-1",
]
_WORDS: Final = [
    *_NAMES, "cleanup.policy", "retention.ms", "max.message.bytes", "-1", "delete", "consumer", "range", "1",
    "9" * 40, "y" * 300,
]  # fmt: skip
_NUMBERS: Final = [0, 1, 2, 3, -1, -2, -3, -4, 5, 10, 100, 1_000, 6_000, 45_000, 127, -128]


def _integers(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return st.sampled_from([number for number in _NUMBERS if low <= number <= high] * 3 + [low, high])


_VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": st.sampled_from([0, 1, 9092, 0xFFFF]),
    "uint32": st.sampled_from([0, 1, 0xFFFF_FFFF]),
    "float64": st.sampled_from([0.0, 1.5, float("inf"), float("nan")]),
    "string": st.sampled_from(_NAMES),
    "bytes": st.sampled_from([b"", b"\0", b"\0\1\0\0\0\0\xff\xff\xff\xff", b"member", b"z" * 200]),
    "uuid": st.sampled_from([ZERO_UUID, *TOPIC_ID_MARKS, *TOPIC_ID_MARKS, bytes(15) + b"\1", b"\xff" * 16]),
}
_WORDY: Final = ("config", "value", "protocol", "member", "key", "instance", "metadata", "type", "assignor")


@cache
def _batches() -> st.SearchStrategy[bytes]:
    """Batches that are honest, that lie, that are compressed or only say so."""
    values = st.lists(st.sampled_from([b"", b"v", b"value" * 30]), min_size=1, max_size=4)
    producers = st.sampled_from([(-1, -1, -1)] * 3 + [(1, 0, 0), (1, 0, 1), (1, 1, 0), (7, 32767, 2**31 - 1)])
    times = st.sampled_from([0, 1, 1_700_000_000_000, -1, 2**62])

    def honest(codec: Codec, chosen: list[bytes], producer: tuple[int, int, int], time_ms: int) -> bytes:
        builder = BatchBuilder(
            codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
        )
        for value in chosen:
            builder.append(value, b"key", timestamp_ms=time_ms, headers=[("h", value)])
        return builder.build()

    def lying(lies: dict[str, int], codec: int, body: bytes) -> bytes:
        told = {"attributes": codec, "timestamp": 1_700_000_000_000, **lies}
        return batch(body, told.pop("count", 2), **told)

    lies = st.dictionaries(
        st.sampled_from(["count", "attributes", "last_offset_delta", "timestamp", "base_offset", "magic"]),
        st.sampled_from([0, 1, -1, 2, 3, 0x10, 0x20, 0x48, 127, -128]),
        max_size=2,
    )
    two = record(0, None, b"v") + record(1, b"k", None)
    return st.one_of(
        st.builds(honest, st.sampled_from(Codec), values, producers, times),
        st.builds(honest, st.sampled_from(Codec), values, producers, times),
        st.builds(
            lying, lies, st.sampled_from([0, 0, 1, 2, 3, 4, 5]), st.sampled_from([two, b"", b"\xff" * 9])
        ),
        st.sampled_from([b"", b"\0" * 61, bytes(60)]),
    )


def _value(
    field: Field, wire: WireType, version: int, flexible: bool, request: bool
) -> st.SearchStrategy[Any]:
    if wire.element is not None:
        return st.lists(_value(field, wire.element, version, flexible, request), max_size=2)
    if wire.struct is not None:
        return _structs(cast(Any, wire.struct), version, flexible, request)
    if wire.name == "records":
        return _batches()
    if wire.name == "string" and any(word in field.name for word in _WORDY):
        return st.sampled_from(_WORDS)
    return _VALUES[wire.name]


@cache
def _structs(cls: Any, version: int, flexible: bool, request: bool) -> st.SearchStrategy[Any]:
    """Instances that `version` can carry; fields at their default are not drawn, now and then."""
    parts: dict[str, st.SearchStrategy[Any]] = {}
    for field in cls.SCHEMA.fields:
        if version not in field.versions:
            continue
        value = _value(field, field.wire, version, flexible, request)
        if version in field.nullable:
            value = st.one_of(value, st.none())
        parts[field.name] = value
    made = st.builds(cls, **parts)
    return st.one_of(made, made, made.map(_tagged)) if flexible else made


def _tagged(made: Struct) -> Struct:
    made.unknown_tags = {100: b"tag", 1 << 20: b""}
    return made


def _body(cls: type[Struct], version: int) -> st.SearchStrategy[bytes]:
    flexible = version in cls.SCHEMA.flexible

    def encoded(message: Struct) -> bytes:
        try:
            return encode_bytes(message, version)
        except MalformedMessage:  # a null or a length that this version has no way to say
            return b""

    return _structs(cast(Any, cls), version, flexible, cls.SCHEMA.kind == "request").map(encoded)


@cache
def _messages(side: int) -> st.SearchStrategy[bytes]:
    """Inputs of the `request` (0) and the `response` (1) target."""

    def one(key: int) -> st.SearchStrategy[bytes]:
        cls = MESSAGES[key][side]
        versions = cls.SCHEMA.versions

        def of(version: int) -> st.SearchStrategy[bytes]:
            prefix = bytes([key, version - versions.low])
            return _body(cls, version).map(lambda body: prefix + body)

        return st.integers(versions.low, versions.high).flatmap(of)

    return st.sampled_from(KEYS).flatmap(one)


@cache
def _items() -> st.SearchStrategy[bytes]:
    def one(key: int) -> st.SearchStrategy[bytes]:
        cls = MESSAGES[key][0]
        first, last = SERVED[key]

        def of(version: int) -> st.SearchStrategy[bytes]:
            return _body(cls, version).map(lambda body: item(key, version, body[:60_000]))

        return st.integers(first, last).flatmap(of)

    return st.sampled_from(SERVED_KEYS).flatmap(one)


@cache
def _sessions() -> st.SearchStrategy[bytes]:
    """Inputs of the `handlers` target: what one connection says."""
    return st.lists(_items(), min_size=1, max_size=4).map(b"".join)


@cache
def _headers() -> st.SearchStrategy[bytes]:
    numbers = st.sampled_from([0, 1, 3, 12, 18, 36, 99, -1, 32767])
    names = st.sampled_from([b"", b"client", b"\xff\xfe", b"x" * 300])
    lengths = st.sampled_from([0, 0, 0, 1, -1, -2, 32767])
    tails = st.sampled_from(
        [b"\0", b"\1\0\0", b"\1\5\3abc", b"\x80\1", b"\xff\xff\xff\xff\x07" + b"\1\0" * 40]
    )

    def made(key: int, version: int, name: bytes, wrong: int, tail: bytes) -> bytes:
        length = max(-32768, min(32767, len(name) + wrong))
        return struct.pack(">hhih", key, version, 7, length) + name + tail

    return st.builds(made, numbers, numbers, names, lengths, tails)


@cache
def _streams() -> st.SearchStrategy[bytes]:
    frame = st.binary(max_size=20).map(lambda body: struct.pack(">i", len(body)) + body)
    large = st.sampled_from([5_000, 65_536, 65_537]).map(lambda size: struct.pack(">i", size) + bytes(size))
    end = st.sampled_from([b"", b"\xff\xff\xff\xff", b"\x16\x03\1\2\0", b"GET / HTTP", b"\0\0\0\x09half"])
    frames = st.lists(st.one_of(frame, frame, frame, large), max_size=5).map(b"".join)
    return st.builds(lambda cut, body, last: bytes([cut]) + body + last, st.integers(0, 255), frames, end)


@cache
def _compressed() -> st.SearchStrategy[bytes]:
    texts = st.sampled_from([b"", b"a", b"abc" * 50, bytes(3_000), bytes(range(256)) * 40])

    def made(codec: Codec, text: bytes, cap: int, twice: bool) -> bytes:
        data = bytes(compress(codec, text))
        return bytes([codec, cap]) + data * (2 if twice else 1)

    honest = st.builds(made, st.sampled_from(Codec), texts, st.integers(0, 12), st.booleans())
    bombs = [
        bytes([data[22] & 7, 12]) + data[61:65] + bytes(4) + data[69:]  # without the time gzip writes there
        for _, data in make_bombs()
        if len(data) < 20_000
    ]
    return st.one_of(honest, honest, honest, st.sampled_from(bombs))


STRATEGIES: Final[dict[str, Callable[[], st.SearchStrategy[bytes]]]] = {
    "request": lambda: _messages(0),
    "response": lambda: _messages(1),
    "header": _headers,
    "stream": _streams,
    "records": _batches,
    "compression": _compressed,
    "handlers": _sessions,
}
_ROUND: Final = {
    "handlers": 6,
    "request": 4,
    "response": 3,
    "records": 3,
    "compression": 2,
    "header": 1,
    "stream": 1,
}
SCHEDULE: Final = tuple(name for turn in range(6) for name, chunks in _ROUND.items() if turn < chunks)
"""Which target each chunk is for, over and over."""


def run_chunk(
    seed: int, number: int, feed: Callable[[str, bytes], None], schedule: Sequence[str] = SCHEDULE
) -> int:
    """Feed one chunk's inputs, the same for the same seed and number; returns how many."""
    target = schedule[number % len(schedule)]
    fed = 0

    @hypothesis.seed(seed * 1_000_003 + number)
    @settings(
        max_examples=CHUNK_INPUTS // (MUTANTS + 1),
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGIES[target](), st.integers(0, 2**32 - 1))
    def one(valid: bytes, mutation_seed: int) -> None:
        nonlocal fed
        for data in _with_mutants(target, valid, random.Random(mutation_seed)):
            feed(target, data)
            fed += 1

    one()
    return fed


def _with_mutants(target: str, valid: bytes, rng: random.Random) -> Iterator[bytes]:
    yield valid
    for _ in range(MUTANTS):
        yield _mutated_session(valid, rng) if target == "handlers" else _mutated(valid, rng)


def _mutated(data: bytes, rng: random.Random) -> bytes:
    body = bytearray(_PREFIX + data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        rng.choice(_MUTATIONS)(rng, body)
    return bytes(body[len(_PREFIX) :])


def _mutated_session(data: bytes, rng: random.Random) -> bytes:
    """One item's body is mutated and its length set right; or the whole is mutated as bytes."""
    if rng.random() < 0.1:
        return _mutated(data, rng)
    items = items_of(data)
    if not items:
        return data
    place = rng.randrange(len(items))
    choice = rng.random()
    if choice < 0.1:
        items.insert(place, items[rng.randrange(len(items))])
    elif choice < 0.15:
        items[place] = bytes([RAW_FRAME]) + _mutated(
            struct.pack(">hhih", *_raw_head(rng)) + items[place], rng
        )
    else:
        items[place] = items[place][:2] + _mutated(items[place][2:], rng)
    return b"".join(min(len(each), 65_535).to_bytes(2, "big") + each[:65_535] for each in items)


def _raw_head(rng: random.Random) -> tuple[int, int, int, int]:
    return (
        rng.choice([*SERVED_KEYS, 99, -1]),
        rng.choice([0, 1, 3, 12, 99, -1]),
        7,
        rng.choice([0, -1, 2, 300]),
    )


def samples(seed: int) -> Iterator[tuple[str, bytes]]:
    """Inputs of each kind for the other engine to begin with; every API and version is among them."""
    rng = random.Random(seed)
    for key in KEYS:
        for side, target in ((0, "request"), (1, "response")):
            cls = MESSAGES[key][side]
            for version in cls.SCHEMA.versions:
                yield target, bytes([key, version_byte(key, version)]) + encode_bytes(cls(), version)
    for key in SERVED_KEYS:
        for version in range(SERVED[key][0], SERVED[key][1] + 1):
            yield "handlers", item(key, version, encode_bytes(MESSAGES[key][0](), version))
    drawn: list[tuple[str, bytes]] = []
    for number in range(len(_ROUND)):
        run_chunk(rng.randrange(2**31), number, lambda target, data: drawn.append((target, data)))
    yield from rng.sample(drawn, min(1_000, len(drawn)))
