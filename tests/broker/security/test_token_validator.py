"""Which tokens are accepted: their signature, their claims, their times."""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc.jwk import ECKey, RSAKey

from lockstep.broker.security.oauthbearer import InvalidToken, ValidToken
from lockstep.broker.security.token_validator import (
    LAST_SECOND,
    MAX_KEYS,
    MAX_KEYS_TRIED,
    MalformedKeys,
    TokenKey,
    TokenRules,
    TokenValidator,
    parse_keys,
)
from tests.support.cases import each_case
from tests.support.tokens import AUDIENCE, EC, ISSUER, NOW, RSA, claims, jwks, signed, unsigned

RULES = TokenRules((AUDIENCE, "other"), ISSUER)
ALICE = ValidToken("alice", (NOW + 60) * 1000)
STRANGER = RSAKey.generate_key(2_048, {"kid": "rsa"})


class Keys:
    """The known keys, and how often a refresh was requested."""

    def __init__(self, *keys: RSAKey | ECKey) -> None:
        self.known: tuple[TokenKey, ...] = parse_keys(jwks(*keys))
        self.requested = 0

    def request_refresh(self) -> None:
        self.requested += 1


def validate(token: str, rules: TokenRules = RULES, keys: Keys | None = None, now: int = NOW) -> ValidToken:
    used = Keys() if keys is None else keys
    return TokenValidator(rules, lambda: used.known, used.request_refresh, lambda: now).validate(token)


def test_both_algorithms() -> None:
    assert validate(signed(claims())) == ALICE
    assert validate(signed(claims(), EC, "ES256")) == ALICE


@each_case(
    "changed",
    [
        {"aud": ["a", "other"]},
        {"nbf": NOW + 30},
        {"iat": NOW + 3_000},
        {"scope": 7},
        {"scope": "read write"},
        {"scope": ["read", "write"]},
        {"exp": NOW + 60.0},
    ],
)
def test_claims_that_are_accepted(changed: dict[str, Any]) -> None:
    assert validate(signed(claims(**changed))) == ALICE


@each_case(
    ("changed", "reason"),
    [
        ({"iss": "https://other.example"}, "iss"),
        ({"iss": None}, "iss"),
        ({"aud": "elsewhere"}, "aud"),
        ({"aud": []}, "aud"),
        ({"aud": None}, "aud"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": NOW}, "it has expired"),
        ({"exp": None}, "exp"),
        ({"exp": "tomorrow"}, "exp"),
        ({"exp": True}, "exp"),
        ({"iat": None}, "iat"),
        ({"iat": "now"}, "iat"),
        ({"iat": True}, "iat"),
        ({"nbf": NOW + 31}, "not yet valid"),
        ({"sub": None}, "its claim sub is no text"),
        ({"sub": " "}, "its claim sub is no text"),
        ({"sub": "a" * 251}, "its claim sub is no text"),
        ({"sub": ["alice"]}, "sub"),
        ({"scope": ""}, "its claim scope has an empty, equal or other item"),
        ({"scope": ["read", ""]}, "its claim scope has an empty, equal or other item"),
        ({"scope": ["read", "read"]}, "its claim scope has an empty, equal or other item"),
        ({"scope": ["read", {}]}, "its claim scope has an empty, equal or other item"),
    ],
)
def test_claims_that_are_rejected(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidToken, match=f"^a token is rejected: .*{reason}"):
        validate(signed(claims(**changed)))


def test_a_token_that_never_ends() -> None:
    assert validate(signed(claims(exp=1e308))).expires_ms == LAST_SECOND * 1000


def test_the_skew_of_clocks() -> None:
    token = signed(claims(nbf=NOW + 1))
    assert validate(token) == ALICE
    with pytest.raises(InvalidToken, match="not yet valid"):
        validate(token, TokenRules((AUDIENCE,), ISSUER, skew_seconds=0))


def test_claims_under_other_names_and_no_expectations() -> None:
    rules = TokenRules(name_claim="client_id", scope_claim="scp")
    token = signed(claims(client_id=" app ", scp=["x"], iss=None, aud="anybody"))
    assert validate(token, rules).name == "app"


def test_a_signature_of_another_key() -> None:
    with pytest.raises(InvalidToken, match="bad_signature"):
        validate(signed(claims(), STRANGER))


def test_claims_that_were_changed_after_the_signature() -> None:
    head, _, signature = signed(claims()).split(".")
    forged = unsigned(claims(sub="admin")).split(".")[1]
    with pytest.raises(InvalidToken, match="bad_signature"):
        validate(f"{head}.{forged}.{signature}")


def test_an_unknown_key_lets_keys_be_fetched() -> None:
    keys = Keys(EC)
    with pytest.raises(InvalidToken, match="its key 'rsa' for RS256 is not among the 1 known"):
        validate(signed(claims()), keys=keys)
    assert keys.requested == 1
    keys.known = parse_keys(jwks())
    assert validate(signed(claims()), keys=keys) == ALICE and keys.requested == 1


def test_a_token_without_key_id_is_tried_with_the_first_keys_of_its_algorithm() -> None:
    assert validate(signed(claims(), kid=None), keys=Keys(STRANGER, RSA, EC)) == ALICE
    with pytest.raises(InvalidToken, match="bad_signature"):
        validate(signed(claims(), kid=None), keys=Keys(STRANGER, EC))


def test_keys_after_the_first_four_are_not_tried() -> None:
    few = Keys(EC, STRANGER, STRANGER, STRANGER, RSA)
    for key_id in (None, "rsa"):
        assert validate(signed(claims(), kid=key_id), keys=few) == ALICE
        with pytest.raises(InvalidToken, match="a token is rejected: bad_signature"):
            validate(signed(claims(), kid=key_id), keys=Keys(*[STRANGER] * MAX_KEYS_TRIED, RSA))


def test_a_key_never_verifies_by_another_algorithm() -> None:
    with pytest.raises(InvalidToken, match="its key 'rsa' for ES256 is not among the 2 known"):
        validate(signed(claims(), EC, "ES256", kid="rsa"))


def test_a_public_key_is_no_shared_secret() -> None:
    head, body = unsigned(claims(), "HS256").split(".")[:2]
    digest = hmac.digest(RSA.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    signature = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    with pytest.raises(InvalidToken, match="its algorithm is 'HS256', not RS256 or ES256"):
        validate(f"{head}.{body}.{signature}")


@each_case("algorithm", ["none", "None", "NONE", ""])
def test_an_unsigned_token(algorithm: str) -> None:
    token = unsigned(claims(), algorithm)
    with pytest.raises(InvalidToken, match="its algorithm is"):
        validate(token)
    switched = TokenRules((AUDIENCE,), ISSUER, accepts_unsigned=True)
    if algorithm == "none":
        assert validate(token, switched) == ALICE
        with pytest.raises(InvalidToken, match="expired"):
            validate(unsigned(claims(exp=NOW - 60)), switched)
    else:
        with pytest.raises(InvalidToken):
            validate(token, switched)
    with pytest.raises(InvalidToken, match="bad_signature"):
        validate(signed(claims(), STRANGER), switched)


@each_case("token", ["", "a", "a.b", "..", "a.b.c", "a.b.c.d", "e30.e30.e30", "W10.e30.", "ew.e30."])
def test_texts_that_are_no_token(token: str) -> None:
    with pytest.raises(InvalidToken, match=r"^a token is rejected: "):
        validate(token)


def test_claims_that_are_no_object() -> None:
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none"}).encode()).rstrip(b"=").decode()
    with pytest.raises(InvalidToken):
        validate(f"{head}.W10.", TokenRules(accepts_unsigned=True))


@pytest.mark.filterwarnings("ignore:Key size")
def test_keys_that_cannot_verify_tokens_do_not_count() -> None:
    rsa, ec = jwks()["keys"]
    strangers = [
        {**rsa, "use": "enc"},
        {**rsa, "alg": "RS512"},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "later"},
        RSAKey.generate_key(1_024).as_dict(private=False),
        ECKey.generate_key("P-384").as_dict(private=False),
        "text",
        {"kty": "RSA"},
    ]
    found = parse_keys({"keys": [*strangers, rsa, {**ec, "use": "sig", "alg": "ES256"}]})
    assert [(each.key_id, each.algorithm) for each in found] == [("rsa", "RS256"), ("ec", "ES256")]
    with pytest.raises(MalformedKeys, match=r"no key for RS256 .* among 8"):
        parse_keys({"keys": strangers})


@each_case("data", [None, [], {}, {"keys": {}}, {"keys": []}, {"keys": [{}] * (MAX_KEYS + 1)}])
def test_texts_that_are_no_list_of_keys(data: Any) -> None:
    with pytest.raises(MalformedKeys):
        parse_keys(data)


def test_a_token_of_other_characters() -> None:
    head, body, signature = signed(claims()).split(".")
    with pytest.raises(InvalidToken, match=r"^a token is rejected: "):
        validate(f"{head}.{body}.{signature[:-1]}\u00e9")
