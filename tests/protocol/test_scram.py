"""The client's side of SCRAM against the broker's, and what it rejects."""

from __future__ import annotations

import base64

import pytest

from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed
from lockstep.broker.security.scram import ScramExchange, salted_credential
from lockstep.protocol.scram import (
    MECHANISMS,
    MIN_ITERATIONS,
    SHA_256,
    ScramClient,
    ScramFailed,
    salt_password,
)

SALT = b"0123456789abcdef"


def exchange(mechanism: str, password: str = "pa,ss=1") -> ScramExchange:
    found = MECHANISMS[mechanism]
    salted = salt_password(found, password, SALT, MIN_ITERATIONS)
    credential = salted_credential(found, SALT, salted, MIN_ITERATIONS)
    return ScramExchange(found, {"a,b=c": credential}.get, "server", b"secret")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_sides_prove_themselves(mechanism: str) -> None:
    client, server = ScramClient(MECHANISMS[mechanism], "a,b=c", "pa,ss=1", "client"), exchange(mechanism)
    first = server.respond(client.first_message())
    assert isinstance(first, bytes)
    last = server.respond(client.final_message(first))
    assert isinstance(last, Authenticated)
    client.verify(last.token)
    forged = base64.b64encode(b"x" * 32)
    with pytest.raises(ScramFailed, match="not the right broker"):
        client.verify(b"v=" + forged)


def test_the_broker_rejects_another_password() -> None:
    client, server = ScramClient(SHA_256, "a,b=c", "wrong", "client"), exchange("SCRAM-SHA-256")
    first = server.respond(client.first_message())
    assert isinstance(first, bytes)
    with pytest.raises(AuthenticationFailed, match="password"):
        server.respond(client.final_message(first))


def test_the_example_of_rfc_7677() -> None:
    client = ScramClient(SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    final = client.final_message(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert final.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    client.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"e=other-error", "not of the form"),
        (b"r=other,s=MDEy,i=4096", "nonce"),
        (b"r=client,s=MDEy,i=4096", "nonce"),
        (b"r=clientx,s=MDEy,i=1", "iterations"),
        (b"r=clientx,s=MDEy,i=999999999", "iterations"),
        (b"r=clientx,s=M,i=4096", "base64"),
    ],
)
def test_responses_that_are_rejected(response: bytes, reason: str) -> None:
    with pytest.raises(ScramFailed, match=reason):
        ScramClient(SHA_256, "user", "secret", "client").final_message(response)


def test_a_broker_that_proves_nothing() -> None:
    client, server = ScramClient(SHA_256, "a,b=c", "pa,ss=1", "client"), exchange("SCRAM-SHA-256")
    first = server.respond(client.first_message())
    assert isinstance(first, bytes)
    with pytest.raises(ScramFailed, match="not of the form v=VERIFIER"):
        client.verify(b"v=AAAA")  # before there is anything to prove
    client.final_message(first)
    with pytest.raises(ScramFailed, match="not of the form v=VERIFIER"):
        client.verify(b"e=other-error")
