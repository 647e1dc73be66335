"""Sockets, and the whole answers that come over them.

Owns: `connect`, `ready`, and `Answers`, which cuts what has come into frames. Invariants: a frame is handed
out whole, once, in order; it is a view that is good until more is taken. Does not: know what is in a frame
(`wire`), or send.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator, Mapping

from bench.load.tls_socket import secure
from bench.load.wire import WrongAnswer

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
    """The numbers of the sockets that have something, waited for. WrongAnswer where none has for too long."""
    numbers = [number for number, _ in poll.poll(SOCKET_TIMEOUT_S)]
    if not numbers:
        raise WrongAnswer(f"no answer within {SOCKET_TIMEOUT_S} s")
    return numbers


class Answers:
    """The responses of a socket's other side. A frame has its length prefix; one for which there is no room,
    that of a broker that ignores what was asked for, is a WrongAnswer."""

    __slots__ = ("_filled", "_sock", "_view")

    def __init__(self, sock: socket.socket, room_bytes: int = ROOM_BYTES) -> None:
        self._sock = sock
        self._view = memoryview(bytearray(room_bytes))
        self._filled = 0

    def only(self) -> memoryview | None:
        """Take what is there: the answer to the one request under way, once it is whole. WrongAnswer."""
        self._take()
        end = self._end_of(0)
        if not end or self._filled < end:
            return None
        if self._filled > end:
            raise WrongAnswer("more bytes than one response")
        self._filled = 0
        return self._view[:end]

    def wait(self) -> memoryview:
        """Wait for the answer to the one request under way; on a blocking socket. WrongAnswer."""
        while (frame := self.only()) is None:
            pass
        return frame

    def all(self) -> Iterator[memoryview]:
        """Take what is there: every answer that is whole by now. To be walked to its end. WrongAnswer."""
        self._take()
        place = 0
        while (end := self._end_of(place)) and end <= self._filled:
            yield self._view[place:end]
            place = end
        self._view[: self._filled - place] = bytes(self._view[place : self._filled])
        self._filled -= place

    def _take(self) -> None:
        try:
            count = self._sock.recv_into(self._view[self._filled :])
        except ssl.SSLWantReadError:  # a part of a record, or what is for TLS itself
            return
        if count == 0:
            raise WrongAnswer("the broker closed the connection")
        self._filled += count

    def _end_of(self, place: int) -> int:
        """The end of the frame at `place`; 0 where its length has not arrived yet."""
        if self._filled - place < 4:
            return 0
        end = place + 4 + int.from_bytes(self._view[place : place + 4], "big")
        if end - place < LEAST_BYTES:
            raise WrongAnswer(f"a response of {end - place} bytes: it has no correlation id")
        if end - place > len(self._view):
            raise WrongAnswer(f"a response of {end - place} bytes where {len(self._view)} are room")
        return end
