"""The mechanisms of a listener from its settings, and the error of each mistake."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from lockstep.broker.security.sasl_exchange import Authenticated
from lockstep.broker.security.sasl_listener import (
    OAUTHBEARER_HANDLER,
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    SaslListener,
)
from lockstep.broker.security.scram_credentials import ScramCredentials
from lockstep.broker.settings.properties import ConfigError
from lockstep.broker.settings.settings_reader import from_texts
from tests.support.cases import each_case
from tests.support.tokens import AUDIENCE, ISSUER, claims, first_message, jwks, signed, unsigned

PREFIX = "listener.name.sasl_ssl."
USERS = {f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="x" user_alice="secret";'}

OAUTH = "sasl.oauthbearer."
TOKENS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    f"{OAUTH}jwks.endpoint.url": "https://issuer.example/keys",
    f"{OAUTH}expected.audience": AUDIENCE,
    f"{OAUTH}expected.issuer": ISSUER,
    "lockstep.sasl.oauthbearer.allowed.urls": "https://issuer.example/keys",
    f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
    f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": OAUTHBEARER_HANDLER,
}


def listener(texts: Mapping[str, str]) -> SaslListener:
    settings = from_texts({"listeners": "SASL_SSL://localhost:9093", **texts})
    (one,) = settings.client_listeners()
    return SaslListener(settings.security_of(one), ScramCredentials)


def test_mechanisms_users_and_limits() -> None:
    found = listener(
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            **USERS,
            f"{PREFIX}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
            "connections.max.reauth.ms": "1000",
            f"{PREFIX}connections.max.reauth.ms": "2000",
            f"{PREFIX}plain.connections.max.reauth.ms": "3000",
            f"{PREFIX}connection.failed.authentication.delay.ms": "50",
        }
    )
    assert list(found.mechanisms) == ["SCRAM-SHA-512", "PLAIN"]
    assert [each.max_reauth_ms for each in found.mechanisms.values()] == [2000, 3000]
    assert (found.failure_delay_seconds, found.max_receive_bytes) == (0.05, 524_288)
    session = found.new_session()
    session.on_handshake(1, "PLAIN", 0)
    assert session.on_authenticate(b"\0alice\0secret", 0, 0).lifetime_ms == 3000
    first = b"n,,n=alice,r=abc"
    answers = [found.mechanisms["SCRAM-SHA-512"].begin().respond(first) for _ in range(2)]
    assert not any(isinstance(each, Authenticated) for each in answers)
    assert answers[0] != answers[1], "the nonce is never the same"


def test_tokens_of_the_expected_issuer_log_in(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(jwks()))
    found = listener({**TOKENS, f"{OAUTH}jwks.endpoint.url": path.as_uri(), f"{OAUTH}sub.claim.name": "azp"})
    begin = found.mechanisms["OAUTHBEARER"].begin
    good = claims(int(time.time()), azp="app")
    outcome = begin().respond(first_message(signed(good)))
    assert outcome == Authenticated(b"", "app", good["exp"] * 1000)
    for bad in (signed({**good, "aud": "x"}), signed({**good, "iss": "x"}), unsigned(good)):
        assert begin().respond(first_message(bad)) == b'{"status":"invalid_token"}'


def test_keys_at_a_url_are_fetched_later_and_until_then_nobody_logs_in() -> None:
    found = listener(TOKENS)
    assert found.token_keys is not None and found.token_keys.keys == ()
    exchange = found.mechanisms["OAUTHBEARER"].begin()
    token = signed(claims(int(time.time())))
    assert exchange.respond(first_message(token)) == b'{"status":"invalid_token"}'


def test_unsigned_tokens_need_a_switch_that_warns(caplog: pytest.LogCaptureFixture) -> None:
    switch = "lockstep.testing.insecure.accept.unsigned.tokens"
    found = listener({"sasl.enabled.mechanisms": "OAUTHBEARER", switch: "true"})
    assert found.token_keys is None
    token = unsigned(claims(int(time.time()), iss="anybody", aud="anything"))
    outcome = found.mechanisms["OAUTHBEARER"].begin().respond(first_message(token))
    assert isinstance(outcome, Authenticated) and outcome.name == "alice"
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (logging.WARNING, f"{switch}: a client that reaches listener SASL_SSL may be any user")
    ]


def test_keys_that_come_without_encryption_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    url = "http://127.0.0.1:1/keys"
    listener({**TOKENS, f"{OAUTH}jwks.endpoint.url": url, "lockstep.sasl.oauthbearer.allowed.urls": url})
    assert "keys of tokens come without encryption: http://127.0.0.1:1/keys" in caplog.text


@each_case(
    ("texts", "problem"),
    [
        ({}, "sasl.enabled.mechanisms=GSSAPI: GSSAPI: Kerberos is not served.*; served are PLAIN, SCRAM"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms=: names none of PLAIN, SCRAM-SHA-256"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER"},
            f"{OAUTH}jwks.endpoint.url=: OAUTHBEARER needs the keys of tokens: file:///PATH or a URL",
        ),
        (
            {**TOKENS, f"{OAUTH}expected.audience": ""},
            f"{OAUTH}expected.audience=: OAUTHBEARER needs it; .*=true",
        ),
        (
            {**TOKENS, f"{PREFIX}oauthbearer.{OAUTH}expected.issuer": ""},
            f"{PREFIX}oauthbearer.{OAUTH}expected.issuer=: OAUTHBEARER needs it; .*unverified.issuer=true",
        ),
        (
            {**TOKENS, f"{OAUTH}jwks.endpoint.url": "file:///no/such"},
            f"{OAUTH}jwks.endpoint.url=file:.*No such file",
        ),
        (
            {**TOKENS, "lockstep.sasl.oauthbearer.allowed.urls": "https://issuer.example/other"},
            f"{OAUTH}jwks.endpoint.url=https:.* not among the allowed URLs .lockstep.sasl.oauth",
        ),
        (
            {**TOKENS, f"{PREFIX}oauthbearer.sasl.jaas.config": f"{PLAIN_MODULE} required;"},
            rf"{PREFIX}oauthbearer.sasl.jaas.config=\[hidden\]: .* OAUTHBEARER needs {OAUTHBEARER_MODULE}",
        ),
        (
            {**TOKENS, f"{PREFIX}oauthbearer.sasl.server.callback.handler.class": "my.Handler"},
            f"{PREFIX}oauthbearer.sasl.server.callback.handler.class=my.Handler: classes are not served",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "sasl.server.callback.handler.class": OAUTHBEARER_HANDLER,
            },
            "sasl.server.callback.handler.class=.*: classes are not served; remove it for SCRAM-SHA-512",
        ),
        (
            {f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-1"},
            f"{PREFIX}sasl.enabled.mechanisms=SCRAM-SHA-1: SCRAM-SHA-1: no such mechanism",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "sasl.jaas.config": "counts for no mechanism, as in Kafka"},
            f"sasl.enabled.mechanisms=PLAIN: PLAIN has no users: set {PREFIX}plain.sasl.jaas.config=",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": "hush"},
            rf"{PREFIX}plain.sasl.jaas.config=\[hidden\]: not of the form",
        ),
        (
            {"sasl.enabled.mechanisms": "PLAIN", f"{PREFIX}plain.sasl.jaas.config": "my.Hush required;"},
            rf"{PREFIX}plain.sasl.jaas.config=\[hidden\]: my.Hush is not served; PLAIN needs {PLAIN_MODULE}",
        ),
        (
            {
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                f"{PREFIX}scram-sha-256.sasl.jaas.config": f"{PLAIN_MODULE} required;",
            },
            rf"{PREFIX}scram-sha-256.sasl.jaas.config=\[hidden\]: .* is not served; SCRAM-SHA-256 needs",
        ),
    ],
)
def test_settings_that_stop_the_start(texts: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        listener(texts)
    assert re.match(problem, str(refused.value)), str(refused.value)


def test_a_missing_file_of_token_keys_names_no_other_setting(tmp_path: Path) -> None:
    url = f"{OAUTH}jwks.endpoint.url"
    with pytest.raises(ConfigError) as failure:
        listener({**TOKENS, url: (tmp_path / "none.json").as_uri()})
    assert url in str(failure.value) and "allowed.urls" not in str(failure.value)
