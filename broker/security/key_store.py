"""Private keys and certificates of a listener, from PEM and PKCS12, in files or in the settings themselves.

Owns: `read_key_store` and `read_trust_store`, and the error of each way in which such a setting can be
wrong. Invariants: an error names the setting and the remedy, and shows no secret; a key belongs to its
certificate; the broker's certificate is valid now. Does not: know TLS (`tls_context.py`), or the forms of
files (`protocol/key_stores.py`). Source: Kafka's DefaultSslEngineFactory.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from lockstep.broker.process.regular_file import NotRegularFile, check_regular
from lockstep.broker.security.distinguished_name import distinguished_name
from lockstep.broker.settings.security_settings import ListenerSecurity
from lockstep.protocol.key_stores import (
    UnreadableStore,
    UnusableStore,
    WrongPassword,
    certificates_in,
    is_pem,
    load_pkcs12,
    pem_blocks,
    read_store,
)

KEY_STORE: Final = "ssl.keystore"
TRUST_STORE: Final = "ssl.truststore"
PrivateKey = (
    rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
)
"""The kinds of keys that certificates of TLS have."""


@dataclass(frozen=True)
class KeyStore:
    """A private key and the certificates that belong to it."""

    key_pem: bytes = field(repr=False)
    """Not encrypted."""
    chain: tuple[x509.Certificate, ...]
    """The broker's own certificate first."""

    @property
    def expires(self) -> datetime.datetime:
        """The end of the certificate that ends first."""
        return min(each.not_valid_after_utc for each in self.chain)

    @property
    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in self.chain)


def read_key_store(security: ListenerSecurity, now: datetime.datetime) -> KeyStore:
    """The key store of a listener. Raises ConfigError."""
    location, key_text = security.get("ssl.keystore.location"), security.get("ssl.keystore.key")
    chain_text = security.get("ssl.keystore.certificate.chain")
    if key_text is None and location is None:
        problem = f"missing: the listener {security.listener_name} needs a key and a certificate"
        raise security.error("ssl.keystore.location", problem)
    if key_text is not None:
        if location is not None:
            raise security.error("ssl.keystore.location", "beside ssl.keystore.key: set one of them")
        if chain_text is None:
            raise security.error("ssl.keystore.certificate.chain", "missing: the certificate of the key")
        where = "ssl.keystore.key"
        key, chain = _pem_key(security, where, key_text), _pem_certificates(security, where, chain_text)
    else:
        where = "ssl.keystore.location"
        key, chain = _key_in_file(security, _read(security, KEY_STORE))
    if not chain:
        raise security.error(where, "no certificate is in it")
    chain = _in_order(key, chain)
    _check(security, where, key, chain, now)
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyStore(key_pem, tuple(chain))


def read_trust_store(security: ListenerSecurity) -> tuple[x509.Certificate, ...] | None:
    """The certificates of those whom a listener trusts; None where none are set. Raises ConfigError."""
    text = security.get("ssl.truststore.certificates")
    where = "ssl.truststore.location"
    if text is not None:
        if security.get(where) is not None:
            raise security.error(where, "beside ssl.truststore.certificates: set one of them")
        where = "ssl.truststore.certificates"
        trusted = _pem_certificates(security, where, text)
    elif security.get(where) is None:
        return None
    else:
        data = _read(security, TRUST_STORE)
        if is_pem(data):
            _check_pem_type(security, TRUST_STORE)
            trusted = _pem_certificates(security, where, data.decode("utf-8", "replace"))
        else:
            trusted = certificates_in(_pkcs12(security, TRUST_STORE, data))
    if not trusted:
        raise security.error(where, "no certificate is in it")
    return tuple(trusted)


def store_files(security: ListenerSecurity) -> list[Path]:
    """The files that a listener's keys and certificates are read from."""
    locations = [security.get(f"{store}.location") for store in (KEY_STORE, TRUST_STORE)]
    return [Path(each) for each in locations if each is not None]


def _read(security: ListenerSecurity, store: str) -> bytes:
    name = f"{store}.location"
    location: str = security.get(name)
    try:
        check_regular(location)
        return read_store(location)
    except NotRegularFile as error:
        raise security.error(name, f"is {error.strerror}") from None
    except UnreadableStore as error:
        raise security.temporary_error(name, str(error)) from None
    except UnusableStore as error:
        raise security.error(name, str(error)) from None
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise security.temporary_error(name, problem) from None


def _key_in_file(security: ListenerSecurity, data: bytes) -> tuple[PrivateKey, list[x509.Certificate]]:
    where = "ssl.keystore.location"
    if is_pem(data):
        _check_pem_type(security, KEY_STORE)
        text = data.decode("utf-8", "replace")
        return _pem_key(security, where, text), _pem_certificates(security, where, text)
    found = _pkcs12(security, KEY_STORE, data)
    if found.key is None or found.cert is None:
        raise security.error(where, "no private key with a certificate is in it")
    return _of_tls(security, where, found.key), certificates_in(found)


def _check_pem_type(security: ListenerSecurity, store: str) -> None:
    """Raises ConfigError for PEM without its type: Kafka would read it as one of Java's forms and fail."""
    if security.get(f"{store}.type") != "PEM":
        raise security.error(f"{store}.location", f"a PEM file: set {store}.type=PEM")
    if security.get(f"{store}.password") is not None:
        hint = "; the password of its key is ssl.key.password" if store == KEY_STORE else ""
        raise security.error(f"{store}.password", f"a PEM file has none{hint}")


def _pkcs12(security: ListenerSecurity, store: str, data: bytes) -> pkcs12.PKCS12KeyAndCertificates:
    where = f"{store}.location"
    if security.get(f"{store}.type") == "PEM":
        raise security.error(where, f"no PEM file, though {store}.type is PEM")
    try:
        return load_pkcs12(data, security.get(f"{store}.password"))
    except WrongPassword as error:
        raise security.error(f"{store}.password", f"{error}: {security.get(where)} needs it") from None
    except UnusableStore as error:
        raise security.error(where, str(error)) from None


def _of_tls(security: ListenerSecurity, where: str, key: object) -> PrivateKey:
    if not isinstance(key, PrivateKey):
        raise security.error(where, "its private key is of a kind that no certificate of TLS has")
    return key


def _pem_key(security: ListenerSecurity, where: str, text: str) -> PrivateKey:
    keys = [pem for label, pem in pem_blocks(text) if label.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise security.error(where, f"{len(keys) or 'no'} private keys are in it, one is needed")
    password = security.get("ssl.key.password") if "ENCRYPTED" in keys[0] else None
    if "ENCRYPTED" in keys[0] and password is None:
        raise security.error("ssl.key.password", "missing: the private key is encrypted")
    try:
        key = serialization.load_pem_private_key(keys[0].encode(), password and password.encode())
    except ValueError:
        if password is not None:
            raise security.error("ssl.key.password", "wrong: it does not open the private key") from None
        raise security.error(where, "its private key is damaged") from None
    return _of_tls(security, where, key)


def _pem_certificates(security: ListenerSecurity, where: str, text: str) -> list[x509.Certificate]:
    try:
        return [
            x509.load_pem_x509_certificate(pem.encode())
            for label, pem in pem_blocks(text)
            if label == "CERTIFICATE"
        ]
    except ValueError:
        raise security.error(where, "a certificate in it is damaged") from None


def _in_order(key: PrivateKey, chain: list[x509.Certificate]) -> list[x509.Certificate]:
    """The key's certificate first, then each one's issuer; others are left out. If none is the key's, all."""
    left = list(chain)
    own = next((each for each in left if each.public_key() == key.public_key()), None)
    if own is None:
        return left
    ordered = [own]
    left.remove(own)
    while issuer := next((each for each in left if each.subject == ordered[-1].issuer), None):
        ordered.append(issuer)
        left.remove(issuer)
    return ordered


def _check(
    security: ListenerSecurity,
    where: str,
    key: PrivateKey,
    chain: list[x509.Certificate],
    now: datetime.datetime,
) -> None:
    if chain[0].public_key() != key.public_key():
        raise security.error(where, "the private key is not the one of the certificate")
    for each in chain:
        subject = distinguished_name(each.subject.public_bytes())
        if each.not_valid_after_utc < now:
            ended = each.not_valid_after_utc.isoformat(" ", "minutes")
            raise security.temporary_error(where, f"the certificate of {subject} expired at {ended}")
        if each.not_valid_before_utc > now:
            begins = each.not_valid_before_utc.isoformat(" ", "minutes")
            problem = f"the certificate of {subject} is not valid before {begins}"
            raise security.temporary_error(where, problem)
