"""Sockets, and the whole responses that come over them.

Owns: `connect`, `ready`, and `ResponseReader`, which cuts what has come into frames. Invariants: a frame is
handed out whole, once, in order; it is a view that is valid until the next read. Does not: know what is in a
frame (`wire`), or send.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator, Mapping

from bench.load.tls_socket import secure
from bench.load.wire import UnexpectedResponse

ROOM_BYTES = 64 * 1024
SOCKET_TIMEOUT_S = 60.0
LEAST_BYTES = 8
"""A length and a correlation id."""


def connect(
    host: str,
    port: int,
    timeout_s: float = SOCKET_TIMEOUT_S,
    receive_bytes: int = 0,
    security: Mapping[str, str] | None = None,
) -> socket.socket:
    """A connected TCP socket without Nagle's delay.

    Args:
        receive_bytes: its receive buffer, 0 the system's.
        security: properties of a Kafka client, for a listener with TLS and logins.
    """
    sock = socket.create_connection((host, port), timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    return secure(sock, host, security) if security else sock


def ready(poll: select.epoll) -> list[int]:
    """The numbers of the sockets that are readable, waited for. UnexpectedResponse where none has for too
    long."""
    numbers = [number for number, _ in poll.poll(SOCKET_TIMEOUT_S)]
    if not numbers:
        raise UnexpectedResponse(f"no response within {SOCKET_TIMEOUT_S} s")
    return numbers


class ResponseReader:
    """The responses of a socket's other side. A frame has its length prefix; one for which there is no room,
    of a broker that ignores the maximum bytes of a Fetch, is a UnexpectedResponse."""

    __slots__ = ("_filled", "_sock", "_view")

    def __init__(self, sock: socket.socket, room_bytes: int = ROOM_BYTES) -> None:
        self._sock = sock
        self._view = memoryview(bytearray(room_bytes))
        self._filled = 0

    def poll(self) -> memoryview | None:
        """Read what has arrived: the response to the one request in flight, once it is whole.
        UnexpectedResponse."""
        self._take()
        end = self._end_of(0)
        if not end or self._filled < end:
            return None
        if self._filled > end:
            raise UnexpectedResponse("more bytes than one response")
        self._filled = 0
        return self._view[:end]

    def wait(self) -> memoryview:
        """Wait for the response to the one request in flight; on a blocking socket. UnexpectedResponse."""
        while (frame := self.poll()) is None:
            pass
        return frame

    def poll_all(self) -> Iterator[memoryview]:
        """Read what has arrived: every response that is whole by now. To be iterated to its end.
        UnexpectedResponse."""
        self._take()
        start = 0
        while (end := self._end_of(start)) and end <= self._filled:
            yield self._view[start:end]
            start = end
        self._view[: self._filled - start] = bytes(self._view[start : self._filled])
        self._filled -= start

    def _take(self) -> None:
        try:
            count = self._sock.recv_into(self._view[self._filled :])
        except ssl.SSLWantReadError:  # a part of a record, or what is for TLS itself
            return
        if count == 0:
            raise UnexpectedResponse("the broker closed the connection")
        self._filled += count

    def _end_of(self, start: int) -> int:
        """The end of the frame at `start`; 0 where its length has not arrived yet."""
        if self._filled - start < 4:
            return 0
        end = start + 4 + int.from_bytes(self._view[start : start + 4], "big")
        if end - start < LEAST_BYTES:
            raise UnexpectedResponse(f"a response of {end - start} bytes: it has no correlation id")
        if end - start > len(self._view):
            raise UnexpectedResponse(f"a response of {end - start} bytes where {len(self._view)} fit")
        return end
