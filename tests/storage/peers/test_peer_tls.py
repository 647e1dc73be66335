"""The reasons of failed handshakes between nodes, in words."""

from __future__ import annotations

import ssl

import pytest

from lockstep.storage.peers.peer_identity import NoPeerIdentity, PeerIdentity
from lockstep.storage.peers.peer_tls import describe_failure, identity_in, is_alert


def error_of(reason: str | None, text: str = "") -> ssl.SSLError:
    error = ssl.SSLError(1, text)
    error.reason = reason  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "it requires a certificate, and this node has shown none"),
        ("TLSV1_ALERT_UNKNOWN_CA", "it does not trust the CA of this node's certificate"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "it finds this node's certificate expired, or not valid yet"),
        ("TLSV1_ALERT_INTERNAL_ERROR", "it sent the TLS alert internal error"),
        ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "it has no certificate"),
        ("UNEXPECTED_MESSAGE", "TLS failed: unexpected message"),
    ],
)
def test_a_reason_of_openssl(reason: str, text: str) -> None:
    assert describe_failure(error_of(reason)) == text
    assert is_alert(error_of(reason)) == ("_ALERT_" in reason)


def test_an_error_without_a_reason() -> None:
    assert "the text" in describe_failure(error_of(None, "the text")) and not is_alert(error_of(None))


@pytest.mark.parametrize(("code", "words"), [(10, "is rejected: it is"), (20, "no CA that this node")])
def test_a_certificate_that_is_rejected(code: int, words: str) -> None:
    error = ssl.SSLCertVerificationError(1, "")
    error.verify_code, error.verify_message = code, "it is"
    assert words in describe_failure(error)


def test_the_identity_in_what_python_gives() -> None:
    names = (("DNS", "a"), ("URI", "lockstep-node:7"), ("URI", "lockstep-cluster:c"))
    assert identity_in({"subjectAltName": names}) == PeerIdentity("c", 7)
    for nothing in (None, {}, {"subjectAltName": (("DNS", "lockstep-node:7"),)}):
        with pytest.raises(NoPeerIdentity):
            identity_in(nothing)
