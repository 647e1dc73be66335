"""Which pieces of an answer are joined."""

from __future__ import annotations

from lockstep.broker.network.response_encoder import JOIN_BELOW_BYTES, coalesce


def test_small_pieces_are_joined_and_large_ones_kept() -> None:
    large = bytearray(JOIN_BELOW_BYTES)
    pieces = coalesce([b"a", b"b", large, b"c", large, large, b"d", b"e"])
    assert [bytes(piece[:1]) for piece in pieces] == [b"a", b"\0", b"c", b"\0", b"\0", b"d"]
    assert pieces[0] == b"ab"
    assert pieces[1] is large
