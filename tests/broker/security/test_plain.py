"""PLAIN: the checks, their order and their texts, as Kafka 4.4.0 answered them."""

from __future__ import annotations

import pytest

from lockstep.broker.security.plain import PlainExchange
from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed
from tests.support.cases import each_case

USERS = {"alice": "secret", "nobody": "", "é": "ü"}
INVALID = "Authentication failed: Invalid username or password"


@each_case(
    ("token", "name"),
    [("\0alice\0secret", "alice"), ("alice\0alice\0secret", "alice"), ("\0é\0ü", "é")],
)
def test_a_login(token: str, name: str) -> None:
    assert PlainExchange(USERS).respond(token.encode()) == Authenticated(b"", name)


@each_case(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0nobody\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", INVALID),
        (b"\0bob\0secret", INVALID),
        (b"bob\0alice\0wrong", INVALID),
        (b"\0alice\0\xff", INVALID),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_a_failure(token: bytes, text: str) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        PlainExchange(USERS).respond(token)
    assert failed.value.client_text == text
    assert "secret" not in str(failed.value) and "wrong" not in str(failed.value).replace("is wrong", "")
