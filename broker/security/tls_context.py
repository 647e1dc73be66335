"""The TLS of one listener: the context of its next connection, and the principal of a client's certificate.

Owns: `TlsListener`, whose context is replaced when keys or certificates change (`reloadable_key_store.py`).
Invariant: a connection keeps the context that it began with. Does not: speak TLS
(`broker/network/tls_connection.py`). Source: Kafka's SslFactory for what a new certificate may not lose.
"""

from __future__ import annotations

import contextlib
import datetime
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from cryptography import x509

from lockstep.broker.requests.kafka_principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from lockstep.broker.security.cipher_suites import OPENSSL_NAMES, TLS_1_3_SUITES
from lockstep.broker.security.distinguished_name import distinguished_name
from lockstep.broker.security.key_store import KeyStore, read_key_store, read_trust_store
from lockstep.broker.security.principal_rules import InvalidRule, Rule, parse_rules, principal_name
from lockstep.broker.security.reloadable_key_store import Contexts, ReloadableKeyStore, load_key, trust
from lockstep.broker.settings.config import SASL_SSL, SSL
from lockstep.broker.settings.security_settings import (
    CLIENT_AUTH_NONE,
    CLIENT_AUTH_REQUIRED,
    ListenerSecurity,
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class NoPrincipal(Exception):
    """No rule makes a name from a client's certificate; the text has its subject."""


class TlsListener(ReloadableKeyStore):
    """See the module. Raises ConfigError for settings that cannot be used.

    Args:
        now: the time, with its zone.
        with_sasl: clients log in by SASL, which names them; a certificate is required only by a setting of
            the listener itself, as in Kafka (KIP-684).
    """

    def __init__(
        self, security: ListenerSecurity, now: Callable[[], datetime.datetime], with_sasl: bool = False
    ) -> None:
        self._with_sasl = with_sasl
        self._rules = _rules(security)
        super().__init__(security, now)

    @property
    def context(self) -> ssl.SSLContext:
        """The context of connections that begin now."""
        return self._contexts[0]

    @property
    def protocol(self) -> str:
        """The listener's security protocol."""
        return SASL_SSL if self._with_sasl else SSL

    @property
    def requires_certificate(self) -> bool:
        """True if only clients with a trusted certificate connect."""
        return self.context.verify_mode is ssl.CERT_REQUIRED

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a client, from its certificate in DER. Raises NoPrincipal."""
        if certificate is None or self._with_sasl:
            return ANONYMOUS
        try:
            subject = distinguished_name(x509.load_der_x509_certificate(certificate).subject.public_bytes())
        except ValueError as error:
            raise NoPrincipal(f"the client's certificate cannot be read: {error}") from None
        name = principal_name(self._rules, subject)
        if name is None:
            raise NoPrincipal(f"no rule of ssl.principal.mapping.rules matches {subject}")
        return KafkaPrincipal(USER_TYPE, name)

    def _read(self, security: ListenerSecurity) -> tuple[KeyStore, Contexts]:
        keys = read_key_store(security, self._now())
        return keys, (make_context(security, keys, self._client_auth(security)),)

    def _check_successor(self, security: ListenerSecurity, new: KeyStore) -> None:
        _check_successor(security, self._keys.chain[0], new.chain[0])

    def _client_auth(self, security: ListenerSecurity) -> str:
        if self._with_sasl and not security.has_own("ssl.client.auth"):
            return CLIENT_AUTH_NONE
        client_auth: str = security.get("ssl.client.auth")
        return client_auth


def make_context(security: ListenerSecurity, keys: KeyStore, client_auth: str) -> ssl.SSLContext:
    """The context of a listener. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, security)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # each connection is checked again, and nothing is kept for it
    load_key(context, security, keys)
    if client_auth == CLIENT_AUTH_NONE:
        return context
    trusted = read_trust_store(security)
    if trusted is None:
        problem = "missing: clients' certificates are checked against it, as ssl.client.auth requires"
        raise security.error("ssl.truststore.location", problem)
    trust(context, trusted)  # a client's own certificate may be the trusted one
    context.verify_mode = ssl.CERT_REQUIRED if client_auth == CLIENT_AUTH_REQUIRED else ssl.CERT_OPTIONAL
    return context


def _set_versions(context: ssl.SSLContext, security: ListenerSecurity) -> None:
    versions = [_VERSIONS[each] for each in security.get("ssl.enabled.protocols")]
    if not versions:
        raise security.error("ssl.enabled.protocols", "names no version of TLS")
    suites = security.get("ssl.cipher.suites")
    for suite in suites:
        if suite not in OPENSSL_NAMES and suite not in TLS_1_3_SUITES:
            raise security.error("ssl.cipher.suites", f"{suite} is not served")
    older = [OPENSSL_NAMES[each] for each in suites if each in OPENSSL_NAMES]
    if suites and len(older) == len(suites):
        versions = [each for each in versions if each is not ssl.TLSVersion.TLSv1_3]
    elif suites and not older:
        versions = [each for each in versions if each is ssl.TLSVersion.TLSv1_3]
    if not versions:
        raise security.error("ssl.cipher.suites", "none is of a version that ssl.enabled.protocols has")
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if older:
        _set_ciphers(context, security, older)


def _set_ciphers(context: ssl.SSLContext, security: ListenerSecurity, names: Sequence[str]) -> None:
    """Raises ConfigError for a suite that this machine's OpenSSL, or its policy, does not have."""
    with contextlib.suppress(ssl.SSLError):  # it has none of them
        context.set_ciphers(":".join(names))
    offered = {each["name"] for each in context.get_ciphers()}
    for registered_name in security.get("ssl.cipher.suites"):
        if OPENSSL_NAMES.get(registered_name, "") in set(names) - offered:
            raise security.error("ssl.cipher.suites", f"OpenSSL rejects {registered_name} on this machine")


def _check_successor(security: ListenerSecurity, former: x509.Certificate, new: x509.Certificate) -> None:
    """Raises ConfigError if a new certificate is not for the same broker."""
    where = "ssl.keystore.location" if security.get("ssl.keystore.key") is None else "ssl.keystore.key"
    if former.subject != new.subject and not security.get("ssl.allow.dn.changes"):
        hint = "a restart or ssl.allow.dn.changes=true allows it"
        raise security.error(where, f"the new certificate has another subject; {hint}")
    if not _names(former) <= _names(new) and not security.get("ssl.allow.san.changes"):
        hint = "a restart or ssl.allow.san.changes=true allows it"
        raise security.error(where, f"a name of the former certificate is missing in the new one; {hint}")


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {repr(each) for each in found}


def _rules(security: ListenerSecurity) -> tuple[Rule, ...]:
    try:
        return parse_rules(security.get("ssl.principal.mapping.rules"))
    except InvalidRule as error:
        raise security.error("ssl.principal.mapping.rules", str(error)) from None
