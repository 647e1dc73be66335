"""OAUTHBEARER: the messages of a login, as Kafka's OAuthBearerSaslServer reads and answers them."""

from __future__ import annotations

import pytest

from lockstep.broker.security.oauthbearer import (
    CONFIRMATION,
    REJECTED_TOKEN,
    InvalidToken,
    OAuthBearerExchange,
    ValidToken,
)
from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed
from tests.support.cases import each_case


def validate(token: str) -> ValidToken:
    if token != "good":
        raise InvalidToken(f"{token} is rejected")
    return ValidToken("al,ice", 5_000)


@each_case(
    "message",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,a=al=2Cice,\x01auth=bearer   good\x01\x01",
        b"n,,\x01host=h.example\x01auth=BEARER good\x01port=9092\x01\x01",
    ],
)
def test_a_good_token_logs_its_user_in_until_it_ends(message: bytes) -> None:
    assert OAuthBearerExchange(validate).respond(message) == Authenticated(b"", "al,ice", 5_000)


def test_a_bad_token_is_rejected_once_the_client_has_confirmed() -> None:
    exchange = OAuthBearerExchange(validate)
    assert exchange.respond(b"n,,\x01auth=Bearer bad\x01\x01") == REJECTED_TOKEN.encode()
    assert REJECTED_TOKEN == '{"status":"invalid_token"}'
    with pytest.raises(AuthenticationFailed, match=r"^bad is rejected$") as failed:
        exchange.respond(CONFIRMATION)
    assert failed.value.client_text == REJECTED_TOKEN


def test_a_client_may_send_another_token_instead() -> None:
    exchange = OAuthBearerExchange(validate)
    exchange.respond(b"n,,\x01auth=Bearer bad\x01\x01")
    assert isinstance(exchange.respond(b"n,,\x01auth=Bearer good\x01\x01"), Authenticated)


def test_a_second_rejected_token_ends_the_login() -> None:
    exchange = OAuthBearerExchange(validate)
    exchange.respond(b"n,,\x01auth=Bearer bad\x01\x01")
    with pytest.raises(AuthenticationFailed, match=r"^a second token: worse is rejected$") as failed:
        exchange.respond(b"n,,\x01auth=Bearer worse\x01\x01")
    assert failed.value.client_text == REJECTED_TOKEN


@each_case(
    ("message", "reason"),
    [
        (CONFIRMATION, "the form n,,"),
        (b"", "the form n,,"),
        (b"\xff", "the form n,,"),
        (b"y,,\x01auth=Bearer good\x01\x01", "the form n,,"),
        (b"n,,\x01auth=Bearer good\x01", "the form n,,"),
        (b"n,,auth=Bearer good\x01\x01", "the form n,,"),
        (b"n,a=b=c,\x01auth=Bearer good\x01\x01", "the form n,,"),
        (b"n,,\x01auth=Basic good\x01\x01", "no auth=Bearer"),
        (b"n,,\x01auth=Bearer go/od\x01\x01", "no auth=Bearer"),
        (b"n,,\x01host=h\x01\x01", "no auth=Bearer"),
    ],
)
def test_other_messages(message: bytes, reason: str) -> None:
    with pytest.raises(AuthenticationFailed, match=reason) as failed:
        OAuthBearerExchange(validate).respond(message)
    assert failed.value.client_text is None


def test_another_identity_than_the_tokens() -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        OAuthBearerExchange(validate).respond(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    assert failed.value.client_text == (
        "Authentication failed: Client requested an authorization id (bob) that is different from the "
        "token's principal name (al,ice)"
    )
