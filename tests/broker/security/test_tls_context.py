"""The context of a listener: versions, suites, clients' certificates, and what may replace a certificate."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest

from lockstep.broker.requests.kafka_principal import ANONYMOUS, KafkaPrincipal
from lockstep.broker.security.tls_context import NoPrincipal, TlsListener
from lockstep.broker.settings.properties import ConfigError
from tests.broker.security.test_key_store import inline, security
from tests.broker.security.test_reloadable_key_store import of_file, replace
from tests.support.cases import each_case
from tests.support.certificates import DAY, NOW, SelfSignedCa

AUTHORITY = SelfSignedCa()
OWN = inline(AUTHORITY.issue("broker"))
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.pem()}


def listener(texts: Mapping[str, str] = {}, now: datetime.datetime = NOW) -> TlsListener:
    return TlsListener(security({**OWN, **texts}), lambda: now)


def test_by_default_both_versions_and_no_client_certificate() -> None:
    context = listener().context
    assert (context.minimum_version, context.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    )
    assert context.verify_mode is ssl.CERT_NONE and not listener().requires_certificate


@each_case(
    ("texts", "lowest", "highest"),
    [
        ({"ssl.enabled.protocols": "TLSv1.3"}, "TLSv1_3", "TLSv1_3"),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1_2", "TLSv1_2"),
        ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "TLSv1_3", "TLSv1_3"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"},
            "TLSv1_2",
            "TLSv1_3",
        ),
    ],
)
def test_versions_and_suites(texts: dict[str, str], lowest: str, highest: str) -> None:
    context = listener(texts).context
    assert (context.minimum_version.name, context.maximum_version.name) == (lowest, highest)
    older = {each["name"] for each in context.get_ciphers() if each["protocol"] == "TLSv1.2"}
    if "ssl.cipher.suites" in texts and lowest == "TLSv1_2":
        assert len(older) == 1


@each_case(
    ("texts", "problem"),
    [
        ({"ssl.enabled.protocols": ""}, "ssl.enabled.protocols=.*names no version"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"}, "ssl.cipher.suites=.*CBC_SHA is not served"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"},
            "ssl.cipher.suites=.*none is of a version",
        ),
        ({"ssl.client.auth": "required"}, "ssl.truststore.location=: missing: clients' certificates"),
        ({"ssl.principal.mapping.rules": "RULE:"}, "ssl.principal.mapping.rules=RULE:: 'RULE:' is not of"),
    ],
)
def test_settings_that_stop_the_start(texts: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        listener(texts)


def test_clients_certificates() -> None:
    required = listener({**TRUST, "ssl.client.auth": "required"})
    assert required.context.verify_mode is ssl.CERT_REQUIRED and required.requires_certificate
    assert listener({**TRUST, "ssl.client.auth": "requested"}).context.verify_mode is ssl.CERT_OPTIONAL


def test_principals() -> None:
    alice = AUTHORITY.issue("alice", organization="Shop").der()
    assert listener().principal_of(None) == ANONYMOUS
    assert listener().principal_of(alice) == KafkaPrincipal("User", "CN=alice,O=Shop")
    ruled = listener({"ssl.principal.mapping.rules": "RULE:^CN=(.*),O=Shop$/$1/U"})
    assert str(ruled.principal_of(alice)) == "User:ALICE"
    with pytest.raises(NoPrincipal, match="matches CN=bob"):
        ruled.principal_of(AUTHORITY.issue("bob").der())
    with pytest.raises(NoPrincipal, match="cannot be read"):
        ruled.principal_of(b"noise")


def test_an_end_within_a_month_is_warned_of() -> None:
    (line,) = listener(now=NOW + 340 * DAY).expiry_warnings
    assert "listener SSL expires at 20" in line
    assert listener().expiry_warnings == []


def test_a_trusted_authority_that_ends_soon_or_has_ended_is_warned_of() -> None:
    ended = SelfSignedCa("Old Root", ends=NOW - DAY / 2)
    both = {
        **TRUST,
        "ssl.client.auth": "required",
        "ssl.truststore.certificates": ended.pem() + AUTHORITY.pem(),
    }
    (line,) = listener(both).expiry_warnings
    end = ended.certificate.not_valid_after_utc.isoformat(" ", "minutes")
    assert line == (
        f"the certificate of CN=Old Root, which listener SSL trusts, expires at {end}: "
        "it does not certify clients from then on"
    )
    assert listener({**both, "ssl.client.auth": "none"}).expiry_warnings == []


@each_case(
    ("common_name", "names", "allowed", "taken"),
    [
        ("broker", ("localhost", "127.0.0.1"), {}, True),
        ("broker", ("localhost", "127.0.0.1", "more"), {}, True),
        ("broker", ("localhost",), {}, False),
        ("broker", (), {}, False),
        ("broker", ("localhost",), {"ssl.allow.san.changes": "true"}, True),
        ("other", ("localhost", "127.0.0.1"), {}, False),
        ("other", ("localhost", "127.0.0.1"), {"ssl.allow.dn.changes": "true"}, True),
    ],
)
def test_a_new_certificate_is_of_the_same_broker(
    tmp_path: Path, common_name: str, names: tuple[str, ...], allowed: dict[str, str], taken: bool
) -> None:
    path = AUTHORITY.issue("broker").write_pem(tmp_path / "broker.pem")
    tls = of_file(path, **allowed)
    former = tls.context
    new = AUTHORITY.issue(common_name, names=names)
    replace(path, new.key_pem() + new.chain_pem())
    tls.reload_changed()
    assert (tls.context is not former) == taken
