"""The keys of TLS between a player and its targets, for gRPC: one form for both sides.

Invariants: a file that cannot be read is an OSError with its name; keys that do not fit are a ValueError that
shows none of them. Both sides check each other where both name a certificate and whom they trust.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of one side.

    Args:
        trusted: the CAs of the other side. A player without it trusts the system's; a target without
            it takes players without a certificate.
        certificate: its own, with those of its issuers; a target needs one.
        key: its private key, without a password; empty: it is in the file of the certificate.
    """

    trusted: str = ""
    certificate: str = ""
    key: str = ""

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """A player's. Raises OSError, ValueError."""
        import grpc

        trusted, key, certificate = self._read()
        return grpc.ssl_channel_credentials(trusted, key, certificate)

    def server_credentials(self) -> grpc.ServerCredentials:
        """A target's. Raises OSError, ValueError."""
        import grpc

        trusted, key, certificate = self._read()
        if key is None or certificate is None:
            raise ValueError("a target needs a certificate for TLS")
        return grpc.ssl_server_credentials([(key, certificate)], trusted, trusted is not None)

    def _read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Trusted certificates, key and own certificates. gRPC itself names no reason for wrong ones."""
        trusted = Path(self.trusted).read_bytes() if self.trusted else None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if trusted is not None:
            try:
                context.load_verify_locations(cadata=trusted.decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError):
                raise ValueError(f"{self.trusted}: no certificate can be read from it") from None
        if not self.certificate:
            if self.key:
                raise ValueError(f"{self.key}: a key needs its certificate")
            return trusted, None, None
        certificate = Path(self.certificate).read_bytes()
        key = Path(self.key).read_bytes() if self.key else certificate
        try:
            context.load_cert_chain(self.certificate, self.key or None, password=lambda: "")
        except (ssl.SSLError, ValueError):
            problem = "no certificate with its private key, without a password, can be read"
            raise ValueError(f"{self.key or self.certificate}: {problem}") from None
        return trusted, key, certificate
