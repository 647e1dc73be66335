"""TLS without a socket: two sessions that exchange ciphertext, a handshake, an end, and failures."""

from __future__ import annotations

import random
import ssl

import pytest

from lockstep.protocol.tls_session import TlsFailure, TlsSession, failure_of, reason_of
from tests.support.cases import each_case
from tests.support.peer_certificates import peer_certificates

RECORD = 16_384
"""The most plaintext of one record."""


def sessions() -> tuple[TlsSession, TlsSession]:
    """A client and a server, each with a certificate."""
    client = TlsSession(peer_certificates(1).client_context, server_side=False)
    return client, TlsSession(peer_certificates(2).server_context, server_side=True)


def carry(source: TlsSession, target: TlsSession) -> int:
    """Brings what one has for the other; returns how many bytes."""
    data = source.take()
    return target.feed(data)


def opened() -> tuple[TlsSession, TlsSession]:
    client, server = sessions()
    while not (client.is_open and server.is_open):
        for one, other in ((client, server), (server, client)):
            assert one.do_handshake() == one.is_open
            carry(one, other)
    return client, server


def test_a_handshake_needs_bytes_from_both_and_shows_the_certificates() -> None:
    client, server = sessions()
    assert not client.do_handshake() and not client.is_open and not server.do_handshake()
    assert client.take() and client.take() == b""
    client, server = opened()
    assert client.do_handshake(), "done already"
    for session, node in ((client, 2), (server, 1)):
        found = session.certificate()
        assert found is not None and ("URI", f"lockstep-node:{node}") in found["subjectAltName"]
        der = session.certificate_der()
        assert der is not None and der.startswith(b"\x30")


def test_a_client_without_a_certificate() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    client = TlsSession(context, server_side=False)
    served = peer_certificates(2).server_context
    served.verify_mode = ssl.CERT_NONE
    server = TlsSession(served, server_side=True)
    for _ in range(2):
        client.do_handshake(), carry(client, server), server.do_handshake(), carry(server, client)
    assert server.is_open and server.certificate() is None and server.certificate_der() is None


def test_plaintext_comes_out_as_it_went_in() -> None:
    client, server = opened()
    dice = random.Random(5)
    sent = dice.randbytes(5 * RECORD + 7)
    assert client.write(sent) == len(sent)
    carry(client, server)
    assert server.undecrypted_bytes > len(sent)
    found = bytearray()
    buffer = memoryview(bytearray(2 * RECORD + 5))
    while not server.needs_input:
        count = server.fill(buffer)
        assert count == len(buffer) or server.needs_input
        found += buffer[:count]
    assert found == sent and not server.has_ended and server.undecrypted_bytes == 0
    assert server.fill(buffer) == 0 and server.needs_input, "nothing has come since"


def test_a_record_that_has_not_come_whole_waits() -> None:
    client, server = opened()
    client.write(b"abc")
    client.write(b"def")
    data = client.take()
    server.feed(data[:-1])
    buffer = memoryview(bytearray(100))
    assert server.fill(buffer) == 3 and server.needs_input and bytes(buffer[:3]) == b"abc"
    assert server.read(100) is None and server.read_into(buffer) is None
    server.feed(data[-1:])
    assert server.read(2) == b"de" and server.undecrypted_bytes == 1
    assert server.read_into(buffer) == 1 and bytes(buffer[:1]) == b"f"


def test_the_end_follows_what_was_written() -> None:
    client, server = opened()
    client.write(b"last")
    client.end()
    client.end()
    carry(client, server)
    buffer = memoryview(bytearray(100))
    assert server.fill(buffer) == 4 and server.has_ended and not server.needs_input
    assert server.fill(buffer) == 0 and server.has_ended
    assert server.read(1) == b"" and server.read_into(buffer) == 0
    with pytest.raises(ssl.SSLError):
        client.write(b"more")


def test_an_end_before_the_handshake_is_none() -> None:
    client, _ = sessions()
    client.end()
    assert client.take() == b""


def test_a_failed_handshake_leaves_the_alert_for_the_peer() -> None:
    client, server = sessions()
    stranger = TlsSession(ssl.create_default_context(), server_side=False, server_hostname="a.example")
    stranger.do_handshake()
    carry(stranger, server)
    server.do_handshake()
    carry(server, stranger)
    with pytest.raises(ssl.SSLCertVerificationError):
        stranger.do_handshake()
    carry(stranger, server)
    with pytest.raises(ssl.SSLError) as failed:
        server.do_handshake()
    assert failure_of(failed.value) == TlsFailure("UNKNOWN_CA", True) and not server.is_open
    assert client.take() == b""


def test_changed_ciphertext_is_an_error() -> None:
    client, server = opened()
    client.write(b"abc")
    data = bytearray(client.take())
    data[-1] ^= 1
    server.feed(data)
    with pytest.raises(ssl.SSLError) as failed:
        server.fill(memoryview(bytearray(9)))
    assert not failure_of(failed.value).is_alert and "_" in reason_of(failed.value)


@each_case(
    ("reason", "failure", "words"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", TlsFailure("UNKNOWN_CA", True), "unknown ca"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", TlsFailure("BAD_CERTIFICATE", True), "bad certificate"),
        ("WRONG_VERSION_NUMBER", TlsFailure("WRONG_VERSION_NUMBER", False), "wrong version number"),
    ],
)
def test_the_reason_of_a_failure(reason: str, failure: TlsFailure, words: str) -> None:
    error = ssl.SSLError(1, "[SSL] planted")
    error.reason = reason
    assert failure_of(error) == failure and failure.words == words and reason_of(error) == reason


def test_the_text_of_an_error_without_a_reason() -> None:
    assert failure_of(ssl.SSLError("planted")).reason == "('planted',)" == reason_of(ssl.SSLError("planted"))
