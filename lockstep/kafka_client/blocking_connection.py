"""One connection to a broker, blocking: it sends requests and keeps responses until they are taken.

Owns: the socket, TLS, and when the client logs in; the protocol and the pending requests are
`lockstep.protocol.client_protocol`'s. Requests
may be sent before the responses of earlier ones have come (`start`), so that a task decodes one Fetch while
the broker reads the next.

Invariants: a request that timed out leaves the connection closed, because its outcome is unknown; a closed
connection fails all pending responses. A request that comes near the end of a session (KIP-368) is preceded
by another login.

Does not: know topics or leaders, reconnect, know mechanisms (`sasl`). One thread at a time may use it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

from lockstep.kafka_client.connection_errors import (
    IMPOSSIBLE_ADDRESS,
    connect_failure,
    lost_connection,
    tls_failure,
)
from lockstep.kafka_client.connection_setup import Steps, log_in, set_up
from lockstep.kafka_client.security import WITHOUT_SECURITY, ClientSecurity
from lockstep.protocol.client_errors import ClientError, ConnectionFailed, TimedOut, describe_socket_error
from lockstep.protocol.client_protocol import Peer
from lockstep.protocol.fields import Struct
from lockstep.protocol.primitives import Buffer

T = TypeVar("T", bound=Struct)

CLIENT_SOFTWARE: Final = "lockstep-spark"
MAX_IN_FLIGHT: Final = 64
"""Requests without their responses: more than any task here has, and the responses fit into memory."""

_MAX_COPIED_BYTES: Final = 64 * 1024
"""Up to here one copy and one system call are cheaper than several system calls."""


class ResponseFuture(Generic[T]):
    """A request that was sent; `result` is its response."""

    __slots__ = ("_connection", "_response_type", "frame", "version")

    def __init__(self, connection: BlockingConnection, response_type: type[T], version: int) -> None:
        self._connection: BlockingConnection | None = connection
        self._response_type = response_type
        self.version = version
        self.frame: memoryview | None = None
        """The response, once the connection has received it."""

    def result(self, timeout_s: float | None = None) -> T:
        """Waits for the response; the caller may keep its record data. Raises as
        `BlockingConnection.call`."""
        connection, self._connection = self._connection, None
        if connection is None:
            raise ClientError("the response was read already")
        return connection._decode(self._response_type, self.version, connection._frame_of(self, timeout_s))


class BlockingConnection(Peer[ResponseFuture[Any]]):
    """A connection that is ready for requests, made by `open` or by a `ClusterClient`."""

    def __init__(
        self, host: str, port: int, client_id: str, timeout_s: float, security: ClientSecurity
    ) -> None:
        super().__init__(host, port, client_id, CLIENT_SOFTWARE)
        self.timeout_s = timeout_s
        self._security = security
        self._renewed_at = float("inf")
        """The monotonic time from which a request is preceded by another login."""
        self._socket: socket.socket | None = None

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "lockstep-spark",
        timeout_s: float = 30.0,
        security: ClientSecurity = WITHOUT_SECURITY,
    ) -> BlockingConnection:
        """Connects, negotiates versions and logs in. Raises ConnectionFailed, TimedOut, AuthenticationError
        or ClientError."""
        connection = cls(host, port, client_id, timeout_s, security)
        try:
            connection._socket = socket.create_connection((host, port), timeout_s)
            connection._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError:
            raise TimedOut(f"{connection} did not accept a connection in {timeout_s:g} s") from None
        except (OSError, *IMPOSSIBLE_ADDRESS) as error:
            raise connect_failure(str(connection), error) from None
        try:
            connection._encrypt()
            connection._run(set_up(connection._protocol, security, str(connection)))
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._socket is not None and self._protocol.failure is None

    def call(
        self, request: Struct, response: type[T], *, timeout_s: float | None = None, newest: int | None = None
    ) -> T:
        """Sends a request and returns its response; the caller may keep its record data.

        `timeout_s`: seconds until the response. The caller adds a wait that the request allows the broker.
        Raises Unsupported, ConnectionFailed, TimedOut, ClientError.
        """
        return self.start(request, response, newest=newest).result(timeout_s)

    def start(self, request: Struct, response: type[T], *, newest: int | None = None) -> ResponseFuture[T]:
        """Sends a request without waiting for its response. Raises as `call`."""
        if time.monotonic() >= self._renewed_at:
            self._renewed_at = float("inf")
            try:
                self._run(log_in(self._protocol, self._security, str(self)))
            except ClientError as error:
                self._fail(error)
                raise
        return self._start(request, response, newest)

    def close(self) -> None:
        self._fail(ConnectionFailed(f"the connection to {self} is closed"))

    def _start(self, request: Struct, response: type[T], newest: int | None = None) -> ResponseFuture[T]:
        future = ResponseFuture(self, response, self.version_of(type(request), newest))
        self._write(request, future)
        return future

    def _encrypt(self) -> None:
        if self._security.context is None:
            return
        plain = self._open_socket()
        try:
            self._socket = self._security.context.wrap_socket(plain, server_hostname=self.host)
        except TimeoutError:
            raise TimedOut(f"{self} did not respond in {self.timeout_s:g} s") from None
        except OSError as error:
            raise tls_failure(str(self), error) from None
        except ValueError as error:  # a name that cannot be in a certificate
            raise connect_failure(str(self), error) from None

    def _run(self, steps: Steps) -> None:
        """Sends requests of the connection itself. Raises as they do, and as `call`."""
        try:
            request, version = next(steps)
            while True:
                future = ResponseFuture(self, Struct, version)
                self._write(request, future)
                request, version = steps.send(self._frame_of(future, None))
        except StopIteration as done:
            self._renewed_at = time.monotonic() + done.value

    def _write(self, request: Struct, future: ResponseFuture[Any]) -> None:
        wire = self._open_socket()
        if len(self._protocol.pending) >= MAX_IN_FLIGHT:
            raise ClientError(f"{MAX_IN_FLIGHT} requests to {self} wait for their responses already")
        self._send(wire, self._protocol.encode_request(request, future.version, future))

    def _send(self, wire: socket.socket, parts: list[Buffer]) -> None:
        with self._closed_on_failure(f"took nothing for {self.timeout_s:g} s"):
            wire.settimeout(self.timeout_s)
            for part in [b"".join(parts)] if sum(map(len, parts)) <= _MAX_COPIED_BYTES else parts:
                wire.sendall(part)

    def _frame_of(self, future: ResponseFuture[Any], timeout_s: float | None) -> memoryview:
        allowed_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + allowed_s
        while future.frame is None:
            wire = self._open_socket()
            with self._closed_on_failure(f"did not respond in {allowed_s:g} s"):
                wire.settimeout(max(deadline - time.monotonic(), 0.001))
                count = wire.recv_into(self._protocol.get_buffer())
                if not count:
                    raise self._lost(f"{self} closed the connection")
                for received, frame in self._protocol.receive(count):
                    received.frame = frame
        return future.frame

    @contextlib.contextmanager
    def _closed_on_failure(self, when_late: str) -> Iterator[None]:
        """Turns errors of the socket into ours, and closes the connection after any."""
        try:
            try:
                yield
            except TimeoutError:
                raise TimedOut(f"{self} {when_late}") from None
            except ssl.SSLError as error:
                raise tls_failure(str(self), error) from None
            except OSError as error:
                raise self._lost(f"the connection to {self} broke: {describe_socket_error(error)}") from None
        except ClientError as error:
            self._fail(error)
            raise

    def _lost(self, reason: str) -> ConnectionFailed:
        return lost_connection(str(self), self._protocol, self._security, reason)

    def _open_socket(self) -> socket.socket:
        if self._protocol.failure is not None:
            raise self._protocol.failure
        if self._socket is None:
            raise ConnectionFailed(f"no connection to {self}")
        return self._socket

    def _decode(self, response: type[T], version: int, frame: memoryview) -> T:
        try:
            return self._protocol.decode_response(response, version, frame)
        except ClientError:
            self.close()
            raise

    def _fail(self, error: ClientError) -> None:
        """Close; the first reason counts."""
        self._protocol.fail(error)
        if self._socket is not None:
            self._socket.close()
