"""TLS on the server's side of one short HTTP connection, over its pair of streams.

Owns: the handshake, decryption up to a limit, encryption of the response. Invariants: nothing is decrypted
beyond the limit; a handshake takes its place among the open connections and its share of their time, which
asyncio's own listener with TLS counts only afterwards. Does not: know keys (`lockstep.broker.security`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from typing import Final

from lockstep.protocol.tls_session import TlsSession

_READ_BYTES: Final = 16 * 1024


class TlsStreams:
    """A connection's TLS; `reader` has what its client sends.

    Args: limit_bytes: so many bytes are decrypted at most, and a line is as long at most.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
        limit_bytes: int,
        line_bytes: int,
    ) -> None:
        self.reader = asyncio.StreamReader(limit=line_bytes)
        self._encrypted_reader, self._writer = reader, writer
        self._session = TlsSession(context, server_side=True)
        self._left = limit_bytes

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """After the handshake, while bytes are decrypted. Raises ssl.SSLError, EOFError, OSError."""
        await self._do_handshake()
        decrypting = asyncio.create_task(self._decrypt())
        try:
            yield
        finally:
            decrypting.cancel()

    def seal(self, data: bytes) -> bytes:
        """Encrypts all that is to be sent, and the end."""
        view = memoryview(data)
        while view:
            view = view[self._session.write(view) :]
        self._session.end()
        return self._session.take()

    async def _do_handshake(self) -> None:
        try:
            while not self._session.do_handshake():
                await self._receive()
        except ssl.SSLError:
            self._writer.write(self._session.take())  # the client gets the alert
            raise

    async def _decrypt(self) -> None:
        try:
            while self._left > 0:
                data = self._session.read(min(self._left, _READ_BYTES))
                if data is None:
                    await self._receive()
                    continue
                if not data:
                    break
                self._left -= len(data)
                self.reader.feed_data(data)
        except (OSError, EOFError):
            pass
        self.reader.feed_eof()

    async def _receive(self) -> None:
        if encrypted := self._session.take():
            self._writer.write(encrypted)
        data = await self._encrypted_reader.read(_READ_BYTES)
        if not data:
            raise EOFError
        self._session.feed(data)
