"""The TLS of one listener: the context of its next connection, and the principal of a client's certificate.

Owns: `TlsListener`, whose context is replaced when keys or certificates change. Invariants: a connection
keeps the context that it began with; a change that cannot be used leaves the former context, with a line in
the log; private keys are in no file but the operator's own. Does not: speak TLS
(`broker/network/tls_connection.py`). Source: Kafka's SslFactory for what a new certificate may not lose.
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lockstep.broker.requests.kafka_principal import ANONYMOUS, USER_TYPE, KafkaPrincipal
from lockstep.broker.security.cipher_suites import OPENSSL_NAMES, TLS_1_3_SUITES
from lockstep.broker.security.distinguished_name import distinguished_name
from lockstep.broker.security.key_store import KeyStore, read_key_store, read_trust_store, store_files
from lockstep.broker.security.principal_rules import InvalidRule, Rule, parse_rules, principal_name
from lockstep.broker.settings.properties import ConfigError
from lockstep.broker.settings.security_settings import (
    CLIENT_AUTH_NONE,
    CLIENT_AUTH_REQUIRED,
    ListenerSecurity,
)

log = logging.getLogger("lockstep.security")

EXPIRY_WARNING: Final = datetime.timedelta(days=30)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

FileStates = tuple[tuple[int, int, int] | None, ...]
"""Time, size and inode of files; None for one that is not there."""


class NoPrincipal(Exception):
    """No rule makes a name from a client's certificate; the text has its subject."""


class TlsListener:
    """See the module. Raises ConfigError for settings that cannot be used.

    Args:
        now: the time, with its zone.
        with_sasl: clients log in by SASL, which names them; a certificate is required only by a setting of
            the listener itself, as in Kafka (KIP-684).
    """

    def __init__(
        self, security: ListenerSecurity, now: Callable[[], datetime.datetime], with_sasl: bool = False
    ) -> None:
        self.name = security.listener_name
        self._security, self._now, self._with_sasl = security, now, with_sasl
        self._files = _file_states(security)
        self._failed: FileStates | None = None
        self._rules = _rules(security)
        self._keys = read_key_store(security, now())
        self.context = make_context(security, self._keys, self._client_auth(security))
        """The context of connections that begin now."""

    @property
    def requires_certificate(self) -> bool:
        """True if only clients with a trusted certificate connect."""
        return self.context.verify_mode is ssl.CERT_REQUIRED

    @property
    def expiry_warning(self) -> str:
        """A line for the log if a certificate ends soon, else an empty one."""
        if self._keys.expires - self._now() > EXPIRY_WARNING:
            return ""
        end = self._keys.expires.isoformat(" ", "minutes")
        return f"the certificate of listener {self.name} expires at {end}: clients reject it from then on"

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

    def reload_changed(self) -> None:
        """Take over files that have changed since they were read."""
        states = _file_states(self._security)
        if states != self._files and states != self._failed:
            self._failed = None if self._take_over(self._security, states) else states

    def reload(self, security: ListenerSecurity) -> None:
        """Read keys and certificates again, by settings that may have changed."""
        self._take_over(security, _file_states(security))

    def check(self, security: ListenerSecurity) -> tuple[KeyStore, ssl.SSLContext]:
        """The next keys and context, by these settings. Raises ConfigError where they cannot be used."""
        keys = read_key_store(security, self._now())
        _check_successor(security, self._keys.chain[0], keys.chain[0])
        return keys, make_context(security, keys, self._client_auth(security))

    def _client_auth(self, security: ListenerSecurity) -> str:
        if self._with_sasl and not security.has_own("ssl.client.auth"):
            return CLIENT_AUTH_NONE
        client_auth: str = security.get("ssl.client.auth")
        return client_auth

    def _take_over(self, security: ListenerSecurity, states: FileStates) -> bool:
        """Replace the context; returns whether that was possible."""
        try:
            keys, context = self.check(security)
        except ConfigError as error:
            log.error("listener %s keeps its former keys and certificates: %s", self.name, error)
            return False
        self._security, self._keys, self.context, self._files = security, keys, context, states
        end = keys.expires.isoformat(" ", "minutes")
        log.info("listener %s: keys and certificates read again, valid until %s", self.name, end)
        return True


def make_context(security: ListenerSecurity, keys: KeyStore, client_auth: str) -> ssl.SSLContext:
    """The context of a listener. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, security)
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # each connection is checked anew, and nothing is kept for it
    with _private_file(keys.key_pem + keys.chain_pem) as path:
        try:
            context.load_cert_chain(path)
        except ssl.SSLError as error:
            problem = f"OpenSSL rejects the certificate: {error.reason or error}"
            raise security.error("ssl.keystore.location", problem) from None
    if client_auth == CLIENT_AUTH_NONE:
        return context
    trusted = read_trust_store(security)
    if trusted is None:
        problem = "missing: clients' certificates are checked against it, as ssl.client.auth requires"
        raise security.error("ssl.truststore.location", problem)
    context.load_verify_locations(cadata=b"".join(map(_der, trusted)))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a client's own certificate may be the trusted one
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
        context.set_ciphers(":".join(older))


def _check_successor(security: ListenerSecurity, former: x509.Certificate, new: x509.Certificate) -> None:
    """Raises ConfigError if a new certificate is not for the same broker."""
    where = "ssl.keystore.location" if security.get("ssl.keystore.key") is None else "ssl.keystore.key"
    if former.subject != new.subject and not security.get("ssl.allow.dn.changes"):
        hint = "a restart or ssl.allow.dn.changes=true allows it"
        raise security.error(where, f"the new certificate has another subject; {hint}")
    if not _names(former) <= _names(new) and not security.get("ssl.allow.san.changes"):
        hint = "a restart or ssl.allow.san.changes=true allows it"
        raise security.error(where, f"the new certificate lacks a name that the former one has; {hint}")


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


def _file_states(security: ListenerSecurity) -> FileStates:
    states: list[tuple[int, int, int] | None] = []
    for path in store_files(security):
        try:
            found = path.stat()
        except OSError:
            states.append(None)
        else:
            states.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(states)


@contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """A file that OpenSSL reads once: in memory where the system has such files, else one of this user."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("lockstep-key")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # its mode is 0600
        file.write(data)
        file.flush()
        yield file.name


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)
