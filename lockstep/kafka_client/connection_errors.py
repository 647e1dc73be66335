"""The errors of a connection to a broker that failed or ended, as both kinds of connection raise them.

Pure but for the exceptions of `ssl`. Owns: their texts, which name the property to look at. Does not: know
where in a connection's life they are met.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from lockstep.kafka_client.security import ClientSecurity
from lockstep.protocol.client_errors import (
    AuthenticationError,
    ClientError,
    ConnectionFailed,
    ListenerMismatch,
    describe_socket_error,
)
from lockstep.protocol.client_protocol import ClientProtocol
from lockstep.protocol.tls_session import failure_of

_WRONG_NAME: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_ENDED: Final = (
    ssl.SSLEOFError,
    ssl.SSLZeroReturnError,  # by Python 3.11.2 also where the peer has sent no close_notify
    ConnectionResetError,
    ConnectionAbortedError,
    BrokenPipeError,
)
"""The errors of a peer that ends during a handshake."""
IMPOSSIBLE_ADDRESS: Final = (ValueError, OverflowError)
"""The exceptions for a name or a port that cannot be one."""


def connect_failure(peer: str, error: Exception) -> ConnectionFailed:
    """The error for an address that cannot be connected to: an OSError, or one of IMPOSSIBLE_ADDRESS."""
    if isinstance(error, OSError):
        return ConnectionFailed(f"cannot connect to {peer}: {describe_socket_error(error)}")
    return ConnectionFailed(f"cannot connect to {peer[:80]!r}: {error}")


def lost_connection(
    peer: str, protocol: ClientProtocol[Any], security: ClientSecurity, reason: str
) -> ConnectionFailed:
    """The error for a connection that has ended. Before anything is served the listener is most likely of
    another protocol; with a login only before the versions, to which each listener responds first."""
    if protocol.is_served or (security.mechanism is not None and protocol.versions):
        return ConnectionFailed(reason)
    return mismatch_failure(peer, security.protocol)


def tls_failure(peer: str, error: OSError) -> ClientError:
    """The error for a handshake that failed, or for TLS's alert after it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME:
            hint = "use a name that it has, or see ssl.endpoint.identification.algorithm"
        elif "expired" in error.verify_message or "not yet valid" in error.verify_message:
            hint = "the broker needs a new one"
        else:
            hint = "set ssl.truststore.location to the CA that issued it"
        return AuthenticationError(
            f"{peer}: the broker's certificate is not accepted: {error.verify_message.rstrip('.')}; {hint}"
        )
    if isinstance(error, _ENDED):
        return handshake_failure(peer)
    if isinstance(error, ssl.SSLError):
        failure = failure_of(error)
        reason = failure.words
        if "wrong version number" in reason:
            return ListenerMismatch(f"{peer} does not speak TLS: see security.protocol")
        if failure.is_alert:
            hint = "; see ssl.keystore.location" if "certificate" in reason or "unknown ca" in reason else ""
            return AuthenticationError(f"{peer} ended TLS: {reason}{hint}")
        return AuthenticationError(f"{peer}: TLS failed: {reason}")
    return ConnectionFailed(f"cannot connect to {peer}: {describe_socket_error(error)}")


def handshake_failure(peer: str) -> ListenerMismatch:
    """The error for a peer that closes during the handshake."""
    return ListenerMismatch(
        f"cannot connect to {peer}: it ended the TLS handshake, as a listener without TLS does: see "
        "security.protocol"
    )


def mismatch_failure(peer: str, protocol: str) -> ListenerMismatch:
    """The error for a peer that closes at the first request but for its versions."""
    return ListenerMismatch(
        f"{peer} closed the connection at the first request, as a listener of another security.protocol than "
        f"{protocol} does; its log has the reason"
    )
