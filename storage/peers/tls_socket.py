"""The TLS of a dialed connection, with the methods of the socket below it that `Link` uses.

Invariants: bytes count as sent once the kernel has their encrypted form, so that a caller that continues with
what is left loses and repeats nothing; at most one piece is kept encrypted. `send` and `recv` never block.
Does not: know who the other side is, or what is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lockstep.protocol.primitives import Buffer
from lockstep.protocol.tls_session import TlsSession

PIECE_BYTES: Final = 256 * 1024
"""Bytes that are encrypted, and given to the kernel, at once."""
CALL_BYTES: Final = 4 * PIECE_BYTES
"""LIMIT. Bytes that one call encrypts, some milliseconds of the loop's time."""
RECEIVE_BYTES: Final = 64 * 1024


class TlsSocket:
    """See the module. Args: connected: a non-blocking socket, which is closed with this one."""

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connected
        self._session = TlsSession(context, server_side=False)
        self._unsent = memoryview(b"")
        """Encrypted bytes that the kernel did not take."""
        self._held = 0
        """Bytes of the caller that are encrypted there: it comes again with them."""

    def fileno(self) -> int:
        """See `socket.fileno`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the connection, with TLS's own end where the kernel takes it."""
        if not self._unsent:
            self._session.end()
        with contextlib.suppress(OSError):
            self._flush()
        self._socket.close()

    # --- the handshake ------------------------------------------------------------------------------------

    async def do_handshake(self, loop: asyncio.AbstractEventLoop) -> None:
        """Completes the handshake. Raises ssl.SSLError, OSError."""
        while True:
            try:
                is_complete = self._session.do_handshake()
            except ssl.SSLError:
                await self._send_encrypted(loop)  # the alert, from which the other side knows the reason
                raise
            await self._send_encrypted(loop)
            if is_complete:
                return
            await self._receive(loop)

    def certificate(self) -> Mapping[str, Any] | None:
        """Returns the other side's verified certificate."""
        return self._session.certificate()

    async def send_all(self, loop: asyncio.AbstractEventLoop, data: bytes) -> None:
        """Sends all of a few bytes. Raises OSError."""
        self._session.write(data)
        await self._send_encrypted(loop)

    async def receive_into(self, loop: asyncio.AbstractEventLoop, buffer: memoryview) -> int:
        """Returns how many bytes were received; 0 at the end. Raises ssl.SSLError, OSError."""
        while (count := self._session.read_into(buffer)) is None:
            await self._receive(loop)
        return count

    async def _send_encrypted(self, loop: asyncio.AbstractEventLoop) -> None:
        if data := self._session.take():
            await loop.sock_sendall(self._socket, data)

    async def _receive(self, loop: asyncio.AbstractEventLoop) -> None:
        data = await loop.sock_recv(self._socket, RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("closed during the handshake")
        self._session.feed(data)

    # --- as a socket --------------------------------------------------------------------------------------

    def send(self, data: Buffer) -> int:
        """See `sendmsg`."""
        return self.sendmsg([data])

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Returns how many bytes the kernel has taken; the caller comes again with the others, in order.

        Raises BlockingIOError for none, OSError for the end of the connection.
        """
        if not self._flush():
            raise BlockingIOError
        sent, self._held = self._held, 0
        for piece in _pieces(buffers, sent):
            self._session.write(piece)
            if not self._flush():
                self._held = len(piece)
                break
            sent += len(piece)
            if sent >= CALL_BYTES:
                break
        if not sent:
            raise BlockingIOError
        return sent

    def recv(self, count: int) -> bytes:
        """Returns received bytes, none at the end. Raises BlockingIOError, OSError."""
        data = self._socket.recv(RECEIVE_BYTES)
        if not data:
            return b""
        self._session.feed(data)
        plaintext = self._session.read(count)
        if plaintext is None:
            raise BlockingIOError
        return plaintext

    def _flush(self) -> bool:
        """Returns whether the kernel has all that is encrypted."""
        while True:
            if not self._unsent:
                self._unsent = memoryview(self._session.take())
                if not self._unsent:
                    return True
            try:
                count = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = self._unsent[count:]


def _pieces(buffers: Sequence[Buffer], skip: int) -> Iterator[Buffer]:
    """The buffers in pieces of some size, small ones joined, without the first `skip` bytes."""
    parts: list[Buffer] = []
    length = 0
    for each in buffers:
        view: Buffer = each
        if skip:
            skipped = min(skip, len(each))
            skip -= skipped
            view = memoryview(each)[skipped:]
        while length + len(view) >= PIECE_BYTES:
            room = PIECE_BYTES - length
            yield b"".join((*parts, memoryview(view)[:room]))
            view, parts, length = memoryview(view)[room:], [], 0
        if len(view):
            parts.append(view)
            length += len(view)
    if parts:
        yield parts[0] if len(parts) == 1 else b"".join(parts)
