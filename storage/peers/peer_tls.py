"""TLS between nodes: what the transport needs of certificates, and the reasons of failed handshakes.

Pure but for the exceptions of `ssl`. Invariant: each reason is about "it", the other node, so that it can
have that node's name. Does not: read keys or certificates (`broker/security/peer_certificates.py`).
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final, Protocol

from lockstep.protocol.tls_session import failure_of
from lockstep.storage.peers.peer_identity import PeerIdentity, parse_identity

TLS_HANDSHAKE: Final = 22
"""The first byte of a connection with TLS. One without begins with 0, the length of a small frame."""
REQUIRED: Final = "no TLS, which this node requires (lockstep.peers.tls)"
NO_TLS: Final = "what listens there ends TLS connections: is lockstep.peers.tls=disabled there?"
_NO_TRUST: Final = "it does not trust the CA of this node's certificate"
_REASONS: Final = {
    "BAD_CERTIFICATE": "it rejects this node's certificate",
    "CERTIFICATE_EXPIRED": "it finds this node's certificate expired, or not valid yet",
    "CERTIFICATE_REQUIRED": "it requires a certificate, and this node has shown none",
    "CERTIFICATE_UNKNOWN": "it rejects this node's certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it has no certificate",
    "UNKNOWN_CA": _NO_TRUST,
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "what it sent is not TLS",
}
"""OpenSSL's reason, without what begins the name of an alert -> what it means."""
_NO_TRUSTED_CA: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes of a certificate that no trusted CA has signed."""


class PeerTls(Protocol):
    """The certificates of this node, as they are now."""

    @property
    def identity(self) -> PeerIdentity:
        """This node, as its certificate names it."""

    @property
    def accepts_plaintext(self) -> bool:
        """True if nodes without TLS are accepted."""

    @property
    def dials(self) -> bool:
        """True if this node dials others with TLS."""

    @property
    def server_context(self) -> ssl.SSLContext:
        """The context of connections that are accepted now."""

    @property
    def client_context(self) -> ssl.SSLContext:
        """The context of connections that are dialed now."""


def identity_in(certificate: Mapping[str, Any] | None) -> PeerIdentity:
    """Returns the identity in a verified certificate, as `getpeercert` gives it. Raises NoPeerIdentity."""
    names = (certificate or {}).get("subjectAltName", ())
    return parse_identity(text for kind, text in names if kind == "URI")


def describe_failure(error: ssl.SSLError) -> str:
    """Returns why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = str(error.verify_message)
        if error.verify_code in _NO_TRUSTED_CA:
            problem = f"no CA that this node trusts has signed it ({problem})"
        return f"its certificate is rejected: {problem}"
    failure = failure_of(error)
    text = _REASONS.get(failure.reason)
    if text is None:
        text = f"{'it sent the TLS alert' if failure.is_alert else 'TLS failed:'} {failure.words}"
    return text


def is_alert(error: ssl.SSLError) -> bool:
    """Returns whether the other side has ended the handshake, with a reason."""
    return failure_of(error).is_alert
