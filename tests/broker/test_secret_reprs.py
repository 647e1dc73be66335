"""No representation of an object has a secret: it ends up in a traceback, and so in a log."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from cryptography.x509 import Certificate

from lockstep.broker.controller.initial_scram_users import InitialUser
from lockstep.broker.security.certificate_authority import Issued
from lockstep.broker.security.delegation_tokens import DelegationTokenRules
from lockstep.broker.security.key_store import KeyStore
from lockstep.broker.security.scram import Credential
from lockstep.broker.security.scram_users import Requested
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.protocol.jaas import parse_jaas

SECRET = "c0ffee"
PASSWORDS = {
    "ssl.keystore.password": SECRET,
    "delegation.token.secret.key": SECRET,
    "lockstep.metrics.token": SECRET,
}


def test_no_repr_has_a_secret() -> None:
    settings = from_texts({**PASSWORDS, "listener.name.a.plain.sasl.jaas.config": SECRET})
    assert settings.ssl_keystore_password == SECRET
    secret = SECRET.encode()
    values: list[object] = [
        settings,
        replace(settings, dynamic_node=PASSWORDS, dynamic_cluster=PASSWORDS),
        DelegationTokenRules(SECRET),
        KeyStore(secret, ()),
        Issued(secret, cast(Certificate, None)),
        Credential(b"", secret, secret, 4096),
        Requested("alice", 1, 4096, b"", secret),
        InitialUser("SCRAM-SHA-256", "alice", SECRET, 4096),
        parse_jaas(f"a.Module required password={SECRET};"),
    ]
    assert [type(each).__name__ for each in values if SECRET in repr(each)] == []
