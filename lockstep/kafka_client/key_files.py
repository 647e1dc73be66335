"""The certificates that a client trusts, and its own, from the properties `ssl.truststore...` and
`ssl.keystore...`, into a TLS context.

Owns: reading PEM, and PKCS12 where the package `cryptography` is installed; on Spark's executors it may not
be. Invariants: each failure is a ValueError whose text begins with the property and shows no secret; a
private key is copied to memory only, or where the system has no such files to one that this user alone can
read, for a moment.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from typing import Final

_MAX_FILE_BYTES: Final = 4 << 20
"""LIMIT. A larger file is none of certificates."""
_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PKCS12: Final = "PKCS12"
_PEM: Final = "PEM"
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")


class InvalidKeyFile(ValueError):
    """A property, and why it cannot be used."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")


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
        context.load_verify_locations(cadata=_in_lines(data).decode("ascii", "ignore"))
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
    with _private_file(_in_lines(data)) as path:
        try:
            context.load_cert_chain(path, password=lambda: password or "")
        except (ssl.SSLError, ValueError):
            hint = "; ssl.key.password may be wrong" if is_encrypted else ""
            raise InvalidKeyFile(name, f"no private key with its certificate can be read{hint}") from None


def _in_lines(data: bytes) -> bytes:
    """PEM as OpenSSL wants it: in a file of properties it may be one line, which Kafka reads."""

    def block(found: re.Match[bytes]) -> bytes:
        body = b"".join(found[2].split())
        lines = [body[at : at + 64] for at in range(0, len(body), 64)]
        return b"\n".join((b"", b"-----BEGIN %b-----" % found[1], *lines, b"-----END %b-----\n" % found[1]))

    return _BLOCK.sub(block, data)


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
        with open(given[name], "rb") as stream:
            data = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidKeyFile(name, f"{given[name]} cannot be read: {reason}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise InvalidKeyFile(name, f"{given[name]} is larger than {_MAX_FILE_BYTES} bytes")
    return data


def _is_pem(given: Mapping[str, str], store: str, data: bytes) -> bool:
    """True for a store that is PEM by its bytes, which the type must not contradict."""
    location = f"{store}.location"
    kind = (given.get(f"{store}.type") or "").upper()
    if data.startswith(_JKS_MAGIC):
        convert = "keytool -importkeystore -srckeystore FILE -destkeystore NEW.p12 -deststoretype PKCS12"
        raise InvalidKeyFile(location, f"{given[location]} is a JKS store, which is not read; {convert}")
    is_pem = b"-----BEGIN " in data
    if kind not in ("", "JKS", _PEM, _PKCS12):
        raise InvalidKeyFile(f"{store}.type", f"{kind[:40]!r} is neither {_PEM} nor {_PKCS12}")
    if kind in (_PEM, _PKCS12) and is_pem != (kind == _PEM):
        raise InvalidKeyFile(location, f"{given[location]} is not {kind}, as {store}.type says")
    return is_pem


def _unpack(given: Mapping[str, str], store: str, data: bytes) -> tuple[bytes, bytes]:
    """Key and certificates of a PKCS12 store as PEM."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        problem = "PKCS12 needs the package cryptography, which is not installed; use PEM"
        raise InvalidKeyFile(f"{store}.location", problem) from None
    password = given.get(f"{store}.password")
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if "password" in str(error).lower() or "mac" in str(error).lower():
            problem = "is missing" if password is None else "is wrong"
            raise InvalidKeyFile(f"{store}.password", f"{problem}; the store has one") from None
        raise InvalidKeyFile(f"{store}.location", "neither PEM nor PKCS12") from None
    chain = [each.certificate for each in (found.cert, *found.additional_certs) if each is not None]
    key = b""
    if found.key is not None:
        key = found.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return key, b"".join(each.public_bytes(serialization.Encoding.PEM) for each in chain)
