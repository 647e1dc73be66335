"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the server's side, as Kafka has it.

Pure: nonces and salts are arguments. Owns: what is stored of a password (`Credential`), and `ScramExchange`,
the two messages of a login. Invariants: the password itself is never here; all failures have one text for the
client; an unknown user fails last, and is shown a credential in the form of the stored ones with a salt that
is the same for as long as the secret is; comparisons take the same time. Kafka's limits: no channel binding,
no SASLprep, and extensions without a meaning here are ignored.
Source: Kafka's ScramSaslServer, ScramMessages and ScramFormatter, KIP-84.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lockstep.broker.security.sasl_exchange import Authenticated, AuthenticationFailed
from lockstep.protocol.scram import MECHANISMS as MECHANISMS
from lockstep.protocol.scram import MIN_ITERATIONS as MIN_ITERATIONS
from lockstep.protocol.scram import SHA_256 as SHA_256
from lockstep.protocol.scram import SHA_512 as SHA_512
from lockstep.protocol.scram import ScramMechanism as ScramMechanism
from lockstep.protocol.scram import salt_password as salt_password

MAX_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 16
_SASL_NAME: Final = r"(?:[^=,\x00]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE: Final = r"[^\x00,]+"
_EXTENSIONS: Final = rf"(?P<extensions>(?:,[A-Za-z]={_VALUE}|,[A-Za-z]+={_VALUE})*)"
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_SASL_NAME}))?,(?P<bare>(?:m=[^,]+,)?n=(?P<name>{_SASL_NAME}),"
    rf"r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),"
    r"p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_TOKEN_EXTENSION: Final = re.compile(r",tokenauth=true(?:,|$)", re.IGNORECASE)
_KAFKA_SALT: Final = re.compile(rb"[0-9a-z]{20,26}")
_KAFKA_SALT_BITS: Final = 130
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
_NO_BINDING: Final = "biws"
"""The header `n,,` in base64: no channel binding, no other identity."""


BY_NUMBER: Final = {each.number: each for each in (SHA_256, SHA_512)}


@dataclass(frozen=True)
class Credential:
    """The part of a user's password that is stored for one mechanism."""

    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_credential(mechanism: ScramMechanism, salt: bytes, salted: bytes, iterations: int) -> Credential:
    """The credential of a salted password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted, b"Server Key", mechanism.digest), iterations)


@dataclass(frozen=True)
class CredentialForm:
    """The part of a credential that each client sees; the default is that of delegation tokens."""

    iterations: int = MIN_ITERATIONS
    salt_bytes: int = SALT_BYTES
    """0: the salt is a number in base 36, as Kafka's tools make them."""


TOKEN_FORM: Final = CredentialForm()


def form_of(credential: Credential) -> CredentialForm:
    """The form of a stored credential."""
    is_kafkas = _KAFKA_SALT.fullmatch(credential.salt) is not None
    return CredentialForm(credential.iterations, 0 if is_kafkas else len(credential.salt))


@dataclass(frozen=True)
class TokenLogin:
    """A login by a delegation token: its credential, its owner's name, and its end in milliseconds since
    1970."""

    credential: Credential
    owner_name: str
    expires_ms: int


class ScramExchange:
    """One login.

    Args:
        credential_of: the credential of a user; None for an unknown user.
        nonce: the server's part of the nonce, printable and never the same.
        secret: for the salts of unknown users.
        token_of: the login by a delegation token, which a client names with the extension `tokenauth=true`.
        form: the form of the credentials of unknown users.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: Callable[[str], Credential | None],
        nonce: str,
        secret: bytes,
        token_of: Callable[[str], TokenLogin | None] = lambda token_id: None,
        form: CredentialForm = TOKEN_FORM,
    ) -> None:
        self._mechanism, self._credential_of, self._token_of = mechanism, credential_of, token_of
        self._kind = "user"
        self._token: TokenLogin | None = None
        self._server_nonce, self._secret, self._form = nonce, secret, form
        self._name = self._nonce = self._first_messages = ""
        self._credential: Credential | None = None

    def respond(self, token: bytes) -> bytes | Authenticated:
        """The response to the client's next message. Raises AuthenticationFailed."""
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("a message that is no text") from None
        return self._respond_last(message) if self._nonce else self._respond_first(message)

    def _respond_first(self, message: str) -> bytes:
        parsed = _CLIENT_FIRST.fullmatch(message)
        if parsed is None:
            raise AuthenticationFailed("the first message is not of the form n,,n=USER,r=NONCE")
        self._name = parsed["name"].replace("=2C", ",").replace("=3D", "=")
        authzid = parsed["authzid"]
        if authzid is not None and authzid != parsed["name"]:
            raise AuthenticationFailed(
                f"user {self._name} requests another identity",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        if _TOKEN_EXTENSION.search(parsed["extensions"]):
            self._kind, self._token, self._form = "delegation token", self._token_of(self._name), TOKEN_FORM
            self._credential = None if self._token is None else self._token.credential
        else:
            self._credential = self._credential_of(self._name)
        shown = self._credential or self._fake_credential()
        self._nonce = parsed["nonce"] + self._server_nonce
        salt = base64.b64encode(shown.salt).decode()
        response = f"r={self._nonce},s={salt},i={shown.iterations}"
        self._first_messages = f"{parsed['bare']},{response}"
        return response.encode()

    def _respond_last(self, message: str) -> Authenticated:
        parsed = _CLIENT_FINAL.fullmatch(message)
        if parsed is None or parsed["binding"] != _NO_BINDING:
            raise AuthenticationFailed("the last message is not of the form c=biws,r=NONCE,p=PROOF")
        if not hmac.compare_digest(parsed["nonce"], self._nonce):
            hint = _REPEATED_NONCE if parsed["nonce"].endswith(self._nonce) else ""
            raise AuthenticationFailed(f"user {self._name} repeats another nonce{hint}")
        try:
            proof = base64.b64decode(parsed["proof"], validate=True)
        except binascii.Error:
            raise AuthenticationFailed("the proof is not in base64") from None
        signed = f"{self._first_messages},{parsed['without_proof']}".encode()
        known = self._credential or self._fake_credential()
        digest = self._mechanism.digest
        signature = hmac.digest(known.stored_key, signed, digest)
        if len(proof) != len(signature):
            raise AuthenticationFailed(f"the proof of user {self._name} has another length")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        is_correct = hmac.compare_digest(hashlib.new(digest, client_key).digest(), known.stored_key)
        if self._credential is None:
            raise AuthenticationFailed(f"there is no {self._kind} {self._name} with {self._mechanism.name}")
        if not is_correct:
            raise AuthenticationFailed(f"the password of {self._kind} {self._name} is wrong")
        verifier = base64.b64encode(hmac.digest(known.server_key, signed, digest)).decode()
        last = f"v={verifier}".encode()
        if self._token is not None:
            return Authenticated(last, self._token.owner_name, self._token.expires_ms, is_token=True)
        return Authenticated(last, self._name)

    def _fake_credential(self) -> Credential:
        """The credential that an unknown user appears to have."""
        seed_text = "\0".join((self._mechanism.name, self._kind, self._name))
        salt = _salt(hmac.digest(self._secret, seed_text.encode(), "sha512"), self._form.salt_bytes)
        return salted_credential(self._mechanism, salt, self._secret, self._form.iterations)


def _salt(seed: bytes, salt_bytes: int) -> bytes:
    if salt_bytes:
        return hashlib.shake_256(seed).digest(salt_bytes)
    number, digits = int.from_bytes(seed, "big") % 2**_KAFKA_SALT_BITS, b""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit : digit + 1] + digits
    return digits


_REPEATED_NONCE: Final = ": its own part comes twice, as from librdkafka before 2.6.1; it needs a newer one"
