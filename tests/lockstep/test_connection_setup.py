"""The first requests of a connection, and the errors of one that does not come about, without a socket."""

from __future__ import annotations

import ssl
import struct

import pytest

from lockstep.kafka_client.connection_errors import (
    connect_failure,
    lost_connection,
    mismatch_failure,
    tls_failure,
)
from lockstep.kafka_client.connection_setup import Steps, log_in, set_up
from lockstep.kafka_client.security import WITHOUT_SECURITY, ClientSecurity
from lockstep.protocol.api import ApiKey, response_header
from lockstep.protocol.client_errors import (
    AuthenticationError,
    ClientError,
    ConnectionFailed,
    ListenerMismatch,
    Unsupported,
)
from lockstep.protocol.client_protocol import ClientProtocol
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from lockstep.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.support.cases import each_case

PLAIN = ClientSecurity.of(
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": 'X required username="a" password="hush";',
    }
)
SERVED = {ApiKey.API_VERSIONS: 4, ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}


def frame(response: Struct, version: int) -> memoryview:
    key = response.SCHEMA.api_key
    assert key is not None
    return memoryview(response_header(key, version, 0) + encode_bytes(response, version))


def versions(error: int = 0, **served: int) -> ApiVersionsResponse:
    keys = SERVED | {ApiKey[name]: newest for name, newest in served.items()}
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[ApiVersion(api_key=key, min_version=0, max_version=newest) for key, newest in keys.items()],
    )


def advance(steps: Steps, response: Struct, version: int) -> tuple[Struct, int] | float:
    """The next request with its version, or the result."""
    try:
        return steps.send(frame(response, version))
    except StopIteration as done:
        return float(done.value)


def protocol() -> ClientProtocol[str]:
    return ClientProtocol("broker:1", "me", "tests")


def test_versions_alone_without_a_login() -> None:
    shared = protocol()
    steps = set_up(shared, WITHOUT_SECURITY, "broker:1")
    request, version = next(steps)
    assert isinstance(request, ApiVersionsRequest) and version == 4
    refusal = versions(ErrorCode.UNSUPPORTED_VERSION, API_VERSIONS=3)
    again = advance(steps, refusal, 0)
    assert isinstance(again, tuple) and (type(again[0]), again[1]) == (ApiVersionsRequest, 3)
    assert advance(steps, versions(), 3) == float("inf")
    assert shared.version_of(SaslHandshakeRequest) == 1


def test_a_login_follows_the_versions() -> None:
    steps = set_up(protocol(), PLAIN, "broker:1")
    next(steps)
    handshake = advance(steps, versions(), 4)
    assert isinstance(handshake, tuple) and handshake == (SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = advance(steps, SaslHandshakeResponse(mechanisms=["PLAIN"]), 1)
    assert isinstance(token, tuple) and token == (SaslAuthenticateRequest(auth_bytes=b"\0a\0hush"), 2)
    assert advance(steps, SaslAuthenticateResponse(session_lifetime_ms=100_000), 2) == 85.0


def test_a_login_that_fails() -> None:
    with pytest.raises(Unsupported, match="broker:1 speaks nothing of SASL_HANDSHAKE"):
        next(log_in(protocol(), PLAIN, "broker:1"))
    shared = protocol()
    shared.accept_versions(4, frame(versions(), 4))
    steps = log_in(shared, PLAIN, "broker:1")
    next(steps)
    with pytest.raises(ClientError, match="cannot be read"):
        steps.send(memoryview(b"\0\0\0\0noise"))
    steps = log_in(shared, PLAIN, "broker:1")
    next(steps)
    with pytest.raises(AuthenticationError, match=r"does not offer sasl\.mechanism=PLAIN; it offers none"):
        advance(steps, SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM), 1)


@each_case(
    ("error", "text"),
    [
        (ConnectionRefusedError(), "cannot connect to broker:1: connection refused; is a broker running"),
        (OSError(113, "No route to host"), "cannot connect to broker:1: no route to host"),
        (OverflowError("port must be 0-65535"), "cannot connect to 'broker:1': port must be 0-65535"),
    ],
)
def test_an_address_that_cannot_be_connected_to(error: Exception, text: str) -> None:
    assert str(connect_failure("broker:1", error)).startswith(text)


def test_a_lost_connection_most_likely_met_another_listener_before_anything_was_served() -> None:
    shared = protocol()
    lost = lost_connection("broker:1", shared, WITHOUT_SECURITY, "it broke")
    assert isinstance(lost, ListenerMismatch)
    assert str(lost) == str(mismatch_failure("broker:1", "PLAINTEXT"))
    lost = lost_connection("broker:1", shared, PLAIN, "it broke")
    assert str(lost) == str(mismatch_failure("broker:1", PLAIN.protocol))
    shared.accept_versions(4, frame(versions(), 4))
    assert str(lost_connection("broker:1", shared, PLAIN, "it broke")) == "it broke"
    for correlation_id in range(2):
        shared.encode_request(MetadataRequest(), 1, "waiter")
        shared.get_buffer()[:8] = struct.pack(">ii", 4, correlation_id)
        shared.receive(8)
    served = lost_connection("broker:1", shared, WITHOUT_SECURITY, "it broke")
    assert type(served) is ConnectionFailed and str(served) == "it broke"


@each_case(
    ("reason", "text"),
    [
        ("WRONG_VERSION_NUMBER", "broker:1 does not speak TLS: see security.protocol"),
        ("TLSV1_ALERT_UNKNOWN_CA", "broker:1 ended TLS: unknown ca; see ssl.keystore.location"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "broker:1 ended TLS: handshake failure"),
        ("BAD_EXTENSION", "broker:1: TLS failed: bad extension"),
    ],
)
def test_reasons_of_openssl(reason: str, text: str) -> None:
    error = ssl.SSLError(1, "[SSL] planted")
    error.reason = reason
    assert str(tls_failure("broker:1", error)) == text


@each_case(
    "error",
    [ssl.SSLEOFError(8, "EOF"), ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)")],
)
def test_an_end_during_the_handshake_by_either_of_pythons_errors(error: OSError) -> None:
    assert isinstance(tls_failure("broker:1", error), ListenerMismatch)
    assert "as a listener without TLS does" in str(tls_failure("broker:1", error))
