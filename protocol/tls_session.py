"""The TLS of one connection without its socket: ciphertext goes in, plaintext comes out, and the reverse.

Owns: `TlsSession`, the library `ssl` over memory buffers, and why TLS failed, as OpenSSL names it.
Invariants: nothing waits, and nothing is sent: the caller, which has the socket, gives what it receives to
`feed`, and sends what `take` returns after each call that may have made some. Does not: know keys or
certificates, limit anything, or put a failure into a sentence, which differs between clients and brokers.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from lockstep.protocol.primitives import Buffer

_ALERT: Final = "_ALERT_"


class TlsSession:
    """See the module. Args: server_hostname: the name that the certificate of a server has to have."""

    __slots__ = (
        "_pending",
        "_read",
        "_received",
        "_tls",
        "feed",
        "has_ended",
        "is_open",
        "needs_input",
        "take",
        "write",
    )

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None
    ) -> None:
        received, unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._received = received
        self._tls = context.wrap_bio(received, unsent, server_side, server_hostname)
        # The library's own methods: each record passes through some of them.
        self._read: Callable[..., Any] = self._tls.read
        self._pending = self._tls.pending
        self.feed: Callable[[Buffer], int] = received.write
        """Takes over ciphertext from the peer."""
        self.take: Callable[[], bytes] = unsent.read
        """Returns ciphertext for the peer; empty for none."""
        self.write: Callable[[Buffer], int] = self._tls.write
        """Encrypts plaintext, and returns how many bytes of it. Raises ssl.SSLError."""
        self.is_open = False
        """True after the handshake."""
        self.needs_input = False
        """True where the last `fill` left nothing to decrypt."""
        self.has_ended = False
        """True where the last `fill` reached the peer's close of TLS."""

    @property
    def undecrypted_bytes(self) -> int:
        """Bytes that are received, and not given out as plaintext."""
        return self._received.pending + self._tls.pending()

    # --- the handshake ------------------------------------------------------------------------------------

    def do_handshake(self) -> bool:
        """Returns whether the handshake is complete, which until then needs more from the peer.

        Raises ssl.SSLError; `take` then has the alert from which the peer knows the reason.
        """
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_open = True
        return True

    def certificate(self) -> Mapping[str, Any] | None:
        """Returns the peer's verified certificate as `ssl` parses it; None where it has shown none."""
        return self._tls.getpeercert()

    def certificate_der(self) -> bytes | None:
        """Returns the peer's certificate in DER; None where it has shown none."""
        return self._tls.getpeercert(True)

    # --- plaintext ----------------------------------------------------------------------------------------

    def read(self, count: int) -> bytes | None:
        """Returns the plaintext of at most one record; empty at the end; None before more comes. Raises
        ssl.SSLError."""
        try:
            return self._tls.read(count)
        except ssl.SSLWantReadError:
            return None

    def read_into(self, buffer: memoryview) -> int | None:
        """Same as `read`; returns the number of bytes."""
        try:
            return self._tls.read(len(buffer), buffer)  # type: ignore[return-value]  # it knows bytes alone
        except ssl.SSLWantReadError:
            return None

    def fill(self, buffer: memoryview) -> int:
        """Decrypts what there is as far as the buffer has room, and returns the number of bytes;
        `needs_input` and `has_ended` have the reason where it has more. Raises ssl.SSLError."""
        read, pending, received = self._read, self._pending, self._received
        size = len(buffer)
        count = 0
        self.needs_input = self.has_ended = False
        try:
            while count < size:
                part: int = read(size - count, buffer[count:] if count else buffer)
                if not part:
                    self.has_ended = True
                    break
                count += part
                if not received.pending and not pending():  # an exception would cost more
                    self.needs_input = True
                    break
        except ssl.SSLWantReadError:
            self.needs_input = True
        return count

    def end(self) -> None:
        """Puts the end of TLS behind what was written. The peer's own end is not waited for."""
        with contextlib.suppress(ssl.SSLError):
            self._tls.unwrap()


class TlsFailure(NamedTuple):
    """The reason why TLS failed."""

    reason: str
    """OpenSSL's name, as UNKNOWN_CA, or the error's text."""
    is_alert: bool
    """True where the peer has ended TLS, and sent the reason."""

    @property
    def words(self) -> str:
        """The reason as words."""
        return self.reason.replace("_", " ").lower()


def failure_of(error: ssl.SSLError) -> TlsFailure:
    """The reason of an error, without what begins the name of an alert."""
    text = reason_of(error)
    return TlsFailure(text.rpartition(_ALERT)[2], _ALERT in text)


def reason_of(error: ssl.SSLError) -> str:
    """OpenSSL's whole name of the reason, or the error's text."""
    reason: str | None = getattr(error, "reason", None)
    return reason or str(error)
