"""SCRAM, the server's side: RFC 7677's own example, and each way in which a login fails."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed
from lockstep.broker.security.scram import (
    MECHANISMS,
    SHA_256,
    SHA_512,
    TOKEN_FORM,
    Credential,
    CredentialForm,
    ScramExchange,
    ScramMechanism,
    TokenLogin,
    form_of,
    salt_password,
    salted_credential,
)
from tests.support.cases import each_case

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
KAFKAS = CredentialForm(8_192, 0)
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def credential(password: str = "pencil", mechanism: ScramMechanism = SHA_256) -> Credential:
    return salted_credential(mechanism, SALT, salt_password(mechanism, password, SALT, 4096), 4096)


def exchange(mechanism: ScramMechanism = SHA_256, nonce: str = SERVER_NONCE) -> ScramExchange:
    users = {"user": credential(mechanism=mechanism), "a,b=c": credential(mechanism=mechanism)}
    return ScramExchange(mechanism, users.get, nonce, b"secret")


def prove(mechanism: ScramMechanism, first: str, server_first: str, last: str, password: str) -> bytes:
    """A client's last message."""
    fields = dict(each.split("=", 1) for each in server_first.split(","))
    salted = salt_password(mechanism, password, base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored = hashlib.new(mechanism.digest, client_key).digest()
    signature = hmac.digest(stored, f"{first},{server_first},{last}".encode(), mechanism.digest)
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    return f"{last},p={base64.b64encode(proof).decode()}".encode()


def test_the_example_of_rfc_7677() -> None:
    login = exchange()
    assert login.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert login.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == Authenticated(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


@each_case(
    ("first", "name"),
    [
        ("n=user,r=abc", "user"),
        ("n=a=2Cb=3Dc,r=abc", "a,b=c"),
        ("m=extension,n=user,r=abc", "user"),
        ("n=user,r=abc,tokenauth=false,x=y", "user"),
    ],
)
@each_case("mechanism", MECHANISMS.values())
def test_a_login(mechanism: ScramMechanism, first: str, name: str) -> None:
    login = exchange(mechanism)
    answer = login.respond(f"n,,{first}".encode())
    assert isinstance(answer, bytes)
    last = f"c=biws,r=abc{SERVER_NONCE},y=ignored"
    done = login.respond(prove(mechanism, first, answer.decode(), last, "pencil"))
    assert isinstance(done, Authenticated) and (done.name, done.expires_ms) == (name, None)


@each_case(
    "message",
    [
        b"",
        b"\xff",
        b"hello",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us=er,r=abc",
        b"n,,r=abc,n=user",
        b"n,,n=user",
    ],
)
def test_a_first_message_of_another_form(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        exchange().respond(message)
    assert failed.value.client_text is None


def test_another_identity_has_its_own_text() -> None:
    assert isinstance(exchange().respond(b"n,a=user,n=user,r=abc"), bytes)
    with pytest.raises(AuthenticationFailed) as failed:
        exchange().respond(b"n,a=other,n=user,r=abc")
    assert (failed.value.client_text or "").endswith("an authorization id that is different from username")


@each_case(
    ("last", "reason"),
    [
        (f"c=biws,r=abc{SERVER_NONCE}", "is wrong"),
        ("c=biws,r=abc", "repeats another nonce$"),
        (f"c=biws,r=abcabc{SERVER_NONCE}", "librdkafka before 2.6.1"),
        (f"c=eSws,r=abc{SERVER_NONCE}", "the last message is not of the form"),
        (f"r=abc{SERVER_NONCE}", "the last message is not of the form"),
    ],
)
def test_a_last_message_that_fails(last: str, reason: str) -> None:
    login = exchange()
    answer = login.respond(b"n,,n=user,r=abc")
    assert isinstance(answer, bytes)
    with pytest.raises(AuthenticationFailed, match=reason) as failed:
        login.respond(prove(SHA_256, "n=user,r=abc", answer.decode(), last, "pen"))
    assert failed.value.client_text is None


@each_case(
    ("proof", "reason"),
    [("AAAA", "has another length"), ("A", "not in base64"), ("!", "not of the form")],
)
def test_a_proof_that_is_none(proof: str, reason: str) -> None:
    login = exchange()
    login.respond(b"n,,n=user,r=abc")
    with pytest.raises(AuthenticationFailed, match=reason):
        login.respond(f"c=biws,r=abc{SERVER_NONCE},p={proof}".encode())


def test_an_unknown_user_fails_last_and_looks_the_same_each_time() -> None:
    answers = [exchange().respond(b"n,,n=nobody,r=abc") for _ in range(2)]
    assert answers[0] == answers[1] and answers[0] != exchange().respond(b"n,,n=none,r=abc")
    login = exchange()
    answer = login.respond(b"n,,n=nobody,r=abc")
    assert isinstance(answer, bytes)
    last = f"c=biws,r=abc{SERVER_NONCE}"
    with pytest.raises(AuthenticationFailed, match="there is no user nobody with SCRAM-SHA-256") as failed:
        login.respond(prove(SHA_256, "n=nobody,r=abc", answer.decode(), last, "pencil"))
    assert failed.value.client_text is None


def shown(
    mechanism: ScramMechanism = SHA_256, first: str = "n=nobody,r=abc", form: CredentialForm = TOKEN_FORM
) -> tuple[bytes, int]:
    """Salt and iterations of an unknown user."""
    login = ScramExchange(mechanism, lambda name: None, SERVER_NONCE, b"secret", lambda token_id: None, form)
    answer = login.respond(f"n,,{first}".encode())
    assert isinstance(answer, bytes)
    fields = dict(each.split("=", 1) for each in answer.decode().split(","))
    return base64.b64decode(fields["s"]), int(fields["i"])


def test_an_unknown_user_is_shown_a_credential_in_the_form_of_the_stored_ones() -> None:
    assert shown(form=CredentialForm(8_192, 64))[1] == 8_192
    assert [len(shown(form=CredentialForm(8_192, each))[0]) for each in (1, 16, 64, 256)] == [1, 16, 64, 256]
    salts = [shown(first=f"n=u{each},r=c", form=KAFKAS)[0] for each in range(99)]
    assert {form_of(Credential(each, b"", b"", 8_192)) for each in salts} == {KAFKAS}, "as Kafka's tools make"
    assert form_of(credential()) == TOKEN_FORM


def test_salts_of_unknown_users_differ_by_mechanism_and_from_tokens() -> None:
    token = "n=nobody,r=abc,tokenauth=true"
    assert len({shown()[0], shown(SHA_512)[0], shown(first=token)[0]}) == 3
    assert shown(first=token, form=KAFKAS) == shown(first=token), "tokens have one form"


def test_the_proof_of_the_secret_itself_is_no_login() -> None:
    """A client that guesses the secret of absent users has no user for it."""
    login = ScramExchange(SHA_256, lambda name: None, SERVER_NONCE, b"secret")
    answer = login.respond(b"n,,n=nobody,r=abc")
    assert isinstance(answer, bytes)
    signed = f"n=nobody,r=abc,{answer.decode()},c=biws,r=abc{SERVER_NONCE}".encode()
    client_key = hmac.digest(b"secret", b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    with pytest.raises(AuthenticationFailed, match="there is no user nobody"):
        login.respond(f"c=biws,r=abc{SERVER_NONCE},p={base64.b64encode(proof).decode()}".encode())


def test_a_delegation_token_logs_in_as_its_owner() -> None:
    tokens = {"the-id": TokenLogin(credential("the hmac"), "alice", 7_000)}
    login = ScramExchange(SHA_256, {"the-id": credential()}.get, SERVER_NONCE, b"secret", tokens.get)
    first = "n=the-id,r=c,tokenauth=true"
    server_first = login.respond(f"n,,{first}".encode())
    assert isinstance(server_first, bytes)
    last = f"c=biws,r=c{SERVER_NONCE}"
    done = login.respond(prove(SHA_256, first, server_first.decode(), last, "the hmac"))
    assert isinstance(done, Authenticated)
    assert (done.name, done.expires_ms, done.is_token) == ("alice", 7_000, True)


def test_a_token_that_there_is_not_is_no_user() -> None:
    login = ScramExchange(SHA_256, {"user": credential()}.get, SERVER_NONCE, b"secret")
    first = "n=user,r=c,tokenauth=true"
    server_first = login.respond(f"n,,{first}".encode())
    assert isinstance(server_first, bytes)
    with pytest.raises(AuthenticationFailed, match="there is no delegation token user"):
        login.respond(prove(SHA_256, first, server_first.decode(), f"c=biws,r=c{SERVER_NONCE}", "pencil"))
