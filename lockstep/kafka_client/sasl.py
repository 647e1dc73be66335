"""A login by SASL: its requests in order, without the socket, for both kinds of connection.

Owns: `login`, a generator: it yields requests, takes their responses, and returns how long the session lasts;
and when the session is to be renewed. Invariant: no secret is in an error. Source: KIP-43, KIP-152, KIP-255
(OAUTHBEARER), KIP-368 (sessions that end).
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from typing import Final

from lockstep.kafka_client.security import OAUTHBEARER, PLAIN, ClientSecurity
from lockstep.protocol.client_errors import AuthenticationError, BrokerError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from lockstep.protocol.scram import MECHANISMS, ScramClient, ScramFailed

_RENEWED_AFTER: Final = 0.85
"""The share of a session after which a client logs in again; Kafka's clients do at 85 to 95 %."""
_MIN_RENEWED_AFTER_S: Final = 1.05
"""Brokers reject a login within a second of the last one."""

LOGIN_REQUESTS: Final = (SaslHandshakeRequest, SaslAuthenticateRequest)

Login = Generator[tuple[Struct, type[Struct]], Struct, int]
"""Request and the type of its response; the result is the lifetime of the session in ms, 0 for no end."""


def renewed_after_s(lifetime_ms: int) -> float:
    """Seconds after a login until the next one."""
    if lifetime_ms <= 0:
        return float("inf")
    return max(lifetime_ms / 1000 * _RENEWED_AFTER, _MIN_RENEWED_AFTER_S)


def login(security: ClientSecurity, peer: str) -> Login:
    """The requests of one login. Raises AuthenticationError, and InvalidProperty for a token's file."""
    mechanism = security.mechanism
    assert mechanism is not None
    response = yield SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse
    assert isinstance(response, SaslHandshakeResponse)
    if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(response.mechanisms) or "none"
        raise AuthenticationError(f"{peer} does not offer sasl.mechanism={mechanism}; it offers {offered}")
    if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        without = security.protocol.removeprefix("SASL_")
        meant = "SSL" if without == "SSL" else "PLAINTEXT"
        raise AuthenticationError(
            f"{peer} takes no logins: its listener is most likely of security.protocol={meant}, this client "
            f"has {security.protocol}"
        )
    if response.error_code:
        raise AuthenticationError(f"{peer} rejects a login: {BrokerError(response.error_code, mechanism)}")
    if mechanism == PLAIN:
        token = f"\0{security.username}\0{security.password}".encode()
        return _check_response(security, peer, (yield _request(token)))[1]
    if mechanism == OAUTHBEARER:
        return (yield from _show_token(security, peer))
    return (yield from _scram(security, peer))


def _scram(security: ClientSecurity, peer: str) -> Login:
    assert security.mechanism is not None
    scram = ScramClient(
        MECHANISMS[security.mechanism],
        security.username,
        security.password,
        secrets.token_urlsafe(24),
        "tokenauth=true" if security.token_auth else "",
    )
    try:
        first, _ = _check_response(security, peer, (yield _request(scram.first_message())))
        last, lifetime_ms = _check_response(security, peer, (yield _request(scram.final_message(first))))
        scram.verify(last)
    except ScramFailed as error:
        raise AuthenticationError(f"{peer} failed the login by {security.mechanism}: {error}") from None
    return lifetime_ms


def _show_token(security: ClientSecurity, peer: str) -> Login:
    message = f"n,,\x01auth=Bearer {security.read_token()}\x01\x01".encode()
    server_message, lifetime_ms = _check_response(security, peer, (yield _request(message)))
    if server_message:  # the reason, in JSON; the broker ends the login after a confirmation
        _check_response(security, peer, (yield _request(b"\x01")))
        raise AuthenticationError(f"{peer} rejects the token")
    return lifetime_ms


def _request(token: bytes) -> tuple[Struct, type[Struct]]:
    return SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse


def _check_response(security: ClientSecurity, peer: str, response: Struct) -> tuple[bytes, int]:
    """The broker's token, and the lifetime. Raises AuthenticationError."""
    assert isinstance(response, SaslAuthenticateResponse)
    if response.error_code:
        reason = response.error_message or str(BrokerError(response.error_code, "SaslAuthenticate"))
        remedy = (
            "see sasl.oauthbearer.token.endpoint.url"
            if security.mechanism == OAUTHBEARER
            else "see username and password in sasl.jaas.config"
        )
        raise AuthenticationError(f"{peer} rejects the login by {security.mechanism}: {reason}; {remedy}")
    return bytes(response.auth_bytes), response.session_lifetime_ms
