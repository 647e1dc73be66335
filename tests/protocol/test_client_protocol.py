"""A client's side of a connection, without a socket: negotiation, framing, answers that cannot be."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

import pytest

from lockstep.protocol.api import ApiKey, read_request_header, response_header
from lockstep.protocol.client_errors import BrokerError, ClientError, Unsupported
from lockstep.protocol.client_protocol import NEWEST_API_VERSIONS, ClientProtocol, Peer
from lockstep.protocol.compiler import decode, encode_bytes
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.frame_reader import MAX_REGULAR_BUFFER_BYTES
from lockstep.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from lockstep.protocol.messages.fetch import FetchRequest
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataResponse
from lockstep.protocol.staged_messages import LockstepStagedRequest
from tests.support.cases import each_case


def told(*, own: int | None = 4, metadata: tuple[int, int] = (0, 13), error: int = 0) -> ApiVersionsResponse:
    """What a broker says; `own`: its newest version of ApiVersions, None where it does not say."""
    keys = [ApiVersion(api_key=ApiKey.METADATA, min_version=metadata[0], max_version=metadata[1])]
    if own is not None:
        keys.append(ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=own))
    features = [SupportedFeatureKey(name="lockstep.staged", min_version=0, max_version=1)]
    return ApiVersionsResponse(error_code=error, api_keys=keys, supported_features=features)


def answer(response: ApiVersionsResponse, version: int) -> memoryview:
    """As a frame; a refusal is always in version 0 (KIP-511)."""
    spoken = 0 if response.error_code == ErrorCode.UNSUPPORTED_VERSION else version
    return memoryview(response_header(ApiKey.API_VERSIONS, version, 0) + encode_bytes(response, spoken))


def opened() -> ClientProtocol[str]:
    return ClientProtocol("broker:1", "me", "tests")


def agreed(**how: object) -> ClientProtocol[str]:
    made = opened()
    assert made.accept_versions(4, answer(told(**how), 4)) is None  # type: ignore[arg-type]
    return made


def feed(protocol: ClientProtocol[str], data: bytes, step: int | None = None) -> list[tuple[str, memoryview]]:
    """Give `data` in reads of at most `step` bytes; all answers."""
    found: list[tuple[str, memoryview]] = []
    pos = 0
    while pos < len(data):
        buffer = protocol.get_buffer()
        part = data[pos : pos + min(len(buffer), step or len(data))]
        buffer[: len(part)] = part
        pos += len(part)
        found += protocol.receive(len(part))
    return found


def frames(bodies: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in bodies)


# --- versions ---------------------------------------------------------------------------------------------


def test_agrees() -> None:
    protocol = agreed()
    assert protocol.versions == {ApiKey.METADATA: (0, 13), ApiKey.API_VERSIONS: (0, 4)}
    assert protocol.features == {"lockstep.staged": (0, 1)}
    assert protocol.version_of(MetadataRequest) == 13
    assert protocol.version_of(MetadataRequest, newest=9) == 9
    assert protocol.version_of(LockstepStagedRequest) == 0, "brokers tell nobody of it"


@each_case(("theirs", "asked_next"), [(3, 3), (0, 0), (None, 0)])
def test_versions_are_requested_again_in_the_brokers_version(theirs: int | None, asked_next: int) -> None:
    protocol = opened()
    refusal = told(own=theirs, error=ErrorCode.UNSUPPORTED_VERSION)
    assert protocol.accept_versions(NEWEST_API_VERSIONS, answer(refusal, NEWEST_API_VERSIONS)) == asked_next
    assert protocol.accept_versions(asked_next, answer(told(own=theirs), asked_next)) is None


@each_case(("version", "theirs"), [(4, 4), (4, -1), (0, 0), (0, None)])
def test_negotiation_comes_to_an_end(version: int, theirs: int | None) -> None:
    refusal = told(own=theirs, error=ErrorCode.UNSUPPORTED_VERSION)
    with pytest.raises(Unsupported, match="broker:1 speaks no version of API_VERSIONS"):
        opened().accept_versions(version, answer(refusal, version))


def test_refused() -> None:
    refusal = told(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(BrokerError, match=r"broker:1: .*CLUSTER_AUTHORIZATION_FAILED"):
        opened().accept_versions(4, answer(refusal, 4))


def test_no_common_version() -> None:
    protocol = agreed(metadata=(14, 20))
    with pytest.raises(Unsupported, match="speaks versions 14 to 20 of METADATA, this client 0 to 13"):
        protocol.version_of(MetadataRequest)
    with pytest.raises(Unsupported, match="speaks nothing of FETCH"):
        protocol.version_of(FetchRequest)


@each_case(
    ("host", "name"), [("broker", "broker:9092"), ("127.0.0.1", "127.0.0.1:9092"), ("::1", "[::1]:9092")]
)
def test_a_peer_has_its_advertised_name_and_its_versions(host: str, name: str) -> None:
    peer: Peer[str] = Peer(host, 9092, "me", "tests")
    assert (str(peer), peer.host, peer.port) == (name, host, 9092)
    with pytest.raises(Unsupported, match=f"^{re.escape(name)} speaks nothing of METADATA"):
        peer.version_of(MetadataRequest)
    assert peer._protocol.accept_versions(4, answer(told(), 4)) is None
    assert peer.versions == {ApiKey.METADATA: (0, 13), ApiKey.API_VERSIONS: (0, 4)}
    assert peer.features == {"lockstep.staged": (0, 1)}
    assert (peer.version_of(MetadataRequest), peer.version_of(MetadataRequest, 9)) == (13, 9)


# --- requests ---------------------------------------------------------------------------------------------


def test_requests_are_numbered_and_framed() -> None:
    protocol = opened()
    for number, version in enumerate((4, 3, 0)):  # with tags in the header, and without
        whole = b"".join(protocol.encode_request(protocol.api_versions_request(), version, "waiter"))
        assert struct.unpack_from(">i", whole) == (len(whole) - 4,)
        header, pos = read_request_header(memoryview(whole)[4:])
        assert (header.api_key, header.api_version) == (ApiKey.API_VERSIONS, version)
        assert (header.client_id, header.correlation_id) == ("me", number)
        said = decode(ApiVersionsRequest, version, memoryview(whole), pos + 4)
        assert said.client_software_name == ("tests" if version >= 3 else "")


def test_correlation_ids_begin_again() -> None:
    protocol = opened()
    protocol._next_correlation_id = 0x7FFF_FFFF
    for waiter in ("first", "second"):
        protocol.encode_request(protocol.api_versions_request(), 4, waiter)
    assert protocol.pending == {0x7FFF_FFFF: "first", 0: "second"}


def test_fields_that_an_old_version_lacks() -> None:
    with pytest.raises(ClientError, match="cannot be encoded for broker:1 in version"):
        opened().encode_request(MetadataRequest(topics=None), 0, "waiter")


# --- answers ----------------------------------------------------------------------------------------------


@each_case("step", [1, 7, None])
def test_answers_outlive_the_next_read(step: int | None) -> None:
    protocol = opened()
    for waiter in ("first", "second", "third"):
        protocol.encode_request(protocol.api_versions_request(), 4, waiter)
    large = struct.pack(">i", 1) + b"x" * (MAX_REGULAR_BUFFER_BYTES + 9)
    bodies = [struct.pack(">i", 2) + b"small", large, struct.pack(">i", 0) + b"small"]
    found = feed(protocol, frames(bodies), step)
    assert [waiter for waiter, _ in found] == ["third", "second", "first"]
    assert [bytes(each) for _, each in found] == bodies
    assert protocol.pending == {}


def test_a_response_that_no_request_waits_for() -> None:
    """Twice the same, or to a request that has none: what the stream holds is not known any more."""
    protocol = opened()
    protocol.encode_request(protocol.api_versions_request(), 4, "waiter")
    protocol.encode_request(protocol.api_versions_request(), 4, None)
    assert protocol.pending == {0: "waiter"}
    assert [waiter for waiter, _ in feed(protocol, frames([bytes(4)]))] == ["waiter"]
    for number in (0, 1):
        with pytest.raises(ClientError, match="which no pending request has"):
            feed(protocol, frames([struct.pack(">i", number)]))


@each_case("bad", [struct.pack(">i", 9), struct.pack(">i", 0), b"\0"])
def test_a_bad_response_in_the_same_read_fails_every_request(bad: bytes) -> None:
    """No request is left behind without either its response or the reason."""
    protocol = opened()
    for waiter in ("first", "second"):
        protocol.encode_request(protocol.api_versions_request(), 4, waiter)
    with pytest.raises(ClientError, match="does not speak Kafka's protocol") as broken:
        feed(protocol, frames([bytes(4), bad]))
    assert protocol.fail(broken.value) == ["first", "second"]


def test_the_first_response_serves_nobody_yet() -> None:
    protocol = opened()
    for is_served in (False, True):
        protocol.encode_request(protocol.api_versions_request(), 4, "waiter")
        assert not protocol.is_served
        feed(protocol, frames([struct.pack(">i", int(is_served))]))
        assert protocol.is_served is is_served


def test_a_failed_connection_keeps_the_first_reason() -> None:
    protocol = opened()
    for waiter in ("first", "second"):
        protocol.encode_request(protocol.api_versions_request(), 4, waiter)
    assert protocol.fail(ClientError("the reason")) == ["first", "second"]
    assert protocol.fail(ClientError("a later one")) == []
    with pytest.raises(ClientError, match="the reason"):
        protocol.encode_request(protocol.api_versions_request(), 4, "third")


def test_decodes() -> None:
    protocol = agreed()
    for version in (13, 1):  # with tags in the header, and without
        body = encode_bytes(MetadataResponse(controller_id=7), version)
        frame = memoryview(response_header(ApiKey.METADATA, version, 1) + body)
        assert protocol.decode_response(MetadataResponse, version, frame).controller_id == 7
    tagged = struct.pack(">i", 1) + b"\1\0\2hi" + encode_bytes(MetadataResponse(controller_id=8), 13)
    assert protocol.decode_response(MetadataResponse, 13, memoryview(tagged)).controller_id == 8


@each_case(
    ("said", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol: HTTP"),
        (b"\x7f\xff\xff\xff", "over the limit"),
        (frames([b"x"]), "1 byte response"),
    ],
)
def test_peers_that_are_no_brokers(said: bytes, words: str) -> None:
    with pytest.raises(ClientError, match=words):
        feed(opened(), said)


@each_case("frame", [b"\0\0\0\1", b"\0\0\0\1\0", b"\0\0\0\1\0\0\0\0"])
def test_answers_that_cannot_be_read(frame: bytes) -> None:
    with pytest.raises(ClientError, match="broker:1 sent a response that cannot be read"):
        agreed().decode_response(MetadataResponse, 13, memoryview(frame))
