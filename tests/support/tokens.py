"""Signed tokens (JWT) for tests, with the list of keys that their issuer publishes."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

NOW: Final = 1_700_000_000
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "lockstep"
RSA: Final = RSAKey.generate_key(2_048, {"kid": "rsa"})
EC: Final = ECKey.generate_key("P-256", {"kid": "ec"})


def jwks(*keys: RSAKey | ECKey) -> dict[str, Any]:
    """The list of keys that an issuer publishes."""
    return {"keys": [each.as_dict(private=False) for each in keys or (RSA, EC)]}


def claims(now: int = NOW, **changed: Any) -> dict[str, Any]:
    """The claims of a good token; None leaves one out."""
    good = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 60, **changed}
    return {name: each for name, each in good.items() if each is not None}


def signed(
    content: dict[str, Any], key: RSAKey | ECKey = RSA, algorithm: str = "RS256", **header: Any
) -> str:
    """A signed token."""
    shown = {"alg": algorithm, "kid": key.kid, **header}
    shown = {name: each for name, each in shown.items() if each is not None}
    return jwt.encode(shown, content, key, algorithms=[algorithm])


def unsigned(content: dict[str, Any], algorithm: str = "none") -> str:
    """A token that nobody signed."""
    parts = ({"alg": algorithm}, content)
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts]
    return f"{'.'.join(encoded)}."


def first_message(token: str, authzid: str = "") -> bytes:
    """A client's first message of OAUTHBEARER."""
    identity = f"a={authzid}" if authzid else ""
    return f"n,{identity},\x01auth=Bearer {token}\x01\x01".encode()
