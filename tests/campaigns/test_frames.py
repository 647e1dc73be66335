"""The frame source repeats itself for a seed, covers every API and family, and breaks what it means to."""

from __future__ import annotations

import gzip
import random
import struct
from collections import Counter

import crc32c
import pytest

from tests.campaigns.batches import BatchCorpus, make_bombs
from tests.campaigns.frames import FrameSource
from tests.campaigns.malformed import LOG_PROBLEM
from tests.support.cases import each_case
from tests.support.handmade_frames import (
    batch,
    next_offset,
    record,
    uvarint,
    values_batch,
    varint,
    whole_batches,
)

RANGES = {0: (3, 13), 1: (4, 18), 3: (0, 13), 18: (0, 4), 19: (2, 7), 60: (0, 2)}


def families(seed: int, count: int) -> Counter[str]:
    source = FrameSource(random.Random(seed), RANGES)
    return Counter(source.draw().family for _ in range(count))


def test_a_seed_gives_the_same_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.handmade_frames.time.time", lambda: 1_700_000_000.0)
    one, other = (FrameSource(random.Random(7), RANGES) for _ in range(2))
    assert [one.draw().octets for _ in range(300)] == [other.draw().octets for _ in range(300)]


def test_every_api_is_attacked_in_every_way() -> None:
    seen = families(3, 4000)
    for api_key in RANGES:
        assert seen[f"valid-{api_key}"] > 5
        assert seen[f"mutated-{api_key}"] > 20
    kinds = Counter[str]()
    for family, count in seen.items():
        kinds[family.split("-")[0]] += count
    assert set(kinds) - {"big"} == {
        "valid",
        "mutated",
        "wrong",
        "unknown",
        "tag",
        "bad",
        "huge",
        "batch",
        "bomb",
        "not",
    }


def test_every_kind_of_lying_batch_is_drawn() -> None:
    corpus = BatchCorpus(random.Random(5))
    drawn = Counter(corpus.draw()[0] for _ in range(3000))
    assert set(drawn) == set(corpus.families())


def test_whole_frames_have_their_true_length() -> None:
    source = FrameSource(random.Random(9), RANGES)
    for frame in (source.draw() for _ in range(1000)):
        if frame.whole:
            assert struct.unpack_from(">i", frame.octets)[0] == len(frame.octets) - 4


def test_an_honest_batch_is_honest() -> None:
    data = values_batch([b"one", b"two"])
    assert whole_batches(data) == [(0, [b"one", b"two"])]
    assert next_offset(data, 0) == 2
    assert struct.unpack_from(">I", data, 17)[0] == crc32c.crc32c(data[21:])


def test_a_lie_about_the_crc_is_one() -> None:
    with pytest.raises(ValueError, match="wrong CRC"):
        whole_batches(batch(record(0, None, b"v"), 1, crc_error=1))


def test_bombs_are_small_and_expand_far() -> None:
    bombs = dict(make_bombs())
    assert all(len(data) < 1_000_000 for data in bombs.values())
    assert len(gzip.decompress(bombs["gzip"][61:])) == 64 << 20


@each_case(("value", "octets"), [(0, b"\0"), (-1, b"\x01"), (1, b"\x02"), (300, b"\xd8\x04")])
def test_varints(value: int, octets: bytes) -> None:
    assert varint(value) == octets


def test_unsigned_varints() -> None:
    assert uvarint(300) == b"\xac\x02"
    assert len(uvarint(2**63)) == 10


@each_case(
    ("line", "found"),
    [
        ("Traceback (most recent call last):", True),
        ("2026-11-21 ERROR lockstep.broker.requests.router: produce v9", True),
        ("Task exception was never retrieved", True),
        ("2026-11-21 INFO closed 127.0.0.1:1: frame of 2147483647 bytes, at most 104857600", False),
    ],
)
def test_what_counts_as_trouble_in_a_log(line: str, found: bool) -> None:
    assert bool(LOG_PROBLEM.search(line)) == found
