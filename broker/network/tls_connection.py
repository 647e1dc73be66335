"""The TLS of one client's connection, between its socket and `Connection`, to which it is the transport.

Owns: the handshake, decryption into the connection's own buffer, encryption of its output, and the line in
the log with the reason of a failed handshake. Invariants: a connection counts in the limits of all
connections from its first byte on; it has a time for its handshake; `Connection` gets bytes only after the
handshake and after its principal is known; at most one read of encrypted bytes and two write buffers of
output are kept for it, whatever the client sends or does not read. Does not: know keys or certificates
(`broker/security/tls_context.py`), or what is sent.

The library is `ssl` with memory buffers, as asyncio and uvloop use it; theirs neither report a failed
handshake nor count a connection before it (decision 62).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, Final, Protocol

from lockstep.broker.network.connection import Connection
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.handshake_errors import describe_handshake_error, is_tls
from lockstep.broker.requests.kafka_principal import KafkaPrincipal
from lockstep.protocol.primitives import Buffer
from lockstep.protocol.tls_session import TlsSession, reason_of

HANDSHAKE_SECONDS: Final = 10.0
"""LIMIT. The time for a handshake; clients' own limits are some 10 to 30 s."""
READ_BYTES: Final = 128 * 1024
"""LIMIT. Encrypted bytes that are received at once."""
PIECE_BYTES: Final = 64 * 1024
"""Output that is encrypted at once: more would wait encrypted while the client does not read."""

received: Final = memoryview(bytearray(READ_BYTES))
"""The encrypted bytes of one read, of whichever connection: they are taken over at once."""


class Tls(Protocol):
    """The TLS of a listener, as `broker/security/tls_context.py` has it."""

    @property
    def name(self) -> str:
        """The listener's name."""

    @property
    def protocol(self) -> str:
        """The listener's security protocol."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context of connections that begin now."""

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The principal of a client, from its certificate in DER. Raises an exception with the reason why
        there is none."""


class TlsConnection(asyncio.BufferedProtocol):
    """One client's TLS. Args: connection: gets what the client sends, decrypted."""

    __slots__ = (
        "_closing",
        "_connection",
        "_connection_paused",
        "_decrypting",
        "_is_open",
        "_max_unsent",
        "_output",
        "_output_bytes",
        "_reading",
        "_received_bytes",
        "_session",
        "_shared",
        "_timeout",
        "_tls",
        "_transport",
        "_writable",
    )

    def __init__(self, shared: Connections, tls: Tls, connection: Connection) -> None:
        self._shared, self._tls, self._connection = shared, tls, connection
        self._session = TlsSession(tls.context, server_side=True)
        self._output: deque[memoryview] = deque()
        """Output that is not encrypted yet."""
        self._output_bytes = 0
        self._max_unsent = 0
        self._is_open = False
        """True after the handshake, with a principal."""
        self._reading = True
        self._decrypting = False
        self._writable = True
        self._connection_paused = False
        """True while the transport has paused the connection's writing."""
        self._closing = False
        self._received_bytes = 0
        self._timeout: asyncio.TimerHandle | None = None
        self._transport: Any = None

    # --- the socket's side --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._timeout = self._shared.loop.call_later(HANDSHAKE_SECONDS, self._on_timeout)
        self._connection.connection_made(self)  # type: ignore[arg-type]

    def get_buffer(self, sizehint: int) -> memoryview:
        return received

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing:
            return
        self._session.feed(received[:nbytes])
        if self._is_open:
            self._decrypt()
            return
        first = self._received_bytes == 0
        self._received_bytes += nbytes
        if first and not is_tls(bytes(received[:5])):
            self._fail(
                f"a client without TLS: it needs security.protocol={self._tls.protocol} here, or another port"
            )
        else:
            self._do_handshake()

    def eof_received(self) -> bool:
        if not self._is_open and self._received_bytes and not self._closing:
            self._fail("the client ended the TLS handshake; if each time, it does not trust the broker")
        return False

    def pause_writing(self) -> None:
        self._writable = False
        self._update_write_pause()

    def resume_writing(self) -> None:
        self._writable = True
        self._encrypt()
        self._update_write_pause()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_timeout()
        if not self._is_open and self._received_bytes and not self._closing:
            self._log("the client broke off the TLS handshake")
        self._closing = True
        self._output.clear()
        self._output_bytes = 0
        connection = self._connection
        del self._connection  # it has this one as its transport: the garbage collector would be left a cycle
        connection.connection_lost(exc)

    # --- the handshake ------------------------------------------------------------------------------------

    def _do_handshake(self) -> None:
        try:
            is_complete = self._session.do_handshake()
        except ssl.SSLError as error:
            self._flush()  # the alert, from which the client knows the reason
            self._fail(describe_handshake_error(error))
            return
        self._flush()
        if not is_complete:
            return
        self._end_timeout()
        try:
            self._connection.context.principal = self._tls.principal_of(self._session.certificate_der())
        except Exception as error:
            self._fail(str(error))
            return
        self._is_open = True
        self._decrypt()

    def _on_timeout(self) -> None:
        self._timeout = None
        if self._received_bytes:
            self._log(f"no TLS handshake within {HANDSHAKE_SECONDS:.0f} s")
        self.abort()

    def _end_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None

    def _fail(self, text: str) -> None:
        self._log(text)
        self._closing = True
        self._end_timeout()
        self._connection.close()
        self._transport.close()

    def _log(self, text: str) -> None:
        line = f"listener {self._tls.name}: {text}"
        self._shared.log_client_error(self._connection.context.peer, line, key=line)
        self._shared.failed_authentications += 1

    # --- decryption ---------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Give the connection what is decrypted, as long as it reads."""
        if self._decrypting:
            return
        self._decrypting = True
        connection, session = self._connection, self._session
        try:
            while self._reading and not self._closing:
                try:
                    count = session.fill(connection.get_buffer(-1))
                except ssl.SSLError as error:
                    self._log(f"a TLS record cannot be read: {reason_of(error)}")
                    self.abort()
                    return
                if count:
                    connection.buffer_updated(count)
                if session.has_ended:
                    self.close()
                if session.needs_input:
                    break
        finally:
            self._decrypting = False
        if data := session.take():  # the response to a key update
            self._transport.write(data)

    def _read_on(self) -> None:
        """Continue with bytes that were received before a pause, then read again."""
        if self._reading and not self._closing:
            self._decrypt()
        if self._reading and not self._closing:
            self._transport.resume_reading()

    # --- encryption ---------------------------------------------------------------------------------------

    def _encrypt(self) -> None:
        """Encrypt output as far as the socket takes it."""
        output, send = self._output, self._session.write
        while output and self._writable:
            piece = output[0]
            sent = send(piece[:PIECE_BYTES])
            self._output_bytes -= sent
            if sent == len(piece):
                output.popleft()
            else:
                output[0] = piece[sent:]
            self._flush()
        if not output and self._closing:
            self._end()

    def _flush(self) -> None:
        if data := self._session.take():
            self._transport.write(data)

    def _update_write_pause(self) -> None:
        """Notify the connection whether it may write."""
        unsent = self.get_write_buffer_size()
        if not self._connection_paused and unsent > self._max_unsent:
            self._connection_paused = True
            self._connection.pause_writing()
        elif self._connection_paused and unsent <= self._max_unsent // 4:
            self._connection_paused = False
            self._connection.resume_writing()

    def _end(self) -> None:
        """All output is encrypted: close the socket after it."""
        if self._is_open:
            self._session.end()
            self._flush()
        self._transport.close()

    # --- the transport of `Connection` --------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket reports under this name, and what is received and not decrypted."""
        if name == "undecrypted_bytes":
            return self._session.undecrypted_bytes
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int) -> None:
        """Set the unsent bytes from which the connection stops writing."""
        self._max_unsent = high
        self._transport.set_write_buffer_limits(high=high)

    def get_write_buffer_size(self) -> int:
        """Return the unsent bytes, encrypted or not."""
        size: int = self._transport.get_write_buffer_size()
        return size + self._output_bytes

    def write(self, data: Buffer) -> None:
        """Send output."""
        self.writelines([data])

    def writelines(self, pieces: list[Buffer]) -> None:
        """Send output in pieces."""
        if self._closing:
            return
        for each in pieces:
            self._output.append(memoryview(each))
            self._output_bytes += len(each)
        self._encrypt()
        self._update_write_pause()

    def pause_reading(self) -> None:
        """Stops passing received bytes to the connection."""
        self._reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Passes received bytes to the connection again, from the next iteration on."""
        self._reading = True
        self._shared.loop.call_soon(self._read_on)

    def close(self) -> None:
        """Close the connection after its output."""
        if self._closing:
            return
        self._closing = True
        self._end_timeout()
        if not self._output:
            self._end()

    def abort(self) -> None:
        """Close the connection now."""
        self._closing = True
        self._end_timeout()
        self._transport.abort()
