"""The reasons of failed TLS handshakes, in words that name the remedy.

Pure but for the exceptions of `ssl`.
"""

from __future__ import annotations

import ssl
from typing import Final

from lockstep.protocol.tls_session import failure_of

_HANDSHAKE_RECORD: Final = 22
_MAJOR_VERSION: Final = 3
_REASONS: Final = {
    "BAD_CERTIFICATE": "the client rejects the broker's certificate",
    "CERTIFICATE_EXPIRED": "the client finds the broker's certificate expired",
    "CERTIFICATE_UNKNOWN": "the client rejects the broker's certificate: it does not trust its issuer, or "
    "the name or time does not fit",
    "HANDSHAKE_FAILURE": "the client found no common version or cipher suite",
    "NO_SHARED_CIPHER": "no cipher suite is common to the client and ssl.cipher.suites",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, which ssl.client.auth requires",
    "UNKNOWN_CA": "the client does not trust the issuer of the broker's certificate",
    "UNSUPPORTED_PROTOCOL": "the client's version of TLS is none of ssl.enabled.protocols",
    "WRONG_VERSION_NUMBER": "what the client sent is not TLS",
}
"""OpenSSL's reason, without what begins the name of an alert -> what it means."""


def is_tls(first: bytes) -> bool:
    """True if a client's first bytes are those of a TLS handshake."""
    return first[0] == _HANDSHAKE_RECORD and first[1:2] in (b"", bytes([_MAJOR_VERSION]))


def describe_handshake_error(error: ssl.SSLError) -> str:
    """The reason in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is rejected: {error.verify_message}"
    failure = failure_of(error)
    text = _REASONS.get(failure.reason)
    if text is None:
        text = ("the client sent the alert " if failure.is_alert else "") + failure.words
    return f"TLS handshake failed: {text}"
