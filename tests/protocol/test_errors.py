"""Error codes: Kafka's numbers, words and which of them a client may retry."""

from __future__ import annotations

import struct

from lockstep.protocol.errors import ErrorCode


def test_a_code_is_the_int_it_stands_for() -> None:
    assert int(ErrorCode.POLICY_VIOLATION) == 44
    assert struct.pack(">h", ErrorCode.UNKNOWN_SERVER_ERROR) == b"\xff\xff"
    assert ErrorCode(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_codes_have_no_gap() -> None:
    assert [int(code) for code in ErrorCode] == list(range(-1, 137))


def test_retriable() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.POLICY_VIOLATION.retriable
    assert not ErrorCode.NONE.retriable


def test_every_code_has_words_of_its_own() -> None:
    words = [code.message for code in ErrorCode]
    assert all(words)
    assert len(set(words)) == len(words)
