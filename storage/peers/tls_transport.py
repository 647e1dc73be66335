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
import ssl
from typing import Any, Final

from lockstep.protocol.tls_session import TlsSession
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
        self._session: TlsSession | None = None
        """None before the first byte."""
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
        if self._session is None:
            if received[0] != TLS_HANDSHAKE:
                self._take_plaintext(bytes(received[:nbytes]))
                return
            self._session = TlsSession(self._tls.server_context, server_side=True)
        self._session.feed(received[:nbytes])
        if self._session.is_open or self._do_handshake(self._session):
            self._decrypt(self._session)

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

    def _do_handshake(self, session: TlsSession) -> bool:
        """Returns whether the handshake is complete, and the peer a node of this cluster."""
        try:
            is_complete = session.do_handshake()
        except ssl.SSLError as error:
            self._flush(session)  # the alert, from which the peer knows the reason
            self._incoming.warn(describe_failure(error))
            self.close()
            return False
        self._flush(session)
        if not is_complete:
            return False
        try:
            identity = identity_in(session.certificate())
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

    def _decrypt(self, session: TlsSession) -> None:
        incoming = self._incoming
        while not self._over:
            try:
                count = session.fill(incoming.get_buffer(-1))
            except ssl.SSLError as error:
                incoming.warn(describe_failure(error))
                self.abort()
                return
            if count:
                incoming.buffer_updated(count)
            if session.has_ended:
                self.close()
            if session.needs_input:
                break
        self._flush(session)  # the response to a key update

    def _flush(self, session: TlsSession) -> None:
        if data := session.take():
            self._transport.write(data)

    # --- the transport of `IncomingConnection` ------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Returns what the socket reports under this name."""
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes) -> None:
        """Sends the response to a handshake."""
        if self._over:
            return
        if self._session is None:
            self._transport.write(data)
            return
        self._session.write(data)
        self._flush(self._session)

    def close(self) -> None:
        """Sends pending bytes, then closes."""
        self._over = True
        if self._session is not None and self._session.is_open:
            self._session.end()
            self._flush(self._session)
        self._transport.close()

    def abort(self) -> None:
        """Closes now."""
        self._over = True
        self._transport.abort()
