"""How a fuzzed input reaches a connection of a broker in this process, through each kind of listener.

Owns: the client's half of a connection without a socket: a login, a TLS handshake, encryption. Does not: know
what an input means (`fuzz_broker`), or what a listener is set to (`attacked_listeners`).
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final

from lockstep.broker.network.connection import Connection
from lockstep.broker.network.tls_connection import TlsConnection
from lockstep.protocol.api import ApiKey
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.campaigns.attacked_listeners import (
    TOKEN,
    AfterLogin,
    AttackedListener,
    InsideTls,
    NoTls,
)

Settle = Callable[[Connection], Awaitable[None]]
"""Waits until a connection has answered, or only waits for others."""

_RAW_HEAD: Final = struct.Struct(">ihhih")


class Transport:
    """What a connection writes to; the end of a connection is noted."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False
        self.reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 5), "sockname": ("192.0.2.2", 9092)}.get(name, default)

    def set_write_buffer_limits(self, high: int) -> None:
        """Everything is taken at once."""

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: list[Any]) -> None:
        self.written += map(bytes, pieces)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def take(self) -> bytes:
        """What was written since the last call."""
        data = b"".join(self.written)
        self.written.clear()
        return data


class Client:
    """A client of a PLAINTEXT listener, and the base of the others. Args: protocol: the broker's side."""

    reads_frames = True
    """False where what the broker writes is no responses of Kafka."""

    def __init__(self, listener: AttackedListener, protocol: asyncio.BaseProtocol) -> None:
        self.transport = Transport()
        self._listener = listener
        self._protocol: Any = protocol
        self.connection: Connection = (
            protocol._connection if isinstance(protocol, TlsConnection) else protocol  # type: ignore[assignment]
        )
        protocol.connection_made(self.transport)  # type: ignore[arg-type]

    async def open(self, settle: Settle) -> None:
        """Everything before the first request."""

    def send(self, frame: bytes) -> None:
        """Give the broker these bytes."""
        self._feed(self._listener.octets(frame))

    def end(self) -> None:
        """The socket is gone."""
        self._protocol.connection_lost(None)

    def read(self) -> bytes:
        """What the broker has answered since the last call."""
        return self.transport.take()

    def _feed(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self.transport.closed:
            room = self._protocol.get_buffer(-1)
            size = min(len(room), len(data) - at)
            room[:size] = data[at : at + size]
            at += size
            self._protocol.buffer_updated(size)


class _LoggedInClient(Client):
    async def open(self, settle: Settle) -> None:
        for key, version, request in (
            (ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
            (ApiKey.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=TOKEN)),
        ):
            body = encode_bytes(request, version)
            self.send(_RAW_HEAD.pack(10 + len(body), key, version, 0, -1) + body)
            await settle(self.connection)
            self.connection.write_out()
            answer = self.read()
            if answer[8:10] != b"\0\0":
                raise ConnectionError(f"the login failed: {answer!r}")


class _TlsClient(Client):
    _listener: InsideTls

    def __init__(self, listener: InsideTls, protocol: asyncio.BaseProtocol) -> None:
        super().__init__(listener, protocol)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = listener.context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    async def open(self, settle: Settle) -> None:
        for _ in range(4):
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self._feed(self._outgoing.read())
                self._incoming.write(self.transport.take())
            else:
                self._feed(self._outgoing.read())
                return
        raise ConnectionError("the TLS handshake does not end")

    def send(self, frame: bytes) -> None:
        if frame:
            self._object.write(frame)
            self._feed(self._outgoing.read())

    def read(self) -> bytes:
        self._incoming.write(self.transport.take())
        data = b""
        while True:
            try:
                piece = self._object.read(1 << 16)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return data
            if not piece:
                return data
            data += piece


class _ClientWithoutTls(Client):
    reads_frames = False


def client_of(listener: AttackedListener, protocol: asyncio.BaseProtocol) -> Client:
    """The client of a listener. Args: protocol: the broker's side of a new connection to it."""
    if isinstance(listener, NoTls):
        return _ClientWithoutTls(listener, protocol)
    if isinstance(listener, InsideTls):
        return _TlsClient(listener, protocol)
    return (_LoggedInClient if isinstance(listener, AfterLogin) else Client)(listener, protocol)
