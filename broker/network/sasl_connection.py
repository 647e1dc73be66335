"""One client's connection to a SASL listener: its login comes before its requests, on the same frames.

Owns: how a frame reaches the session of the login (`broker/security/sasl_session.py`) and how its response
leaves, in order with the responses of requests; the delay of a failed login, in which nothing of this
connection is read or served. Invariants: a frame before the login is at most
`sasl.server.max.receive.size`; what is served after it is served as on any other connection.
"""

from __future__ import annotations

from struct import Struct as Binary
from typing import Final, Protocol

from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.response_encoder import EncodedReply, encode_reply
from lockstep.broker.process.log_text import printable
from lockstep.broker.process.wall_clock import wall_clock_ms
from lockstep.broker.requests.kafka_principal import USER_TYPE, KafkaPrincipal
from lockstep.broker.security.sasl_session import ConnectionAction, SaslResponse, SaslSession
from lockstep.protocol.api import ApiKey, RequestHeader, messages_for, read_request_header
from lockstep.protocol.compiler import decode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.api_versions import ApiVersionsResponse
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from lockstep.protocol.primitives import MalformedMessage

MAX_LOG_CHARACTERS: Final = 300
_LENGTH: Final = Binary(">i")
_LOGIN: Final = tuple(key.to_bytes(2, "big") for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))


class Sasl(Protocol):
    """The logins of a listener, as `broker/security/sasl_listener.py` has them."""

    max_receive_bytes: int
    failure_delay_seconds: float

    def new_session(self) -> SaslSession:
        """The logins of a new connection."""


class SaslConnection(Connection):
    """One client that logs in."""

    __slots__ = ("_is_ending", "_sasl", "_session")

    def __init__(self, shared: Connections, listener: str, sasl: Sasl) -> None:
        super().__init__(shared, listener)
        self._sasl = sasl
        self._session = sasl.new_session()
        self._is_ending = False
        """True in the delay of a failed login."""
        self._reader.max_frame_bytes = min(sasl.max_receive_bytes, shared.max_frame_bytes)

    def _dispatch(self, frame: memoryview) -> None:
        session = self._session
        if session.is_open and frame[:2] not in _LOGIN and not session.has_expired(self._now_ms()):
            super()._dispatch(frame)
            return
        try:
            self._log_in(frame)
        except MalformedMessage as error:
            self._reject(str(error))
        except Exception as error:
            self._reject("a login failed, the broker closes its connection", error)

    def _must_wait(self, frame: memoryview) -> bool:
        return self._is_ending or super()._must_wait(frame)

    def resume(self) -> None:
        if not self._is_ending:
            super().resume()

    # --- the login ----------------------------------------------------------------------------------------

    def _log_in(self, frame: memoryview) -> None:
        session = self._session
        if session.takes_raw_tokens:
            outcome = session.on_authenticate(bytes(frame), self._now_ms(), wall_clock_ms())
            self._apply(outcome, [_LENGTH.pack(len(outcome.token)), outcome.token])
            return
        header, pos = read_request_header(frame)
        if not self._is_served(header):
            self._apply(session.on_unknown(_name(header.api_key)), [])
        elif header.api_key == ApiKey.SASL_HANDSHAKE:
            self._do_handshake(header, frame, pos)
        elif header.api_key == ApiKey.SASL_AUTHENTICATE:
            request = decode(SaslAuthenticateRequest, header.api_version, frame, pos, trailing=True)
            outcome = session.on_authenticate(bytes(request.auth_bytes), self._now_ms(), wall_clock_ms())
            response = SaslAuthenticateResponse(
                error_code=outcome.error,
                error_message=outcome.text,
                auth_bytes=outcome.token,
                session_lifetime_ms=outcome.lifetime_ms,
            )
            self._apply(outcome, self._encode(header, response))
        else:
            self._serve_other(header, frame, pos)

    def _is_served(self, header: RequestHeader) -> bool:
        """True if the API and its version are served; ApiVersions has its own check of versions."""
        if header.api_key == ApiKey.API_VERSIONS:
            return True
        try:
            route = self._shared.router.route_of(header.api_key)
        except KeyError:
            return False
        return route.first <= header.api_version <= route.last

    def _do_handshake(self, header: RequestHeader, frame: memoryview, pos: int) -> None:
        session = self._session
        handshake = decode(SaslHandshakeRequest, header.api_version, frame, pos, trailing=True)
        outcome = session.on_handshake(header.api_version, handshake.mechanism, self._now_ms())
        mechanisms = session.mechanism_names if outcome.lists_mechanisms else []
        response = SaslHandshakeResponse(error_code=outcome.error, mechanisms=mechanisms)
        self._apply(outcome, self._encode(header, response))

    def _serve_other(self, header: RequestHeader, frame: memoryview, pos: int) -> None:
        """ApiVersions before the login, or a request that is not allowed now."""
        session = self._session
        name = _name(header.api_key)
        if session.is_open:
            outcome = session.on_expired_login(name)
        elif header.api_key != ApiKey.API_VERSIONS:
            outcome = session.on_other(name)
        else:
            outcome = session.on_api_versions()
        if outcome.action is not ConnectionAction.KEEP_OPEN:
            self._apply(outcome, self._encode_error(outcome, header))
            return
        response = self._shared.router.route(self.context, header, frame, pos)
        assert isinstance(response, ApiVersionsResponse)
        if not response.error_code:
            session.on_api_versions_served()
        self._apply(outcome, self._encode(header, response))

    def _encode(self, header: RequestHeader, response: Struct) -> list[bytes]:
        return [bytes(each) for each in encode_reply(header, response)[0]]

    def _encode_error(self, outcome: SaslResponse, header: RequestHeader) -> list[bytes]:
        """An empty response of the request's API, with the error where it has a place for it."""
        if outcome.is_silent:
            return []
        response = messages_for(header.api_key)[1]()
        if hasattr(response, "error_code"):
            response.error_code = outcome.error
        return self._encode(header, response)

    # --- the response --------------------------------------------------------------------------------------

    def _apply(self, outcome: SaslResponse, encoded: list[bytes]) -> None:
        """Apply a response of the session: principal, log line, close or send."""
        session, shared = self._session, self._shared
        if session.is_open and session.name is not None:
            self.context.principal = KafkaPrincipal(USER_TYPE, session.name, session.is_token)
            self._reader.max_frame_bytes = shared.max_frame_bytes
        if outcome.log:
            shared.failed_authentications += not session.is_open
            line = f"listener {self.context.listener}: {printable(outcome.log, MAX_LOG_CHARACTERS)}"
            shared.log_client_error(self.context.peer, line, key=line)
        output = b"" if outcome.is_silent else b"".join(encoded)
        if outcome.action is ConnectionAction.CLOSE:
            self.close()
        elif outcome.action is ConnectionAction.CLOSE_AFTER_DELAY:
            self._is_ending = True
            self._pause_reading()
            shared.loop.call_later(self._sasl.failure_delay_seconds, self._end, output)
        else:
            self._send(output)

    def _send(self, output: bytes) -> None:
        """Send it behind the responses of earlier requests."""
        if self._replies is None:
            self._queue_output([output], len(output))
            return
        reply = EncodedReply(self, RequestHeader(0, 0, 0, None), 0, False)
        reply.buffers, reply.reply_bytes = [output], len(output)
        self._pending_reply_bytes += len(output)
        self._enqueue(reply)

    def _end(self, output: bytes) -> None:
        """The delay of a failed login has passed."""
        if self._closing:
            return
        if output and self._replies is None:
            self._queue_output([output], len(output))
            self.write_out()
        self.close()

    def _now_ms(self) -> int:
        return int(self._shared.clock() * 1000)


def _name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API {api_key}"
