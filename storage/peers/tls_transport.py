"""The TLS of a peer's connection to this node: between its socket and `IncomingConnection`, whose transport
it is.

Invariants: a frame is parsed only after the handshake, and after the certificate was found to be of a node of
this cluster; a connection without TLS is handed to `IncomingConnection` where that is allowed, and rejected
in words that an earlier version understands where it is not; a failure is one line of the log, and the end of
this connection. The time for the handshake is `IncomingConnection`'s. Does not: know which node the other one
says it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any, Final

from lockstep.storage.peers.incoming import IncomingConnection
from lockstep.storage.peers.peer_identity import NoPeerIdentity
from lockstep.storage.peers.peer_tls import REQUIRED, TLS_HANDSHAKE, PeerTls, describe_failure, identity_in

READ_BYTES: Final = 256 * 1024
"""LIMIT. Encrypted bytes that are received at once."""

received: Final = memoryview(bytearray(READ_BYTES))
"""The encrypted bytes of one read, of whichever connection: they are taken over at once."""


class TlsTransport(asyncio.BufferedProtocol):
    """See the module. Args: incoming: gets what the peer sends, decrypted."""

    def __init__(self, incoming: IncomingConnection, tls: PeerTls) -> None:
        self._incoming, self._tls = incoming, tls
        self._waiting, self._encrypted = ssl.MemoryBIO(), ssl.MemoryBIO()
        """The peer's bytes that are not decrypted yet, and encrypted bytes for the peer."""
        self._object: ssl.SSLObject | None = None
        """None before the first byte."""
        self._is_open = False
        """True after the handshake."""
        self._over = False
        self._transport: Any = None

    # --- the socket's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._incoming.connection_made(self)  # type: ignore[arg-type]

    def get_buffer(self, sizehint: int) -> memoryview:
        return received

    def buffer_updated(self, nbytes: int) -> None:
        if self._over:
            return
        if self._object is None:
            if received[0] != TLS_HANDSHAKE:
                self._take_plaintext(bytes(received[:nbytes]))
                return
            self._object = self._tls.server_context.wrap_bio(self._waiting, self._encrypted, server_side=True)
        self._waiting.write(received[:nbytes])
        if self._is_open or self._do_handshake(self._object):
            self._decrypt(self._object)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._over = True
        self._incoming.connection_lost(exc)

    # --- the handshake ------------------------------------------------------------------------------------

    def _take_plaintext(self, data: bytes) -> None:
        """Hands a connection without TLS on, or rejects it."""
        if not self._tls.accepts_plaintext:
            self._incoming.reject(REQUIRED)
            return
        self._transport.set_protocol(self._incoming)
        self._incoming.transport = self._transport
        left = memoryview(data)
        while left and not self._transport.is_closing():
            buffer = self._incoming.get_buffer(-1)
            count = min(len(left), len(buffer))
            buffer[:count] = left[:count]
            self._incoming.buffer_updated(count)
            left = left[count:]

    def _do_handshake(self, tls: ssl.SSLObject) -> bool:
        """Returns whether the handshake is complete, and the peer a node of this cluster."""
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert, from which the peer knows the reason
            self._incoming.warn(describe_failure(error))
            self.close()
            return False
        self._flush()
        self._is_open = True
        try:
            identity = identity_in(tls.getpeercert())
        except NoPeerIdentity as error:
            self._incoming.reject(str(error))
            return False
        here = self._tls.identity.cluster_id
        if identity.cluster_id != here:
            self._incoming.reject(f"its certificate is of {identity}, this is cluster {here}")
            return False
        self._incoming.identity = identity
        return True

    # --- decryption ---------------------------------------------------------------------------------------

    def _decrypt(self, tls: ssl.SSLObject) -> None:
        incoming, waiting = self._incoming, self._waiting
        is_empty = False
        while not is_empty and not self._over:
            buffer = incoming.get_buffer(-1)
            size, count, is_end = len(buffer), 0, False
            try:
                while count < size and not is_end:
                    part = tls.read(size - count, buffer[count:])
                    is_end = not part
                    count += part  # type: ignore[operator]
                    if not waiting.pending and not tls.pending():  # an exception would cost more
                        is_empty = True
                        break
            except ssl.SSLWantReadError:
                is_empty = True
            except ssl.SSLError as error:
                incoming.warn(describe_failure(error))
                self.abort()
                return
            if count:
                incoming.buffer_updated(count)
            if is_end:
                self.close()
        self._flush()  # the response to a key update

    def _flush(self) -> None:
        if self._encrypted.pending:
            self._transport.write(self._encrypted.read())

    # --- the transport of `IncomingConnection` ------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns what the socket reports under this name."""
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes) -> None:
        """Sends the response to a handshake."""
        if self._over:
            return
        if self._object is None:
            self._transport.write(data)
            return
        self._object.write(data)
        self._flush()

    def close(self) -> None:
        """Sends pending bytes, then closes."""
        self._over = True
        if self._is_open and self._object is not None:
            with contextlib.suppress(ssl.SSLError):  # the peer's side is open yet: nobody waits for it
                self._object.unwrap()
            self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Closes now."""
        self._over = True
        self._transport.abort()
