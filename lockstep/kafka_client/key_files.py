"""The certificates that a client trusts, and its own, from the properties `ssl.truststore...` and
`ssl.keystore...`, into a TLS context.

Invariants: each failure is a ValueError whose text begins with the property and shows no secret; a
private key is copied to memory only, or where the system has no such files to one that this user alone can
read, for a moment.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from typing import Final

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

_PKCS12: Final = "PKCS12"
_PEM: Final = "PEM"


class InvalidKeyFile(ValueError):
    """A property, and why it cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")


class UnreadableKeyFile(InvalidKeyFile):
    """The same for a file that is not there, or cannot be read now."""


def load_trusted(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """The CAs that may have issued the broker's certificate, or that certificate itself; the system's
    where none are named."""
    certificates, location = "ssl.truststore.certificates", "ssl.truststore.location"
    if given.get(certificates) and given.get(location):
        raise InvalidKeyFile(location, f"beside {certificates}; set one of them")
    if given.get(certificates):
        name, data = certificates, given[certificates].encode()
    elif given.get(location):
        name, data = location, _read(given, location)
        if not _is_pem(given, "ssl.truststore", data):
            data = _unpack(given, "ssl.truststore", data)[1]
    else:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=_in_lines(data))
    except (ssl.SSLError, ValueError):
        raise InvalidKeyFile(name, "no certificate can be read from it") from None
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Java: what is trusted may be no root


def load_own(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """The client's own certificate, for brokers that require one."""
    key, chain, location = "ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.keystore.location"
    password = given.get("ssl.key.password")
    if given.get(key):
        name = key
        if given.get(location):
            raise InvalidKeyFile(location, f"beside {key}; set one of them")
        if not given.get(chain):
            raise InvalidKeyFile(chain, "is missing; it is the certificate of ssl.keystore.key")
        data = f"{given[key]}\n{given[chain]}\n".encode()
    elif given.get(location):
        name, data = location, _read(given, location)
        if not _is_pem(given, "ssl.keystore", data):
            data, password = b"".join(_unpack(given, "ssl.keystore", data)), None
    else:
        return
    is_encrypted = b"ENCRYPTED" in data
    if is_encrypted and not password:
        raise InvalidKeyFile("ssl.key.password", "is missing; the private key is encrypted")
    with _private_file(_in_lines(data).encode()) as path:
        try:
            context.load_cert_chain(path, password=lambda: password or "")
        except (ssl.SSLError, ValueError):
            hint = "; ssl.key.password may be wrong" if is_encrypted else ""
            raise InvalidKeyFile(name, f"no private key with its certificate can be read{hint}") from None


def _in_lines(data: bytes) -> str:
    """PEM as OpenSSL reads it: in a file of properties it may be one line, which Kafka reads."""
    return "".join(pem for _, pem in pem_blocks(data.decode("utf-8", "replace")))


@contextlib.contextmanager
def _private_file(data: bytes) -> Iterator[str]:
    """Python's `ssl` reads private keys from files alone: one in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("lockstep-key"), "wb") as stream:
            stream.write(data)
            stream.flush()
            yield f"/proc/self/fd/{stream.fileno()}"
        return
    handle, path = tempfile.mkstemp(prefix="lockstep-key-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _read(given: Mapping[str, str], name: str) -> bytes:
    try:
        return read_store(given[name])
    except UnreadableStore as error:
        raise UnreadableKeyFile(name, f"{given[name]} {error}") from None
    except UnusableStore as error:
        raise InvalidKeyFile(name, f"{given[name]} {error}") from None


def _is_pem(given: Mapping[str, str], store: str, data: bytes) -> bool:
    """True for a store that is PEM by its bytes, which the type must not contradict."""
    location = f"{store}.location"
    kind = (given.get(f"{store}.type") or "").upper()
    has_pem = is_pem(data)
    if kind not in ("", "JKS", _PEM, _PKCS12):
        raise InvalidKeyFile(f"{store}.type", f"{kind[:40]!r} is neither {_PEM} nor {_PKCS12}")
    if kind in (_PEM, _PKCS12) and has_pem != (kind == _PEM):
        raise InvalidKeyFile(location, f"{given[location]} is not {kind}, though {store}.type is set")
    return has_pem


def _unpack(given: Mapping[str, str], store: str, data: bytes) -> tuple[bytes, bytes]:
    """Key and certificates of a PKCS12 store as PEM."""
    name = f"{store}.location"
    try:
        found = load_pkcs12(data, given.get(f"{store}.password"))
    except WrongPassword as error:
        raise InvalidKeyFile(f"{store}.password", f"{error}; the store has one") from None
    except UnusableStore as error:
        raise InvalidKeyFile(name, f"{given[name]} {error}") from None
    from cryptography.hazmat.primitives import serialization

    key = b""
    if found.key is not None:
        key = found.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    chain = [each.public_bytes(serialization.Encoding.PEM) for each in certificates_in(found)]
    return key, b"".join(chain)
