"""The mechanisms of a listener from its settings, and the error of each mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from lockstep.broker.security.sasl_exchange import Authenticated
from lockstep.broker.security.sasl_listener import PLAIN_MODULE, SCRAM_MODULE, SaslListener
from lockstep.broker.settings.properties import ConfigError
from lockstep.broker.settings.settings_reader import from_texts
from tests.support.cases import each_case

PREFIX = "listener.name.sasl_ssl."
USERS = {f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="x" user_alice="secret";'}


def listener(texts: Mapping[str, str]) -> SaslListener:
    settings = from_texts({"listeners": "SASL_SSL://localhost:9093", **texts})
    (one,) = settings.client_listeners()
    return SaslListener(settings.security_of(one), lambda mechanism, user: None)


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


@each_case(
    ("texts", "problem"),
    [
        ({}, "sasl.enabled.mechanisms=GSSAPI: GSSAPI: Kerberos is not served.*; served are PLAIN, SCRAM"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms=: names none of PLAIN, SCRAM-SHA-256"),
        (
            {"sasl.enabled.mechanisms": "OAUTHBEARER"},
            "sasl.enabled.mechanisms=OAUTHBEARER: OAUTHBEARER: is not served yet",
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
