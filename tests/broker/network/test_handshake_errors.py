"""The reason of a failed handshake, in words."""

from __future__ import annotations

import ssl

from lockstep.broker.network.handshake_errors import describe_handshake_error, is_tls
from tests.support.cases import each_case


@each_case(
    ("first", "tls"),
    [
        (b"\x16\x03\x01\x02\x00", True),
        (b"\x16", True),
        (b"\x16\x02", False),
        (b"\x00\x00\x00\x20\x00", False),
        (b"GET /", False),
    ],
)
def test_the_first_bytes_of_tls(first: bytes, tls: bool) -> None:
    assert is_tls(first) == tls


@each_case(
    ("reason", "text"),
    [
        ("NO_SHARED_CIPHER", "TLS handshake failed: no cipher suite is common to the client"),
        ("TLSV1_ALERT_UNKNOWN_CA", "TLS handshake failed: the client does not trust the issuer"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "TLS handshake failed: the client finds the broker's"),
        ("TLSV1_ALERT_DECODE_ERROR", "TLS handshake failed: the client sent the alert decode error"),
        ("BAD_EXTENSION", "TLS handshake failed: bad extension"),
    ],
)
def test_reasons_of_openssl(reason: str, text: str) -> None:
    error = ssl.SSLError(1, "[SSL] planted")
    error.reason = reason
    assert describe_handshake_error(error).startswith(text)


def test_an_error_without_a_reason_and_a_rejected_certificate() -> None:
    assert describe_handshake_error(ssl.SSLError("planted")).endswith("('planted',)")
    rejected = ssl.SSLCertVerificationError(1, "planted")
    rejected.verify_message = "certificate has expired"
    assert (
        describe_handshake_error(rejected) == "the client's certificate is rejected: certificate has expired"
    )
