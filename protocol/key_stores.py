"""Stores of keys and certificates, PEM and PKCS12, as brokers and clients read them from a file.

Owns: the limit of such a file, its forms, and what is wrong with one. Invariant: an error shows no secret.
PKCS12 needs the package `cryptography`, which Spark's executors may not have. Does not: know properties,
decide which form is allowed, or check certificates. Source: KIP-651 for PEM.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import pkcs12

MAX_STORE_BYTES: Final = 4 << 20
"""LIMIT. No file of certificates is larger; the largest lists of CAs have some 300 KB."""
_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""The first bytes of Java's own forms, JKS and JCEKS."""
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE: Final = 64


class UnusableStore(ValueError):
    """A store that cannot be used; the text is a predicate, as "is neither PEM nor PKCS12"."""


class UnreadableStore(UnusableStore):
    """The file of a store is not there, is still empty, or cannot be read now."""


class WrongPassword(UnusableStore):
    """The password of a store does not open it; the text is about the password."""


def read_store(path: str) -> bytes:
    """The content of a file, of a form that may be readable. Raises UnusableStore, UnreadableStore."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_STORE_BYTES + 1)
    except IsADirectoryError:
        raise UnusableStore("is a directory, no regular file") from None
    except OSError as error:
        raise UnreadableStore(f"cannot be read: {(error.strerror or str(error)).lower()}") from None
    if not data:
        raise UnreadableStore("is empty")
    if len(data) > MAX_STORE_BYTES:
        raise UnusableStore(f"is larger than {MAX_STORE_BYTES} bytes, as no store of keys is")
    if data.startswith(_JKS_MAGIC):
        raise UnusableStore(
            "is in Java's own form JKS, which only Java reads; convert it: keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {Path(path).with_suffix('.p12')} -deststoretype PKCS12"
        )
    return data


def is_pem(data: bytes) -> bool:
    """True for a store that has PEM."""
    return b"-----BEGIN " in data


def pem_blocks(text: str) -> list[tuple[str, str]]:
    """Label and PEM of each block, in lines as OpenSSL reads them. A text on one line, as a file of
    properties may have it, is one, too."""
    blocks = []
    for label, body in _BLOCK.findall(text):
        if ":" not in body:  # the headers of an older form need their lines
            packed = "".join(body.split())
            lines = (packed[at : at + _LINE] for at in range(0, len(packed), _LINE))
            body = "\n" + "\n".join(lines) + "\n"
        blocks.append((label, f"-----BEGIN {label}-----{body}-----END {label}-----\n"))
    return blocks


def load_pkcs12(data: bytes, password: str | None) -> pkcs12.PKCS12KeyAndCertificates:
    """The key and the certificates of a PKCS12 store. Raises UnusableStore, WrongPassword."""
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise UnusableStore(
            "is no PEM, and PKCS12 needs the package cryptography, which is not installed; use PEM"
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        if "password" in str(error).lower() or "mac" in str(error).lower():
            raise WrongPassword("is missing" if password is None else "is wrong") from None
        raise UnusableStore("is neither PEM nor PKCS12") from None


def certificates_in(store: pkcs12.PKCS12KeyAndCertificates) -> list[x509.Certificate]:
    """All certificates of a store, that of its key first."""
    return [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
