"""The TLS of one connection to a broker, for asyncio: between the socket and the connection's own protocol,
to which it is the transport.

Owns: the handshake, decryption into the protocol's buffer, encryption of its output. Invariants: the protocol
gets bytes only after the handshake; what the protocol has written is with the socket's transport when
`write` returns, so that a pause in writing means the same with TLS as without. Does not: know certificates
(`security`) or requests.

The library is `ssl` with memory buffers, as in asyncio's and uvloop's own transports: those keep encrypted
output that is hidden from the protocol, so that no one could wait until a record has left.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Protocol, cast

from lockstep.kafka_client.connection_errors import handshake_failure, tls_failure
from lockstep.protocol.client_errors import ClientError
from lockstep.protocol.primitives import Buffer
from lockstep.protocol.tls_session import TlsSession

_READ_BYTES: Final = 128 * 1024
_received: Final = memoryview(bytearray(_READ_BYTES))
"""The encrypted bytes of one read, of whichever connection: they are taken over at once."""


class Decrypted(Protocol):
    """The protocol of a connection, and how it is ended."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def get_buffer(self, sizehint: int) -> memoryview: ...
    def buffer_updated(self, nbytes: int) -> None: ...
    def eof_received(self) -> bool: ...
    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def fail(self, error: ClientError) -> None: ...


class ClientTlsTransport(asyncio.BufferedProtocol):
    """One connection's TLS. Args: protocol: gets what the broker sends, decrypted; peer: for errors."""

    def __init__(self, protocol: Decrypted, context: ssl.SSLContext, host: str, peer: str) -> None:
        self.handshake_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done after the handshake, with a ClientError if it failed."""
        self._protocol = protocol
        self._peer = peer
        self._session = TlsSession(context, server_side=False, server_hostname=host)
        self._transport: asyncio.WriteTransport

    # --- the socket's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._protocol.connection_made(cast(asyncio.BaseTransport, self))
        self._advance()

    def get_buffer(self, sizehint: int) -> memoryview:
        return _received

    def buffer_updated(self, nbytes: int) -> None:
        self._session.feed(_received[:nbytes])
        self._advance()

    def eof_received(self) -> bool:
        if not self.handshake_done.done():
            self._fail(handshake_failure(self._peer))
        return self._protocol.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.handshake_done.done():
            self._fail(handshake_failure(self._peer))
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # --- the protocol's side ------------------------------------------------------------------------------

    def set_write_buffer_limits(self, high: int) -> None:
        """Same as of the socket's transport."""
        self._transport.set_write_buffer_limits(high=high)

    def write(self, data: Buffer) -> None:
        """Encrypts and sends."""
        view = memoryview(data)
        try:
            while view:
                view = view[self._session.write(view) :]
        except ssl.SSLError as error:
            self._fail(tls_failure(self._peer, error))
        self._flush()

    def close(self) -> None:
        """Sends what was written, and the end."""
        self._session.end()
        self._flush()
        self._transport.close()

    # --- private ------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        try:
            if not self.handshake_done.done() and self._session.do_handshake():
                self.handshake_done.set_result(None)
            if self.handshake_done.done():
                self._decrypt()
        except ssl.SSLZeroReturnError:
            self._protocol.eof_received()
        except ssl.SSLError as error:
            self._flush()  # the broker gets the alert
            self._fail(tls_failure(self._peer, error))
        self._flush()

    def _decrypt(self) -> None:
        """Raises ssl.SSLError."""
        while not self._transport.is_closing():
            count = self._session.read_into(self._protocol.get_buffer(-1))
            if count is None:
                break
            if not count:
                self._protocol.eof_received()
                break
            self._protocol.buffer_updated(count)

    def _flush(self) -> None:
        if not self._transport.is_closing() and (data := self._session.take()):
            self._transport.write(data)

    def _fail(self, error: ClientError) -> None:
        if not self.handshake_done.done():
            self.handshake_done.set_exception(error)
            self.handshake_done.exception()  # its caller may have left
        self._protocol.fail(error)
