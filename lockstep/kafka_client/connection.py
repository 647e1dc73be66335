"""One connection to a broker, for asyncio: requests out, responses to their callers.

Owns: the socket, and when the client logs in; the protocol and the pending requests are
`lockstep.protocol.client_protocol`'s. Requests may be sent without waiting for the responses of earlier ones.

Invariants: a request whose response did not come in time leaves the connection closed, because it is unknown
any more what the broker did with it; a closed connection fails everything that waits on it. No request comes
between those of a login: a broker closes the connection at any other. Before a session ends (KIP-368) the
next request waits for another login.

Does not: know topics or leaders (`client`), reconnect, know TLS (`tls_transport`) or mechanisms (`sasl`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar, cast

from lockstep.kafka_client.connection_errors import IMPOSSIBLE_ADDRESS, connect_failure, lost_connection
from lockstep.kafka_client.connection_setup import Steps, log_in, set_up
from lockstep.kafka_client.sasl import LOGIN_REQUESTS
from lockstep.kafka_client.security import WITHOUT_SECURITY, ClientSecurity
from lockstep.kafka_client.tls_transport import ClientTlsTransport
from lockstep.protocol.client_errors import (
    BrokerError,
    ClientError,
    ConnectionFailed,
    TimedOut,
    Unsupported,
    describe_socket_error,
)
from lockstep.protocol.client_protocol import ClientProtocol, Peer
from lockstep.protocol.fields import Struct

__all__ = [
    "BrokerConnection",
    "BrokerError",
    "ClientError",
    "ConnectionFailed",
    "TimedOut",
    "Unsupported",
    "only",
]

T = TypeVar("T", bound=Struct)
Part = TypeVar("Part")

CLIENT_SOFTWARE: Final = "lockstep"


def only(found: Iterable[Part], about: str) -> Part:
    """The one part of a response that was requested. Raises ClientError where there is not just one."""
    parts = list(found)
    if len(parts) != 1:
        raise ClientError(f"{about}: the broker responded with {len(parts)} results, 1 was requested")
    return parts[0]


def _format_seconds(timeout_s: float) -> str:
    """Two digits, as a share of a time-out has many more; and 120, not 1.2e+02."""
    return f"{timeout_s:.2g}" if timeout_s < 99.5 else f"{timeout_s:.0f}"


Response = asyncio.Future[memoryview]


class BrokerConnection(Peer[Response]):
    """A connection that is ready for requests. Make it with `BrokerConnection.open`."""

    def __init__(
        self, host: str, port: int, client_id: str, timeout_s: float, security: ClientSecurity
    ) -> None:
        super().__init__(host, port, client_id, CLIENT_SOFTWARE)
        self.timeout_s = timeout_s
        self._security = security
        self._wire: _Wire | None = None
        self._renewed_at = float("inf")
        """The time of the event loop from which a request waits for another login."""
        self._renewal: asyncio.Task[None] | None = None
        """The login that requests wait for."""
        self._queued_requests: list[tuple[Struct, int, Response | None]] = []
        """These requests, with their versions."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "lockstep",
        timeout_s: float = 30.0,
        open_timeout_s: float | None = None,
        security: ClientSecurity = WITHOUT_SECURITY,
    ) -> BrokerConnection:
        """Connect, learn what the broker speaks, and log in. Raises ConnectionFailed, TimedOut,
        AuthenticationError or ClientError.

        `open_timeout_s` is how long that may take, where it is not `timeout_s`.
        """
        connection = cls(host, port, client_id, timeout_s, security)
        within_s = timeout_s if open_timeout_s is None else open_timeout_s
        try:
            async with asyncio.timeout(within_s):
                await connection._connect()
                await connection._run(set_up(connection._protocol, security, str(connection)))
        except TimeoutError:
            problem = "did not accept a connection" if connection._wire is None else "did not respond"
            connection.close()
            raise TimedOut(f"{connection} {problem} in {_format_seconds(within_s)} s") from None
        except (OSError, *IMPOSSIBLE_ADDRESS) as error:
            connection.close()
            raise connect_failure(str(connection), error) from None
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._wire is not None and self._protocol.failure is None

    async def call(
        self,
        request: Struct,
        response_type: type[T],
        *,
        timeout_s: float | None = None,
        newest: int | None = None,
    ) -> T:
        """Send a request and return its response; record data in it are the caller's to keep.

        `timeout_s`: seconds until the response. The caller adds a wait that the request allows the broker.
        Raises Unsupported, ConnectionFailed, TimedOut, ClientError.
        """
        version = self.version_of(type(request), newest)
        frame = await self._exchange(request, version, self.timeout_s if timeout_s is None else timeout_s)
        return self._decode(response_type, version, frame)

    def send(self, request: Struct) -> None:
        """Send a request that has no response (Produce with acks=0). Raises as `call`."""
        self._write(request, self.version_of(type(request)), None)

    async def drain(self) -> None:
        """Wait until what was sent has left.

        Raises ConnectionFailed; TimedOut if the broker reads nothing for `timeout_s`.
        """
        if self._renewal is not None:
            await asyncio.wait([self._renewal])
        await self._open_wire().drain(self.timeout_s)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.fail(ConnectionFailed(f"the connection to {self} is closed"))

    async def _connect(self) -> None:
        wire = _Wire(str(self), self._protocol, self._security)
        loop, context = asyncio.get_running_loop(), self._security.context
        if context is None:
            await loop.create_connection(lambda: wire, self.host, self.port)
            self._wire = wire
        else:
            _, tls = await loop.create_connection(
                lambda: ClientTlsTransport(wire, context, self.host, str(self)), self.host, self.port
            )
            self._wire = wire
            await tls.handshake_done

    async def _run(self, steps: Steps) -> None:
        """Send requests of the connection itself. Raises as they do, and as `call`."""
        try:
            request, version = next(steps)
            while True:
                request, version = steps.send(await self._exchange(request, version, self.timeout_s))
        except StopIteration as done:
            self._renewed_at = asyncio.get_running_loop().time() + done.value

    async def _renew(self) -> None:
        """Logs in again, then sends the requests that came meanwhile; a failure fails them, too."""
        failure: ClientError | None = None
        try:
            await self._run(log_in(self._protocol, self._security, str(self)))
        except ClientError as error:
            failure = error
            assert self._wire is not None
            self._wire.fail(error)
        finally:
            queued, self._queued_requests, self._renewal = self._queued_requests, [], None
        for request, version, future in queued:
            try:
                if failure is not None:
                    raise failure
                self._write(request, version, future)
            except ClientError as error:
                if future is not None and not future.done():
                    future.set_exception(error)

    async def _exchange(self, request: Struct, version: int, timeout_s: float) -> memoryview:
        future: Response = asyncio.get_running_loop().create_future()
        wire = self._write(request, version, future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            late = TimedOut(f"{self} did not respond in {_format_seconds(timeout_s)} s")
            wire.fail(late)
            raise late from None

    def _write(self, request: Struct, version: int, future: Response | None) -> _Wire:
        wire = self._open_wire()
        if not isinstance(request, LOGIN_REQUESTS):
            loop = asyncio.get_running_loop()
            if self._renewal is None and loop.time() >= self._renewed_at:
                self._renewal = loop.create_task(self._renew())
            if self._renewal is not None:
                self._queued_requests.append((request, version, future))
                return wire
        frame = b"".join(self._protocol.encode_request(request, version, future))
        wire.transport.write(frame)  # writelines never pauses in some releases (CVE-2024-12254)
        return wire

    def _open_wire(self) -> _Wire:
        if self._protocol.failure is not None:
            raise self._protocol.failure
        if self._wire is None:
            raise ConnectionFailed(f"no connection to {self}")
        return self._wire

    def _decode(self, response_type: type[T], version: int, frame: memoryview) -> T:
        try:
            return self._protocol.decode_response(response_type, version, frame)
        except ClientError:
            self.close()
            raise


class _Wire(asyncio.BufferedProtocol):
    """The socket's side: hands responses to their callers."""

    def __init__(self, peer: str, protocol: ClientProtocol[Response], security: ClientSecurity) -> None:
        self.transport: asyncio.WriteTransport
        self._peer = peer
        self._protocol = protocol
        self._security = security
        self._paused: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)  # uvloop's derive from nothing of asyncio's
        self.transport.set_write_buffer_limits(high=0)  # paused is then: something is left to be sent

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._protocol.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            responses = self._protocol.receive(nbytes)
        except ClientError as error:
            self.fail(error)
            return
        for future, frame in responses:
            if not future.done():
                future.set_result(frame)

    def eof_received(self) -> bool:
        self._lost(f"{self._peer} closed the connection; its log has the reason")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        detail = f": {describe_socket_error(exc)}" if isinstance(exc, OSError) else ""
        self._lost(f"the connection to {self._peer} broke{detail}")

    def _lost(self, reason: str) -> None:
        self.fail(lost_connection(self._peer, self._protocol, self._security, reason))

    def pause_writing(self) -> None:
        self._paused = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None and not paused.done():
            paused.set_result(None)

    async def drain(self, timeout_s: float) -> None:
        if self._paused is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await asyncio.shield(self._paused)
            except TimeoutError:
                self.fail(TimedOut(f"{self._peer} has taken nothing for {timeout_s:g} s"))
        if self._protocol.failure is not None:
            raise self._protocol.failure

    def fail(self, error: ClientError) -> None:
        """Close, and fail all waiting callers; the first reason counts."""
        self.transport.close()
        for future in self._protocol.fail(error):
            if not future.done():
                future.set_exception(self._protocol.failure or error)
        self.resume_writing()
