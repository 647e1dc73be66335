"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the part that both sides share, and the client's.

Pure: the nonce is an argument. Owns: the mechanisms, the salted password, and `ScramClient`, the two messages
of a login. Invariants: the broker proves that it has the password's credential, too; an error shows no
secret. Does not: prepare passwords (SASLprep), as Kafka does not. Source: Kafka's ScramSaslClient.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

MIN_ITERATIONS: Final = 4_096
MAX_CLIENT_ITERATIONS: Final = 1_000_000
"""LIMIT. A broker that requests more would keep its client busy for seconds."""
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]{1,9})(?:,.*)?"
)
_SERVER_FINAL: Final = re.compile(r"v=(?P<verifier>[A-Za-z0-9+/=]+)(?:,.*)?")


@dataclass(frozen=True)
class ScramMechanism:
    """One of Kafka's two mechanisms; `number` is its number in requests."""

    name: str
    digest: str
    number: int


SHA_256: Final = ScramMechanism("SCRAM-SHA-256", "sha256", 1)
SHA_512: Final = ScramMechanism("SCRAM-SHA-512", "sha512", 2)
MECHANISMS: Final = {each.name: each for each in (SHA_256, SHA_512)}


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password: slow on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.digest, password.encode(), salt, iterations)


class ScramFailed(ValueError):
    """The broker's message is none that a client accepts; the text names the reason."""


class ScramClient:
    """The client's side of one login.

    Args:
        nonce: the client's part, printable without commas and never the same.
        extensions: of the first message, as `tokenauth=true` of a delegation token.
    """

    def __init__(
        self, mechanism: ScramMechanism, username: str, password: str, nonce: str, extensions: str = ""
    ) -> None:
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}" + (f",{extensions}" if extensions else "")
        self._verifier = b""

    def first_message(self) -> bytes:
        """The message that begins the login."""
        return f"n,,{self._bare}".encode()

    def final_message(self, response: bytes) -> bytes:
        """The proof, for the broker's salt and nonce. Raises ScramFailed."""
        text = response.decode("utf-8", "replace")
        parsed = _SERVER_FIRST.fullmatch(text)
        if parsed is None:
            raise ScramFailed("the first response is not of the form r=NONCE,s=SALT,i=ITERATIONS")
        if not parsed["nonce"].startswith(self._nonce) or parsed["nonce"] == self._nonce:
            raise ScramFailed("the broker's nonce does not extend this client's")
        iterations = int(parsed["iterations"])
        if not MIN_ITERATIONS <= iterations <= MAX_CLIENT_ITERATIONS:
            raise ScramFailed(
                f"the broker requests {iterations} iterations, {MIN_ITERATIONS} to {MAX_CLIENT_ITERATIONS} "
                "are accepted"
            )
        salted = salt_password(self._mechanism, self._password, _decode(parsed["salt"]), iterations)
        digest = self._mechanism.digest
        without_proof = f"c=biws,r={parsed['nonce']}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._verifier = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, response: bytes) -> None:
        """Raises ScramFailed unless the broker has proved that it knows the credential."""
        parsed = _SERVER_FINAL.fullmatch(response.decode("utf-8", "replace"))
        if parsed is None or not self._verifier:
            raise ScramFailed("the last response is not of the form v=VERIFIER")
        if not hmac.compare_digest(_decode(parsed["verifier"]), self._verifier):
            raise ScramFailed("the broker has no proof of the credential: it is not the right broker")


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramFailed("a value in the broker's message is not in base64") from None
