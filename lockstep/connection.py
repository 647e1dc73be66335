"""One TCP connection to a broker: versions agreed on, requests out, responses matched.

Owns: the socket, the correlation ids, the table of versions that both sides speak. Requests may be sent
without waiting for the answers of earlier ones.

Invariants: a request whose answer did not come in time leaves the connection closed, because nobody knows
any more what the broker did with it; a closed connection fails everything that waits on it.

Does not: know topics or leaders (`lockstep.client`), reconnect, authenticate.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Final, TypeVar, cast

from protocol.api import ApiKey, request_header_version, response_header_version
from protocol.compiler import decode, encode
from protocol.errors import ErrorCode
from protocol.fields import Struct
from protocol.framing import LARGEST_REGULAR_BUFFER, FrameReader, MalformedFrame
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.primitives import MalformedMessage, skip_tags
from protocol.private_messages import PRIVATE_MESSAGES

T = TypeVar("T", bound=Struct)
Part = TypeVar("Part")

CLIENT_SOFTWARE: Final = "lockstep"
CLIENT_VERSION: Final = "0.1.0"
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
"""More than any Fetch asks for: beyond it the peer is no broker."""

_NEWEST_API_VERSIONS: Final = 4
_ERROR_CODES: Final = {int(code): code for code in ErrorCode}
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")


class ClientError(Exception):
    """What went wrong between an application and its brokers, in words for its user."""


class ConnectionFailed(ClientError):
    """No connection, or it broke; what was under way may or may not have happened."""


class TimedOut(ConnectionFailed):
    """The broker did not answer in time."""


class Unsupported(ClientError):
    """The broker does not speak a version of the API that we speak."""


class BrokerError(ClientError):
    """The broker refused. `code` is Kafka's; `about` says what was asked."""

    def __init__(self, code: int, about: str, message: str | None = None) -> None:
        self.code = code
        known = _ERROR_CODES.get(code)
        if known is None:
            super().__init__(f"{about}: {message or 'an error this client does not know'} ({code})")
        else:
            super().__init__(f"{about}: {message or known.message} ({known.name})")


def the_one(found: Iterable[Part], about: str) -> Part:
    """The one part of an answer that was asked for. Raises ClientError where there is not just one."""
    parts = list(found)
    if len(parts) != 1:
        raise ClientError(f"{about}: the broker answered with {len(parts)} results, 1 was asked for")
    return parts[0]


class Connection:
    """A connection that is ready for requests. Make it with `Connection.open`."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> lowest and highest version the broker speaks."""
        self.features: dict[str, tuple[int, int]] = {}
        """Name -> lowest and highest level the broker supports."""
        self._client_id = client_id
        self._wire: _Wire | None = None
        self._next_correlation_id = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    async def open(
        cls, host: str, port: int, *, client_id: str = "lockstep", timeout_s: float = 30.0
    ) -> Connection:
        """Connect and learn what the broker speaks. Raises ConnectionFailed, TimedOut or ClientError."""
        connection = cls(host, port, client_id, timeout_s)
        try:
            async with asyncio.timeout(timeout_s):
                _, connection._wire = await asyncio.get_running_loop().create_connection(
                    lambda: _Wire(str(connection)), host, port
                )
        except TimeoutError:
            raise TimedOut(f"{connection} did not accept a connection in {timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionFailed(f"cannot connect to {connection}: {_in_words(error)}") from None
        except (ValueError, OverflowError) as error:  # a name or a port that cannot be one
            raise ConnectionFailed(f"cannot connect to {str(connection)[:80]!r}: {error}") from None
        try:
            await connection._negotiate()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._wire is not None and self._wire.failure is None

    def version_of(self, request: type[Struct], newest: int | None = None) -> int:
        """The highest version both sides speak, up to `newest`. Raises Unsupported."""
        schema = request.SCHEMA
        key = schema.api_key
        assert key is not None
        if key in PRIVATE_MESSAGES:  # brokers tell nobody of these
            return schema.versions.high
        lowest, highest = self.versions.get(key, (0, -1))
        version = min(highest, schema.versions.high if newest is None else newest)
        if version < max(lowest, schema.versions.low):
            theirs = f"versions {lowest} to {highest}" if highest >= 0 else "nothing"
            raise Unsupported(
                f"{self} speaks {theirs} of {ApiKey(key).name}, this client {schema.versions.low} to "
                f"{schema.versions.high}"
            )
        return version

    async def call(
        self,
        request: Struct,
        answer: type[T],
        *,
        timeout_s: float | None = None,
        newest: int | None = None,
    ) -> T:
        """Send a request and return its response; record data in it are the caller's to keep.

        `timeout_s` is how long to wait, besides what the request itself allows the broker to take.
        Raises Unsupported, ConnectionFailed, TimedOut, ClientError.
        """
        version = self.version_of(type(request), newest)
        frame = await self._exchange(request, version, self.timeout_s if timeout_s is None else timeout_s)
        return self._decoded(answer, version, frame)

    def send(self, request: Struct) -> None:
        """Send a request that has no response (Produce with acks=0). Raises as `call`."""
        self._write(request, self.version_of(type(request)))

    async def drain(self) -> None:
        """Wait until what was sent has left. Raises ConnectionFailed."""
        await self._open_wire().drained()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.fail(ConnectionFailed(f"the connection to {self} is closed"))

    async def _negotiate(self) -> None:
        """ApiVersions, and again in the broker's version where ours is too new for it (KIP-511)."""
        version = _NEWEST_API_VERSIONS
        while True:
            request = ApiVersionsRequest(
                client_software_name=CLIENT_SOFTWARE, client_software_version=CLIENT_VERSION
            )
            frame = await self._exchange(request, version, self.timeout_s)
            refused = len(frame) >= 6 and _INT16.unpack_from(frame, 4)[0] == ErrorCode.UNSUPPORTED_VERSION
            answer = self._decoded(ApiVersionsResponse, 0 if refused else version, frame)
            if not refused:
                break
            theirs = [api.max_version for api in answer.api_keys if api.api_key == ApiKey.API_VERSIONS]
            if version == 0 or (theirs and not 0 <= theirs[0] < version):
                raise Unsupported(f"{self} speaks no version of API_VERSIONS that this client does")
            version = theirs[0] if theirs else 0
        if answer.error_code:
            raise BrokerError(answer.error_code, str(self))
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self.features = {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }

    async def _exchange(self, request: Struct, version: int, timeout_s: float) -> memoryview:
        correlation_id = self._write(request, version)
        wire = self._open_wire()
        future = wire.expect(correlation_id)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            late = TimedOut(f"{self} did not answer in {timeout_s:g} s")
            wire.fail(late)
            raise late from None

    def _write(self, request: Struct, version: int) -> int:
        wire = self._open_wire()
        api_key = request.SCHEMA.api_key
        assert api_key is not None
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFF_FFFF
        name = self._client_id.encode()
        header = _HEADER.pack(api_key, version, correlation_id) + _INT16.pack(len(name)) + name
        if request_header_version(api_key, version) == 2:
            header += b"\0"
        try:
            body = encode(request, version)
        except MalformedMessage as error:
            raise ClientError(f"{self} speaks too old a version of this API: {error}") from None
        wire.transport.writelines([_INT32.pack(len(header) + sum(map(len, body))) + header, *body])
        return correlation_id

    def _open_wire(self) -> _Wire:
        if self._wire is None:
            raise ConnectionFailed(f"no connection to {self}")
        if self._wire.failure is not None:
            raise self._wire.failure
        return self._wire

    def _decoded(self, answer: type[T], version: int, frame: memoryview) -> T:
        api_key = answer.SCHEMA.api_key
        assert api_key is not None
        pos = 4
        try:
            if response_header_version(api_key, version):
                pos = skip_tags(frame, pos) if frame[pos] else pos + 1
            return decode(answer, version, frame, pos)
        except (MalformedMessage, IndexError) as error:
            self.close()
            raise ClientError(f"{self} sent a response that cannot be read: {error}") from None


class _Wire(asyncio.BufferedProtocol):
    """The socket's side: cuts frames and hands them to whoever waits."""

    def __init__(self, peer: str) -> None:
        self.transport: asyncio.WriteTransport
        self.failure: ClientError | None = None
        self._peer = peer
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._paused: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)  # uvloop's derive from nothing of asyncio's

    def expect(self, correlation_id: int) -> asyncio.Future[memoryview]:
        future = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        return future

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.commit(nbytes)
        except MalformedFrame as error:
            self.fail(ClientError(f"{self._peer} does not speak Kafka's protocol: {error}"))
            return
        for frame in frames:
            if len(frame) < 4:
                self.fail(
                    ClientError(f"{self._peer} does not speak Kafka's protocol: {len(frame)} byte answer")
                )
                return
            future = self._waiting.pop(_INT32.unpack_from(frame)[0], None)
            if future is not None and not future.done():
                # A small frame lies in the receive buffer and would not outlive the next read.
                future.set_result(frame if len(frame) > LARGEST_REGULAR_BUFFER else memoryview(bytes(frame)))

    def eof_received(self) -> bool:
        self.fail(ConnectionFailed(f"{self._peer} closed the connection"))
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        said = f": {_in_words(exc)}" if isinstance(exc, OSError) else ""
        self.fail(ConnectionFailed(f"the connection to {self._peer} broke{said}"))

    def pause_writing(self) -> None:
        self._paused = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        paused, self._paused = self._paused, None
        if paused is not None and not paused.done():
            paused.set_result(None)

    async def drained(self) -> None:
        if self._paused is not None:
            await asyncio.shield(self._paused)
        if self.failure is not None:
            raise self.failure

    def fail(self, error: ClientError) -> None:
        """Close, and tell everyone who waits; the first reason counts."""
        if self.failure is None:
            self.failure = error
            self.transport.close()
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self.failure)
        self.resume_writing()


def _in_words(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a broker running there?"
    return error.strerror.lower() if error.strerror else str(error)
