"""The life of a connection of a SASL listener: what a client may send, before and after its login.

Pure: requests come decoded, and time is an argument. Owns: the states of a connection and their transitions
(the table below), the lifetime of a login, and re-authentication (KIP-368). Invariants: nothing but
ApiVersions and the login is served before it; a failed login ends its connection, after a delay that the
caller waits; the principal never changes. Does not: cut frames, decode, wait or close
(`broker/network/sasl_connection.py`), or know a mechanism (`scram.py`, `plain.py`).

| state | input | response, then |
|---|---|---|
| START | ApiVersions | its own; a second good one: close |
| START | SaslHandshake, known mechanism | NONE and the mechanisms: AUTHENTICATING |
| START | SaslHandshake, unknown mechanism | delay, UNSUPPORTED_SASL_MECHANISM and the mechanisms, close |
| START | another API | close |
| AUTHENTICATING | a token, as the handshake's version has it | the mechanism's; OPEN at its end |
| AUTHENTICATING | a token that fails | delay, SASL_AUTHENTICATION_FAILED (not after version 0), close |
| AUTHENTICATING | another API | delay, ILLEGAL_SASL_STATE in its own form, close |
| OPEN | SaslHandshake, if the login has a lifetime, once a second | as in START; unknown mechanism: close |
| OPEN | SaslHandshake, SaslAuthenticate | ILLEGAL_SASL_STATE |
| OPEN, login expired | anything but SaslHandshake | close |

Source: Kafka's SaslServerAuthenticator; the differences to a second login are its ReauthInfo's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed, Exchange
from lockstep.protocol.errors import ErrorCode

MIN_REAUTHENTICATION_MS: Final = 1_000
"""A connection logs in again at most once in this time, as in Kafka."""
UNFRAMED_SASL_VERSION: Final = 0
"""The version of SaslHandshake after which tokens come without a request around them."""


class LoginState(Enum):
    """The states of a connection."""

    START = "start"
    AUTHENTICATING = "authenticating"
    OPEN = "open"
    CLOSED = "closed"


class ConnectionAction(Enum):
    """The action on the connection after a response."""

    KEEP_OPEN = "keep open"
    CLOSE = "close"
    CLOSE_AFTER_DELAY = "close after delay"


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of a listener. `max_reauth_ms`: the longest life of a login; 0 or less: no end."""

    begin: Callable[[], Exchange]
    max_reauth_ms: int = 0


@dataclass(frozen=True)
class SaslResponse:
    """The response to an input: error and text, or a token; and what becomes of the connection."""

    error: ErrorCode = ErrorCode.NONE
    text: str = ""
    token: bytes = b""
    lifetime_ms: int = 0
    action: ConnectionAction = ConnectionAction.KEEP_OPEN
    lists_mechanisms: bool = False
    """True if the enabled mechanisms are part of it."""
    log: str = ""
    """A line for the log; empty for none."""
    is_silent: bool = False
    """True if the client gets no bytes."""


class SaslSession:
    """One connection's logins. Args: mechanisms: those of the listener, by name."""

    def __init__(self, mechanisms: Mapping[str, Mechanism]) -> None:
        self._mechanisms = mechanisms
        self.state = LoginState.START
        self.name: str | None = None
        """The name of the principal, after the first login."""
        self.is_token = False
        """True if the last login was by a delegation token."""
        self.takes_raw_tokens = False
        """True if the next frame is a token without a request around it."""
        self._had_versions = False
        self._mechanism = ""
        """The mechanism of the login under way, or of the last one."""
        self._former_mechanism = ""
        self._exchange: Exchange | None = None
        self._expires_ms: int | None = None
        self._again_ms: int | None = None
        """The begin of the last login but the first."""

    @property
    def mechanism_names(self) -> list[str]:
        """The enabled mechanisms."""
        return list(self._mechanisms)

    @property
    def is_open(self) -> bool:
        """True if requests are served."""
        return self.state is LoginState.OPEN

    def has_expired(self, now_ms: int) -> bool:
        """True if the login's lifetime has passed: only a new handshake is served."""
        return self._expires_ms is not None and now_ms > self._expires_ms

    def on_api_versions(self) -> SaslResponse:
        """ApiVersions before the login; the response is its own unless it ends the connection."""
        if self.state is LoginState.AUTHENTICATING:
            return self._out_of_order()
        if self._had_versions:
            return self._close("a second ApiVersions request before the login")
        return SaslResponse()

    def on_api_versions_served(self) -> None:
        """Its response had no error: another one is not served before the login."""
        self._had_versions = True

    def on_other(self, name: str) -> SaslResponse:
        """Another API before the login is complete."""
        if self.state is LoginState.AUTHENTICATING:
            return self._out_of_order()
        return self._close(f"{name} before a login: the client needs a security.protocol with SASL")

    def on_unknown(self, name: str) -> SaslResponse:
        """An API or a version that is not served, whose response has no form."""
        return self._close(f"{name} before a login, in a version that is not served")

    def on_expired_login(self, name: str) -> SaslResponse:
        """A request after the login's lifetime."""
        return self._close(f"{name} after the end of its login: the client has not logged in again")

    def on_handshake(self, version: int, mechanism: str, now_ms: int) -> SaslResponse:
        """SaslHandshake."""
        if self.state is LoginState.AUTHENTICATING:
            return self._out_of_order()
        is_again = self.state is LoginState.OPEN
        if is_again and not self._may_log_in_again(now_ms):
            return SaslResponse(ErrorCode.ILLEGAL_SASL_STATE)
        if mechanism not in self._mechanisms:
            log = f"the client requests the SASL mechanism {mechanism}, enabled are {self._list()}"
            if is_again:
                return self._close(log)
            self.state = LoginState.CLOSED
            return SaslResponse(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                action=ConnectionAction.CLOSE_AFTER_DELAY,
                lists_mechanisms=True,
                log=log,
            )
        self._former_mechanism = self._mechanism if is_again else ""
        self._mechanism = mechanism
        self._exchange = self._mechanisms[mechanism].begin()
        self.takes_raw_tokens = version == UNFRAMED_SASL_VERSION
        self.state = LoginState.AUTHENTICATING
        return SaslResponse(lists_mechanisms=True)

    def on_authenticate(self, token: bytes, now_ms: int, now_epoch_ms: int) -> SaslResponse:
        """SaslAuthenticate, or a token without a request around it."""
        if self.state is LoginState.OPEN:
            text = "SaslAuthenticate request received after successful authentication"
            return SaslResponse(ErrorCode.ILLEGAL_SASL_STATE, text)
        if self.state is not LoginState.AUTHENTICATING or self._exchange is None:
            return self._close("SaslAuthenticate before SaslHandshake")
        if self._former_mechanism not in ("", self._mechanism):
            self.state = LoginState.CLOSED
            log = f"a login again by {self._mechanism} instead of {self._former_mechanism}"
            return SaslResponse(action=ConnectionAction.CLOSE_AFTER_DELAY, log=log, is_silent=True)
        try:
            outcome = self._exchange.respond(token)
        except AuthenticationFailed as failure:
            return self._fail(str(failure), failure.client_text)
        if isinstance(outcome, bytes):
            return SaslResponse(token=outcome)
        return self._complete(outcome, now_ms, now_epoch_ms)

    def _may_log_in_again(self, now_ms: int) -> bool:
        last, self._again_ms = self._again_ms, now_ms
        if self._expires_ms is not None and (last is None or now_ms - last >= MIN_REAUTHENTICATION_MS):
            return True
        self._again_ms = last
        return False

    def _complete(self, outcome: Authenticated, now_ms: int, now_epoch_ms: int) -> SaslResponse:
        if self.name not in (None, outcome.name):
            names = f"from User.{self.name}: User.{outcome.name}"
            text = f"Cannot change principals during re-authentication {names}"
            return self._fail(f"a login again as {outcome.name} instead of {self.name}", text)
        longest_ms = self._mechanisms[self._mechanism].max_reauth_ms
        limits = [longest_ms if longest_ms > 0 else None]
        if outcome.expires_ms is not None:
            limits.append(outcome.expires_ms - now_epoch_ms)
        lifetimes = [each for each in limits if each is not None]
        if lifetimes and min(lifetimes) <= 0:
            return self._fail(f"the credential of user {outcome.name} has expired", None)
        self.name, self.is_token = outcome.name, outcome.is_token
        self._exchange = None
        self.takes_raw_tokens = False
        self._expires_ms = now_ms + min(lifetimes) if lifetimes else None
        self.state = LoginState.OPEN
        return SaslResponse(token=outcome.token, lifetime_ms=min(lifetimes, default=0))

    def _fail(self, reason: str, text: str | None) -> SaslResponse:
        """A failed login; without a text of its own the client gets the one of all failures."""
        again = "re-authentication" if self.name is not None else "authentication"
        if text is None:
            text = (
                f"Authentication failed during {again} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
        self.state = LoginState.CLOSED
        log = f"{again} by {self._mechanism} failed: {reason}"
        return SaslResponse(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            text,
            action=ConnectionAction.CLOSE_AFTER_DELAY,
            log=log,
            is_silent=self.takes_raw_tokens,
        )

    def _out_of_order(self) -> SaslResponse:
        self.state = LoginState.CLOSED
        log = "another request in the middle of a login"
        return SaslResponse(ErrorCode.ILLEGAL_SASL_STATE, action=ConnectionAction.CLOSE_AFTER_DELAY, log=log)

    def _close(self, log: str) -> SaslResponse:
        self.state = LoginState.CLOSED
        return SaslResponse(action=ConnectionAction.CLOSE, log=log, is_silent=True)

    def _list(self) -> str:
        return ", ".join(self._mechanisms)
