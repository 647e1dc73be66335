"""A marker says what was flushed, of which place and life of the log; a damaged one says nothing."""

from __future__ import annotations

from lockstep.storage.log.format import group_seed, position_of
from lockstep.storage.log.marker import MARKER_BYTES, MARKER_MAGIC, decode_marker, encode_marker
from tests.support.cases import each_case

SEED = group_seed(3)
OWN, FLUSHED = position_of(7, 4096), position_of(6, 90_000)
MARKER = encode_marker(SEED, 5, OWN, FLUSHED, 1234)
SAID = (5, OWN, FLUSHED, 1234)


@each_case("kind", [bytes, bytearray, memoryview])
@each_case("at", [0, 1, 500])
def test_a_marker_is_read_wherever_it_stands(kind: type, at: int) -> None:
    assert decode_marker(kind(bytes(at) + MARKER + b"frames"), at, SEED) == SAID
    assert decode_marker(kind(bytes(at) + MARKER), at, SEED) == SAID


def test_every_bit_counts() -> None:
    for bit in range(MARKER_BYTES * 8):
        bad = bytearray(MARKER)
        bad[bit // 8] ^= 1 << bit % 8
        assert decode_marker(bad, 0, SEED) is None, bit


def test_a_marker_cut_short_is_none() -> None:
    for size in range(MARKER_BYTES):
        assert decode_marker(MARKER[:size], 0, SEED) is None
    assert decode_marker(MARKER, 1, SEED) is None


def test_another_group_s_marker_is_none() -> None:
    assert decode_marker(MARKER, 0, group_seed(4)) is None


def test_the_largest_values_fit() -> None:
    top = (1 << 64) - 1
    assert decode_marker(encode_marker(SEED, top, top, top, (1 << 32) - 1), 0, SEED) == (
        top,
        top,
        top,
        (1 << 32) - 1,
    )


def test_a_search_for_its_first_bytes_finds_it() -> None:
    """How recovery looks for promises beyond a torn frame."""
    assert (b"stale" + MARKER).find(MARKER_MAGIC) == 5
