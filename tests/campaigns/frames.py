"""Malformed Kafka requests by the hundred thousand, the same ones for the same seed.

Owns: where each frame starts from (a valid random request of some API and version, written by kio; a
hand-made batch or name that lies; raw bytes that are no Kafka at all) and how it is then broken.
No socket; the random generator is an argument; only the batches' timestamps depend on the day.
Sources of the inputs: the CVEs and issues listed with each family below.
"""

from __future__ import annotations

import io
import random
import struct
import types
import uuid
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from typing import Any, get_args, get_origin

from kio.index import KioIndexError, load_request_schema
from kio.serial import entity_writer

from tests.campaigns.batches import BatchCorpus
from tests.support.handmade_frames import header, produce, string, uvarint

NAMES = ("fuzz-a", "fuzz-b", "fuzz-c")
"""The only valid topics it may create, so that what the broker rightly keeps stays small."""
BAD_NAMES = (
    "",
    ".",
    "..",
    "x" * 250,
    "x" * 32_000,
    "a\0b",
    "../../etc/passwd",
    "a/b",
    "ä",
    "__consumer_offsets",
)
RAW_MARKER = "fuzz-not-utf-8"
RAW_BYTES = b"\xff\xfe\xc3\x28\x80\x80\xed\xa0\x80\xf5\x00\xff\xff\xff"
STRINGS = ("", "a", "cleanup.policy", "retention.ms", "-1", "delete", "999999999999999999999", "x" * 300)
EXTREMES_32 = (0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFE, 0x10000000, 0x00FFFFFF, 0, 1)
INTEGERS = (0, 1, -1, 2, 3, 100, -2, 127, -128)
MAX_FRAME_BYTES = 0x7FFFFFFF

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(190)
HTTP_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Frame:
    """What goes on the wire, and what may be expected of it.

    `whole` is True when `octets` is exactly one frame of the length it names, so an answer may come;
    otherwise the broker may wait for more until we close.
    """

    __slots__ = ("family", "octets", "whole")

    def __init__(self, family: str, octets: bytes, whole: bool = True) -> None:
        self.family = family
        self.octets = octets
        self.whole = whole


class FrameSource:
    """Draws frames for the (api key -> lowest, highest version) `ranges` that a broker said it serves."""

    def __init__(self, rng: random.Random, ranges: Mapping[int, tuple[int, int]]) -> None:
        self._rng = rng
        self._ranges = dict(ranges)
        self._batches = BatchCorpus(rng)
        self._families: list[tuple[float, Callable[[], Frame]]] = [
            (6.0, self._mutated),
            (2.0, self._random_but_valid),
            (2.0, self._bad_batch),
            (1.5, self._wrong_length),
            (1.0, self._unknown_api_or_version),
            (1.0, self._tag_bomb),
            (1.0, self._bad_header),
            (0.5, self._huge_count),
            (0.5, self._not_kafka),
            (0.2, self._bomb),
            (0.02, self._big),
        ]

    def draw(self) -> Frame:
        """The next frame."""
        weights = [weight for weight, _ in self._families]
        (_, family) = self._rng.choices(self._families, weights)[0]
        return family()

    # -- families ---------------------------------------------------------------------------------------

    def _random_but_valid(self) -> Frame:
        api_key, version = self._some_api()
        return framed(f"valid-{api_key}", self.request(api_key, version))

    def _mutated(self) -> Frame:
        """Flips, truncation, extension, extreme integers and overlong varints at random places."""
        api_key, version = self._some_api()
        body = bytearray(self.request(api_key, version))
        for _ in range(self._rng.choice((1, 1, 1, 2, 5))):
            self._rng.choice(_MUTATIONS)(self._rng, body)
        return framed(f"mutated-{api_key}", bytes(body))

    def _wrong_length(self) -> Frame:
        """The length field disagrees with what follows (KIP-498, negative and huge lengths, early end)."""
        api_key, version = self._some_api()
        body = self.request(api_key, version)
        claimed = self._rng.choice(
            (
                0,
                -1,
                -(2**31),
                MAX_FRAME_BYTES,
                352_518_912,
                104_857_601,
                len(body) + 1,
                len(body) * 2 + 7,
                3,
                1,
            )
        )
        if self._rng.random() < 0.3:
            claimed = self._rng.randrange(len(body) + 1)  # the rest is taken for the next frame
        return Frame("wrong-length", struct.pack(">i", claimed) + body, whole=False)

    def _unknown_api_or_version(self) -> Frame:
        key = self._rng.choice([*self._ranges, -1, 99, 1000, 32767, -32768])
        version = self._rng.choice((-1, -32768, 32767, 200, self._ranges.get(key, (0, 20))[1] + 1))
        known = self._rng.choice(sorted(self._ranges))
        body = self.request(known, self._ranges[known][1])
        return framed("unknown-version", struct.pack(">hh", key, version) + body[4:])

    def _tag_bomb(self) -> Frame:
        """Very many, very large or lying tagged fields (CVE-2026-111115)."""
        flexible = [pair for pair in self._all_pairs() if flexible_request(*pair)]
        api_key, version = self._rng.choice(flexible or [(18, 3)])
        count = self._rng.choice((1000, 20_000, 2**31 - 1, 2**32 - 1, 2**63))
        size = self._rng.choice((0, 1, 2**31 - 1, 2**35))
        tags = uvarint(count) + (uvarint(self._rng.randrange(200)) + uvarint(size)) * min(count, 20_000)
        head = struct.pack(">hhi", api_key, version, 7) + string("bomb")
        if self._rng.random() < 0.5:
            return framed("tag-bomb-header", head + tags)
        body = self.request(api_key, version)
        return framed("tag-bomb-body", body[:-1] + tags)

    def _bad_header(self) -> Frame:
        api_key, version = self._some_api()
        head = struct.pack(">hhi", api_key, version, self._rng.getrandbits(31))
        tail = self.request(api_key, version)[8:]
        length = self._rng.choice((-2, -32768, 32767, 5000))
        cut = self._rng.randrange(8)
        return framed(
            "bad-header",
            self._rng.choice(
                (head[:cut], head, head + struct.pack(">h", length) + tail, head + b"\xff\xff" + tail)
            ),
        )

    def _huge_count(self) -> Frame:
        """A tiny frame that promises 2^31 elements (CVE-2022-34917, CVE-2026-111108)."""
        api_key, version = self._some_api()
        if flexible_request(api_key, version):
            head = struct.pack(">hhi", api_key, version, 7) + string("c") + b"\0"
            count = uvarint(self._rng.choice((2**31, 2**32 - 1, 2**28, 2**63)))
        else:
            head = header(api_key, version)
            count = struct.pack(">I", self._rng.choice(EXTREMES_32))
        filler = bytes(self._rng.choice((0, 3, 64, 5000)))
        return framed("huge-count", head + count + filler)

    def _bad_batch(self) -> Frame:
        """Batches whose header lies, that are no v2 batch, or that no client may send."""
        name, records = self._batches.draw()
        topic = self._rng.choice([*NAMES, *NAMES, *NAMES, *BAD_NAMES])
        partition = self._rng.choice((0, 0, 0, 1, -1, 2**31 - 1))
        acks = self._rng.choice((-1, -1, -1, 1, 0, 2, -2))
        return framed(f"batch-{name}", produce(topic, partition, records, acks=acks))

    def _bomb(self) -> Frame:
        """Small compressed, huge expanded (Kafka #23429, CVE-2023-34455)."""
        name, records = self._batches.draw_bomb()
        return framed(f"bomb-{name}", produce(self._rng.choice(NAMES), 0, records))

    def _big(self) -> Frame:
        """Megabytes within the frame limit that mean nothing; they must not stay."""
        api_key, version = self._some_api()
        body = self.request(api_key, version)
        return framed("big", body + bytes(self._rng.randrange(1 << 20, 20 << 20)))

    def _not_kafka(self) -> Frame:
        """TLS and HTTP to a plaintext port (KAFKA-4090), noise, and a connection that says little."""
        octets = self._rng.choice(
            (
                TLS_HELLO,
                HTTP_GET,
                self._rng.randbytes(self._rng.randrange(1, 400)),
                b"",
                b"\0",
                b"\0\0\0",
                bytes(4),
            )
        )
        return Frame("not-kafka", octets, whole=False)

    # -- valid requests with random contents ------------------------------------------------------------

    def request(self, api_key: int, version: int) -> bytes:
        """Header and body of a request whose bytes are valid and whose contents are random."""
        schema = request_schema(api_key, version)
        out = io.BytesIO()
        if schema is not None:
            entity_writer(schema)(out, self._instance(schema, api_key))
        body = out.getvalue().replace(RAW_MARKER.encode(), RAW_BYTES)
        head = struct.pack(">hhi", api_key, version, self._rng.getrandbits(31)) + string("fuzz")
        return head + (b"\0" if flexible_request(api_key, version) else b"") + body

    def _all_pairs(self) -> list[tuple[int, int]]:
        return [
            (api_key, version)
            for api_key, (lowest, highest) in sorted(self._ranges.items())
            for version in range(lowest, highest + 1)
        ]

    def _some_api(self) -> tuple[int, int]:
        api_key = self._rng.choice(sorted(self._ranges))
        lowest, highest = self._ranges[api_key]
        return api_key, self._rng.randint(lowest, highest)

    def _instance(self, schema: type[Any], api_key: int) -> Any:
        values: dict[str, Any] = {}
        for field in fields(schema):
            has_default = field.default is not MISSING
            if has_default and self._rng.random() < 0.3:
                continue
            values[field.name] = self._value(field.type, field.metadata, field.name, api_key)
        return schema(**values)

    def _value(self, kind: Any, metadata: Mapping[str, Any], name: str, api_key: int) -> Any:
        if isinstance(kind, types.UnionType):
            if "tag" not in metadata and self._rng.random() < 0.2:
                return None
            kind = next(each for each in get_args(kind) if each is not type(None))
        if get_origin(kind) is tuple:
            element = get_args(kind)[0]
            count = self._rng.choice((0, 1, 1, 1, 2, 5))
            return tuple(self._value(element, metadata, name, api_key) for _ in range(count))
        if isinstance(kind, type) and is_dataclass(kind):
            return self._instance(kind, api_key)
        return self._primitive(metadata["kafka_type"], name, api_key)

    def _primitive(self, kafka_type: str, name: str, api_key: int) -> Any:
        rng = self._rng
        if kafka_type == "string":
            return self._string(name)
        if kafka_type == "bool":
            return rng.random() < 0.5
        if kafka_type == "uuid":
            return rng.choice((None, uuid.UUID(int=rng.getrandbits(128)), uuid.UUID(int=1)))
        if kafka_type == "records":
            return self._batches.draw()[1]
        if kafka_type == "bytes":
            return rng.randbytes(rng.choice((0, 1, 40)))
        if kafka_type.startswith("timedelta"):
            return timedelta(milliseconds=rng.choice((0, 1, 5, 20)))
        if kafka_type == "float64":
            return rng.random()
        return self._integer(kafka_type, name)

    def _integer(self, kafka_type: str, name: str) -> int:
        bits = int(kafka_type.rpartition("t")[2])
        if name == "num_partitions":
            return self._rng.choice((-1, 0, 1, 2, -5, 2**31 - 1))
        low, high = (
            (0, 2**bits - 1) if kafka_type.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        value = int(self._rng.choice([*INTEGERS, low, high]))
        return int(min(high, max(low, value)))

    def _string(self, name: str) -> str:
        if name in ("name", "topic", "topics", "resource_name", "coordinator_keys", "key"):
            return self._rng.choice([*NAMES, *NAMES, *BAD_NAMES, RAW_MARKER])
        return self._rng.choice((*STRINGS, *NAMES, RAW_MARKER))


def framed(family: str, body: bytes) -> Frame:
    """One frame with its true length."""
    return Frame(family, struct.pack(">i", len(body)) + body)


def request_schema(api_key: int, version: int) -> type[Any] | None:
    """kio's request class, of the nearest lower version when kio does not know this one yet."""
    for candidate in range(version, -1, -1):
        try:
            return load_request_schema(api_key, candidate)
        except KioIndexError:
            continue
    return None


def flexible_request(api_key: int, version: int) -> bool:
    """Whether header v2 (with tagged fields) goes before this request."""
    schema = request_schema(api_key, version)
    return bool(schema is not None and schema.__flexible__)


# -- mutations of a frame's body in place ---------------------------------------------------------------


def _flip(rng: random.Random, body: bytearray) -> None:
    if body:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def _overwrite_32(rng: random.Random, body: bytearray) -> None:
    if len(body) > 12:
        struct.pack_into(">I", body, rng.randrange(8, len(body) - 3), rng.choice(EXTREMES_32))


def _overwrite_16(rng: random.Random, body: bytearray) -> None:
    if len(body) > 10:
        struct.pack_into(
            ">H", body, rng.randrange(8, len(body) - 1), rng.choice((0xFFFF, 0x8000, 0x7FFF, 0xFFFE))
        )


def _insert_varint(rng: random.Random, body: bytearray) -> None:
    place = rng.randrange(8, len(body) + 1) if len(body) >= 8 else 0
    body[place : place + 1] = rng.choice(
        (
            b"\xff" * 5,
            b"\xff" * 10,
            b"\x80" * 9 + b"\x01",
            b"\x80" * 20,
            b"\xff\xff\xff\xff\x0f",
            b"\xff\xff\xff\xff\x07",
        )
    )


def _truncate(rng: random.Random, body: bytearray) -> None:
    del body[rng.randrange(len(body) + 1) :]


def _extend(rng: random.Random, body: bytearray) -> None:
    body += rng.randbytes(rng.choice((1, 2, 30, 2000)))


def _cut_out(rng: random.Random, body: bytearray) -> None:
    place = rng.randrange(len(body) + 1)
    del body[place : place + rng.choice((1, 2, 4, 16))]


def _noise(rng: random.Random, body: bytearray) -> None:
    if len(body) > 8:
        place = rng.randrange(8, len(body))
        noise = rng.randbytes(rng.choice((1, 4, 16)))
        body[place : place + len(noise)] = noise


_MUTATIONS: tuple[Callable[[random.Random, bytearray], None], ...] = (
    _flip,
    _flip,
    _overwrite_32,
    _overwrite_32,
    _overwrite_16,
    _insert_varint,
    _truncate,
    _extend,
    _cut_out,
    _noise,
)
