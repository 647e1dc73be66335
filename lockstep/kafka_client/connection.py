"""One TCP connection to a broker, for asyncio: requests out, responses to their callers.

Owns: the socket; the protocol and the pending requests are `lockstep.protocol.client_protocol`'s. Requests
may be sent without waiting for the responses of earlier ones.

Invariants: a request whose response did not come in time leaves the connection closed, because nobody knows
any more what the broker did with it; a closed connection fails everything that waits on it.

Does not: know topics or leaders (`client`), reconnect, authenticate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, TypeVar, cast

from lockstep.protocol.client_errors import (
    BrokerError,
    ClientError,
    ConnectionFailed,
    TimedOut,
    Unsupported,
    describe_socket_error,
)
from lockstep.protocol.client_protocol import NEWEST_API_VERSIONS, ClientProtocol, Peer
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
        raise ClientError(f"{about}: the broker answered with {len(parts)} results, 1 was requested")
    return parts[0]


def _format_seconds(timeout_s: float) -> str:
    """Two digits, as a share of a time-out has many more; and 120, not 1.2e+02."""
    return f"{timeout_s:.2g}" if timeout_s < 99.5 else f"{timeout_s:.0f}"


Response = asyncio.Future[memoryview]


class BrokerConnection(Peer[Response]):
    """A connection that is ready for requests. Make it with `BrokerConnection.open`."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        super().__init__(host, port, client_id, CLIENT_SOFTWARE)
        self.timeout_s = timeout_s
        self._wire: _Wire | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "lockstep",
        timeout_s: float = 30.0,
        open_timeout_s: float | None = None,
    ) -> BrokerConnection:
        """Connect and learn what the broker speaks. Raises ConnectionFailed, TimedOut or ClientError.

        `open_timeout_s` is how long that may take, where it is not `timeout_s`.
        """
        connection = cls(host, port, client_id, timeout_s)
        within_s = timeout_s if open_timeout_s is None else open_timeout_s
        try:
            async with asyncio.timeout(within_s):
                _, connection._wire = await asyncio.get_running_loop().create_connection(
                    lambda: _Wire(str(connection), connection._protocol), host, port
                )
                await connection._negotiate()
        except TimeoutError:
            problem = "did not accept a connection" if connection._wire is None else "did not answer"
            connection.close()
            raise TimedOut(f"{connection} {problem} in {_format_seconds(within_s)} s") from None
        except OSError as error:
            raise ConnectionFailed(
                f"cannot connect to {connection}: {describe_socket_error(error)}"
            ) from None
        except (ValueError, OverflowError) as error:  # a name or a port that cannot be one
            connection.close()
            raise ConnectionFailed(f"cannot connect to {str(connection)[:80]!r}: {error}") from None
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
        answer: type[T],
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
        return self._decode(answer, version, frame)

    def send(self, request: Struct) -> None:
        """Send a request that has no response (Produce with acks=0). Raises as `call`."""
        self._write(request, self.version_of(type(request)), None)

    async def drain(self) -> None:
        """Wait until what was sent has left.

        Raises ConnectionFailed; TimedOut if the broker reads nothing for `timeout_s`.
        """
        await self._open_wire().drain(self.timeout_s)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.fail(ConnectionFailed(f"the connection to {self} is closed"))

    async def _negotiate(self) -> None:
        """ApiVersions, and again in the broker's version where ours is too new for it (KIP-511)."""
        version: int | None = NEWEST_API_VERSIONS
        while version is not None:
            frame = await self._exchange(self._protocol.api_versions_request(), version, self.timeout_s)
            version = self._protocol.accept_versions(version, frame)

    async def _exchange(self, request: Struct, version: int, timeout_s: float) -> memoryview:
        future: Response = asyncio.get_running_loop().create_future()
        wire = self._write(request, version, future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            late = TimedOut(f"{self} did not answer in {_format_seconds(timeout_s)} s")
            wire.fail(late)
            raise late from None

    def _write(self, request: Struct, version: int, future: Response | None) -> _Wire:
        wire = self._open_wire()
        parts = self._protocol.encode_request(request, version, future)
        wire.transport.write(b"".join(parts))  # writelines pauses nobody in some releases (CVE-2024-12254)
        return wire

    def _open_wire(self) -> _Wire:
        if self._protocol.failure is not None:
            raise self._protocol.failure
        if self._wire is None:
            raise ConnectionFailed(f"no connection to {self}")
        return self._wire

    def _decode(self, answer: type[T], version: int, frame: memoryview) -> T:
        try:
            return self._protocol.decode_response(answer, version, frame)
        except ClientError:
            self.close()
            raise


class _Wire(asyncio.BufferedProtocol):
    """The socket's side: hands responses to their callers."""

    def __init__(self, peer: str, protocol: ClientProtocol[Response]) -> None:
        self.transport: asyncio.WriteTransport
        self._peer = peer
        self._protocol = protocol
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
        self.fail(ConnectionFailed(f"{self._peer} closed the connection; its log has the reason"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        detail = f": {describe_socket_error(exc)}" if isinstance(exc, OSError) else ""
        self.fail(ConnectionFailed(f"the connection to {self._peer} broke{detail}"))

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
