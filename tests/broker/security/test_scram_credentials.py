"""The stored SCRAM credentials, and the form that most of them have."""

from __future__ import annotations

from lockstep.broker.security.scram import TOKEN_FORM, Credential, CredentialForm
from lockstep.broker.security.scram_credentials import ScramCredentials


def credential(iterations: int, salt: bytes = b"16 bytes of salt") -> Credential:
    return Credential(salt, b"", b"", iterations)


def test_credentials_are_put_replaced_and_removed() -> None:
    stored = ScramCredentials()
    stored.put("ONE", "alice", credential(4_096))
    stored.put("ONE", "bob", credential(4_096))
    stored.put("ONE", "alice", credential(8_192))
    stored.put("TWO", "nobody", None)
    assert list(stored) == [("ONE", "bob"), ("ONE", "alice")]
    assert stored == {("ONE", "bob"): credential(4_096), ("ONE", "alice"): credential(8_192)}
    stored.put("ONE", "bob", None)
    stored.secret = b"s"
    assert len(stored) == 1 and stored["ONE", "alice"] == credential(8_192)
    stored.clear()
    assert len(stored) == 0 and stored.secret == b"" and stored.usual_form("ONE") == TOKEN_FORM


def test_the_usual_form_is_that_of_most_users_of_a_mechanism() -> None:
    stored = ScramCredentials()
    assert stored.usual_form("ONE") == TOKEN_FORM
    stored.put("ONE", "alice", credential(8_192, b"1k2j3h4g5f6d7s8a9p0o1i2u3"))
    assert stored.usual_form("ONE") == CredentialForm(8_192, 0) and stored.usual_form("TWO") == TOKEN_FORM
    for each in range(2):
        stored.put("ONE", f"user {each}", credential(16_384, b"s"))
    assert stored.usual_form("ONE") == CredentialForm(16_384, 1)
    stored.put("ONE", "user 0", None)
    stored.put("ONE", "user 1", credential(8_192, b"1k2j3h4g5f6d7s8a9p0o1i2u4"))
    assert stored.usual_form("ONE") == CredentialForm(8_192, 0)
