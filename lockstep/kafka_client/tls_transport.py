"""The TLS of one connection to a broker, for asyncio: between the socket and the connection's own protocol,
to which it is the transport; and what a failed handshake means, also for connections that block.

Owns: the handshake, decryption into the protocol's buffer, encryption of its output. Invariants: the protocol
gets bytes only after the handshake; what it has been told to be written is with the socket's transport when
`write` returns, so that a pause in writing means the same with TLS as without. Does not: know certificates
(`security`) or requests.

The library is `ssl` with memory buffers, as in asyncio's and uvloop's own transports: those keep encrypted
output of which the protocol is told nothing, so that no one could wait until a record has left.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final, Protocol, cast

from lockstep.protocol.client_errors import (
    AuthenticationError,
    ClientError,
    ConnectionFailed,
    ListenerMismatch,
    describe_socket_error,
)
from lockstep.protocol.primitives import Buffer
from lockstep.protocol.tls_session import TlsSession, failure_of

_READ_BYTES: Final = 128 * 1024
_received: Final = memoryview(bytearray(_READ_BYTES))
"""The encrypted bytes of one read, of whichever connection: they are taken over at once."""
_WRONG_NAME: Final = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


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

    # --- within -------------------------------------------------------------------------------------------

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


def tls_failure(peer: str, error: OSError) -> ClientError:
    """The error for a handshake that failed, or for TLS's alert after it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _WRONG_NAME:
            hint = "use a name that it has, or see ssl.endpoint.identification.algorithm"
        elif "expired" in error.verify_message or "not yet valid" in error.verify_message:
            hint = "the broker needs a new one"
        else:
            hint = "set ssl.truststore.location to the authority that issued it"
        return AuthenticationError(
            f"{peer}: the broker's certificate is not accepted: {error.verify_message.rstrip('.')}; {hint}"
        )
    if isinstance(error, ssl.SSLEOFError | ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return handshake_failure(peer)
    if isinstance(error, ssl.SSLError):
        failure = failure_of(error)
        reason = failure.words
        if "wrong version number" in reason:
            return ListenerMismatch(f"{peer} does not speak TLS: see security.protocol")
        if failure.is_alert:
            hint = "; see ssl.keystore.location" if "certificate" in reason or "unknown ca" in reason else ""
            return AuthenticationError(f"{peer} ended TLS: {reason}{hint}")
        return AuthenticationError(f"{peer}: TLS failed: {reason}")
    return ConnectionFailed(f"cannot connect to {peer}: {describe_socket_error(error)}")


def handshake_failure(peer: str) -> ListenerMismatch:
    """The error for a peer that closes during the handshake."""
    return ListenerMismatch(
        f"cannot connect to {peer}: it ended the TLS handshake, as a listener without TLS does: see "
        "security.protocol"
    )


def mismatch_failure(peer: str, protocol: str) -> ListenerMismatch:
    """The error for a peer that closes at the first request but for its versions."""
    return ListenerMismatch(
        f"{peer} closed the connection at the first request, as a listener of another security.protocol than "
        f"{protocol} does; its log has the reason"
    )
