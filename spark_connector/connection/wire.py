"""One TCP connection to a broker, blocking: versions agreed on, requests out, answers matched.

Owns: the socket, the correlation ids, the table of versions that both sides speak. Requests may be started
before the answers of earlier ones are there (`start`); a task that decodes one Fetch while the broker reads
the next does so.

Invariants: a request whose answer did not come in time leaves the connection closed, because nobody knows any
more what the broker did with it; a closed connection fails everything that waits on it.

Does not: know topics or leaders (`cluster`), reconnect, authenticate. One thread at a time may use it.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Final, Generic, TypeVar

from protocol.api import ApiKey, request_header_version, response_header_version
from protocol.compiler import decode, encode
from protocol.errors import ErrorCode
from protocol.fields import Struct
from protocol.framing import LARGEST_REGULAR_BUFFER, FrameReader, MalformedFrame
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.primitives import Buffer, MalformedMessage, skip_tags
from protocol.private_messages import PRIVATE_MESSAGES
from spark_connector.connection.errors import (
    BrokerError,
    ClientError,
    ConnectionFailed,
    TimedOut,
    Unsupported,
)

T = TypeVar("T", bound=Struct)

CLIENT_SOFTWARE: Final = "lockstep-spark"
CLIENT_VERSION: Final = "0.1.0"
MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
"""More than any Fetch asks for: beyond it the peer is no broker."""
MAX_STARTED: Final = 64
"""Requests without their answers: more than any task here has, and their answers fit into memory."""

_NEWEST_API_VERSIONS: Final = 4
_JOINED_BYTES: Final = 64 * 1024
"""Up to here one copy and one system call are cheaper than several system calls."""
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")


class Pending(Generic[T]):
    """A request that was sent; `result` is its answer."""

    __slots__ = ("_answer", "_connection", "_correlation_id", "_version")

    def __init__(self, connection: Connection, answer: type[T], version: int, correlation_id: int) -> None:
        self._connection = connection
        self._answer = answer
        self._version = version
        self._correlation_id = correlation_id

    def result(self, timeout_s: float | None = None) -> T:
        """Wait for the answer; record data in it are the caller's to keep. Raises as `Connection.call`."""
        frame = self._connection._frame_of(self._correlation_id, timeout_s)
        return self._connection._decoded(self._answer, self._version, frame)


class Connection:
    """A connection that is ready for requests. Make it with `Connection.open`, or ask a `Cluster` for one."""

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self.host = host
        self.port = port
        self.timeout_s = timeout_s
        self.versions: dict[int, tuple[int, int]] = {}
        """API key -> lowest and highest version the broker speaks."""
        self.features: dict[str, tuple[int, int]] = {}
        """Name -> lowest and highest level the broker supports."""
        self._client_id = client_id
        self._socket: socket.socket | None = None
        self._failure: ClientError | None = None
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._next_correlation_id = 0
        self._started: set[int] = set()
        self._arrived: dict[int, memoryview] = {}

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def open(
        cls, host: str, port: int, *, client_id: str = "lockstep-spark", timeout_s: float = 30.0
    ) -> Connection:
        """Connect and learn what the broker speaks. Raises ConnectionFailed, TimedOut or ClientError."""
        connection = cls(host, port, client_id, timeout_s)
        try:
            connection._socket = socket.create_connection((host, port), timeout_s)
            connection._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError:
            raise TimedOut(f"{connection} did not accept a connection in {timeout_s:g} s") from None
        except OSError as error:
            raise ConnectionFailed(f"cannot connect to {connection}: {_in_words(error)}") from None
        except (ValueError, OverflowError) as error:  # a name or a port that cannot be one
            raise ConnectionFailed(f"cannot connect to {str(connection)[:80]!r}: {error}") from None
        try:
            connection._negotiate()
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._socket is not None and self._failure is None

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

    def call(
        self, request: Struct, answer: type[T], *, timeout_s: float | None = None, newest: int | None = None
    ) -> T:
        """Send a request and return its answer; record data in it are the caller's to keep.

        `timeout_s` is how long to wait, besides what the request itself allows the broker to take.
        Raises Unsupported, ConnectionFailed, TimedOut, ClientError.
        """
        return self.start(request, answer, newest=newest).result(timeout_s)

    def start(self, request: Struct, answer: type[T], *, newest: int | None = None) -> Pending[T]:
        """Send a request, and leave its answer for later. Raises as `call`."""
        version = self.version_of(type(request), newest)
        return Pending(self, answer, version, self._write(request, version))

    def close(self) -> None:
        self._fail(ConnectionFailed(f"the connection to {self} is closed"))

    def _negotiate(self) -> None:
        """ApiVersions, and again in the broker's version where ours is too new for it (KIP-511)."""
        version = _NEWEST_API_VERSIONS
        while True:
            request = ApiVersionsRequest(
                client_software_name=CLIENT_SOFTWARE, client_software_version=CLIENT_VERSION
            )
            frame = self._frame_of(self._write(request, version), None)
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

    def _write(self, request: Struct, version: int) -> int:
        wire = self._open_socket()
        if len(self._started) >= MAX_STARTED:
            raise ClientError(f"{MAX_STARTED} requests to {self} wait for their answers already")
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
        size = len(header) + sum(map(len, body))
        self._send(wire, [_INT32.pack(size) + header, *body], size)
        self._started.add(correlation_id)
        return correlation_id

    def _send(self, wire: socket.socket, parts: list[Buffer], size: int) -> None:
        try:
            wire.settimeout(self.timeout_s)
            for part in [b"".join(parts)] if size <= _JOINED_BYTES else parts:
                wire.sendall(part)
        except TimeoutError:
            late = TimedOut(f"{self} took nothing for {self.timeout_s:g} s")
            self._fail(late)
            raise late from None
        except OSError as error:
            broken = ConnectionFailed(f"the connection to {self} broke: {_in_words(error)}")
            self._fail(broken)
            raise broken from None

    def _frame_of(self, correlation_id: int, timeout_s: float | None) -> memoryview:
        allowed_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + allowed_s
        while correlation_id not in self._arrived:
            wire = self._open_socket()
            if correlation_id not in self._started:
                raise ClientError(f"the answer of {self} was taken already")
            try:
                wire.settimeout(max(deadline - time.monotonic(), 0.001))
                count = wire.recv_into(self._reader.get_buffer())
            except TimeoutError:
                late = TimedOut(f"{self} did not answer in {allowed_s:g} s")
                self._fail(late)
                raise late from None
            except OSError as error:
                broken = ConnectionFailed(f"the connection to {self} broke: {_in_words(error)}")
                self._fail(broken)
                raise broken from None
            self._take(count)
        return self._arrived.pop(correlation_id)

    def _take(self, count: int) -> None:
        """Keep the answers that `count` more bytes made whole."""
        failure: ClientError | None = None
        if not count:
            failure = ConnectionFailed(f"{self} closed the connection")
        try:
            frames = self._reader.commit(count) if count else []
        except MalformedFrame as error:
            failure = ClientError(f"{self} does not speak Kafka's protocol: {error}")
            frames = []
        for frame in frames:
            correlation_id = _INT32.unpack_from(frame)[0] if len(frame) >= 4 else -1
            if correlation_id not in self._started:
                failure = ClientError(f"{self} does not speak Kafka's protocol: an answer to nothing")
                break
            self._started.remove(correlation_id)
            # A small frame lies in the receive buffer and would not outlive the next read.
            kept = frame if len(frame) > LARGEST_REGULAR_BUFFER else memoryview(bytes(frame))
            self._arrived[correlation_id] = kept
        if failure is not None:
            self._fail(failure)
            raise failure

    def _open_socket(self) -> socket.socket:
        if self._failure is not None:
            raise self._failure
        if self._socket is None:
            raise ConnectionFailed(f"no connection to {self}")
        return self._socket

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

    def _fail(self, error: ClientError) -> None:
        """Close; the first reason counts."""
        if self._failure is None:
            self._failure = error
        if self._socket is not None:
            self._socket.close()
        self._arrived.clear()
        self._started.clear()


def _in_words(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "connection refused; is a broker running there?"
    return error.strerror.lower() if error.strerror else str(error)
