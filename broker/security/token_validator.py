"""Tokens (JWT, RFC 7519) and whether they are accepted: by signature, claims and times.

Pure: keys and time are arguments. Owns: `TokenRules` and `TokenValidator`. Invariants: no algorithm but RS256
and ES256 is verified, and none is taken from a key of another kind; a token without a signature is accepted
under `TokenRules.accepts_unsigned` alone. Does not: fetch keys (`token_keys.py`).
Source: Kafka's BrokerJwtValidator and ClaimValidationUtils, compared token by token with Apache Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jws, jwt
from joserfc.errors import InvalidClaimError, JoseError
from joserfc.jwk import ECKey, JWKRegistry, Key, RSAKey
from joserfc.util import json_b64decode

from lockstep.broker.security.oauthbearer import InvalidToken, ValidToken

RS256: Final = "RS256"
ES256: Final = "ES256"
UNSIGNED: Final = "none"
MIN_RSA_BITS: Final = 2_048
MAX_KEYS: Final = 100
"""LIMIT. Keys of an issuer."""
MAX_KEYS_TRIED: Final = 4
"""LIMIT. Keys, the first ones of the issuer's list, with which the signature of a token is verified."""
MAX_NAME_CHARACTERS: Final = 250
"""LIMIT. Characters of a principal's name, as of a SCRAM user's."""
LAST_SECOND: Final = 2**53
"""A token that ends later ends then."""
_PARTS: Final = 3


@dataclass(frozen=True)
class TokenRules:
    """The expectations of a listener; an empty audience or issuer is any."""

    audiences: Collection[str] = ()
    issuer: str = ""
    skew_seconds: int = 30
    name_claim: str = "sub"
    scope_claim: str = "scope"
    accepts_unsigned: bool = False


class MalformedKeys(ValueError):
    """A text has no usable keys."""


@dataclass(frozen=True)
class TokenKey:
    """A public key that tokens are signed with."""

    key_id: str | None
    algorithm: str
    key: Key


def parse_keys(data: Any) -> tuple[TokenKey, ...]:
    """The keys of a JWKS (RFC 7517) that can verify tokens; others do not count. Raises MalformedKeys."""
    entries = data.get("keys") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise MalformedKeys("no JWKS: a JSON object with a list of keys is needed")
    if len(entries) > MAX_KEYS:
        raise MalformedKeys(f"{len(entries)} keys, at most {MAX_KEYS}")
    keys = [key for key in map(_parse_key, entries) if key is not None]
    if not keys:
        raise MalformedKeys(
            f"no key for {RS256} (of {MIN_RSA_BITS} bits at least) or {ES256} among {len(entries)}"
        )
    return tuple(keys)


def _parse_key(entry: Any) -> TokenKey | None:
    if not isinstance(entry, dict) or entry.get("kty") not in ("RSA", "EC"):
        return None
    if entry.get("use", "sig") != "sig":
        return None
    try:
        key = JWKRegistry.import_key(entry)
    except (JoseError, TypeError, ValueError, LookupError):
        return None
    if isinstance(key, RSAKey) and key.public_key.key_size >= MIN_RSA_BITS:
        algorithm = RS256
    elif isinstance(key, ECKey) and key.public_key.curve.name == "secp256r1":
        algorithm = ES256
    else:
        return None
    if entry.get("alg", algorithm) != algorithm:
        return None
    key_id = entry.get("kid")
    return TokenKey(key_id if isinstance(key_id, str) else None, algorithm, key)


class TokenValidator:
    """See the module.

    Args:
        keys: those that are known now.
        on_unknown_key: called for a token with a key that is not among them.
        now_seconds: the time of day.
    """

    def __init__(
        self,
        rules: TokenRules,
        keys: Callable[[], Sequence[TokenKey]],
        on_unknown_key: Callable[[], None],
        now_seconds: Callable[[], int],
    ) -> None:
        self._rules, self._keys, self._on_unknown_key = rules, keys, on_unknown_key
        claims: dict[str, jwt.ClaimsOption] = {"exp": {"essential": True}, "iat": {"essential": True}}
        if rules.issuer:
            claims["iss"] = {"essential": True, "value": rules.issuer}
        if rules.audiences:
            claims["aud"] = {"essential": True, "values": list(rules.audiences)}
        self._now_seconds = now_seconds
        self._claims = _Claims(now=now_seconds, leeway=rules.skew_seconds, **claims)

    def validate(self, token: str) -> ValidToken:
        """The user of a token. Raises InvalidToken."""
        try:
            claims = self._verify(token)
            self._claims.validate(claims)
        except JoseError as error:
            raise InvalidToken(f"a token is rejected: {error}") from None
        except (ValueError, TypeError, RecursionError):
            raise InvalidToken("a token is rejected: it is no JWT") from None
        name, scope = claims.get(self._rules.name_claim), claims.get(self._rules.scope_claim)
        if not isinstance(name, str) or not 0 < len(name.strip()) <= len(name) <= MAX_NAME_CHARACTERS:
            raise InvalidToken(
                f"a token is rejected: its claim {self._rules.name_claim} is no text of 1 to "
                f"{MAX_NAME_CHARACTERS} characters"
            )
        scopes = scope if isinstance(scope, list) else [scope] if isinstance(scope, str) else []
        if not all(isinstance(each, str) and each.strip() for each in scopes) or len({*scopes}) < len(scopes):
            raise InvalidToken(
                f"a token is rejected: its claim {self._rules.scope_claim} has an empty, equal or other item"
            )
        if claims["exp"] <= self._now_seconds():
            raise InvalidToken("a token is rejected: it has expired")
        return ValidToken(name.strip(), int(min(claims["exp"], LAST_SECOND) * 1000))

    def _verify(self, token: str) -> dict[str, Any]:
        """The claims of a token whose signature is right. Raises InvalidToken, JoseError, ValueError."""
        parts = token.split(".")
        if len(parts) != _PARTS:
            raise InvalidToken("a token is rejected: it is no signed JWT")
        if not token.isascii():
            raise ValueError("other characters than those of base64")
        header = _decode_object(parts[0])
        algorithm, key_id = header.get("alg"), header.get("kid")
        if self._rules.accepts_unsigned and algorithm == UNSIGNED and not parts[2]:
            return _decode_object(parts[1])
        if algorithm not in (RS256, ES256):
            raise InvalidToken(f"a token is rejected: its algorithm is {algorithm!r}, not {RS256} or {ES256}")
        known = self._keys()
        fitting = [each for each in known if each.algorithm == algorithm and key_id in (None, each.key_id)]
        if not fitting:
            self._on_unknown_key()
            raise InvalidToken(
                f"a token is rejected: its key {key_id!r} for {algorithm} is not among the {len(known)} known"
            )
        tried = fitting[:MAX_KEYS_TRIED]
        for each in tried[:-1]:
            try:
                return jwt.decode(token, each.key, [algorithm], _LENGTHS).claims
            except JoseError:
                continue
        return jwt.decode(token, tried[-1].key, [algorithm], _LENGTHS).claims


def _decode_object(part: str) -> dict[str, Any]:
    """A part of a token. Raises ValueError."""
    decoded = json_b64decode(part.encode())
    if not isinstance(decoded, dict):
        raise ValueError("no JSON object")
    return decoded


class _Claims(jwt.JWTClaimsRegistry):
    """Kafka's view of the times: a token may be issued in the future."""

    def validate_iat(self, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidClaimError("iat")


class _Lengths(jws.JWSRegistry):
    """Lengths of the parts of a token; the message around it has a limit of its own."""

    max_header_length = 8_192


_LENGTHS: Final = _Lengths()
