"""API keys, header versions, and headers that are cut or carry tags."""

from __future__ import annotations

import pytest

from lockstep.protocol.api import (
    ApiKey,
    RequestHeader,
    api_key_named,
    messages_for,
    read_request_header,
    request_header_version,
    response_header,
    response_header_version,
)
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.produce import ProduceRequest, ProduceResponse
from lockstep.protocol.primitives import MalformedMessage
from tests.support.cases import each_case


def read(text: str) -> tuple[tuple[int, int, int, str | None], int]:
    header, pos = read_request_header(memoryview(bytes.fromhex(text)))
    return (header.api_key, header.api_version, header.correlation_id, header.client_id), pos


def test_header_versions() -> None:
    assert [request_header_version(ApiKey.PRODUCE, v) for v in (3, 8, 9, 13, 99)] == [1, 1, 2, 2, 2]
    assert [response_header_version(ApiKey.PRODUCE, v) for v in (8, 9)] == [0, 1]
    assert [request_header_version(ApiKey.API_VERSIONS, v) for v in (2, 3, 99)] == [1, 2, 2]
    assert [response_header_version(ApiKey.API_VERSIONS, v) for v in (0, 3, 99)] == [0, 0, 0]
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 1) == 1
    assert request_header_version(999, 3) == 1
    assert response_header_version(999, 3) == 0
    assert [request_header_version(ApiKey.CONTROLLED_SHUTDOWN, v) for v in (0, 1)] == [0, 1]


def test_header_version_1() -> None:
    assert read("0000 0008 00000007 0003 616263 ff") == ((0, 8, 7, "abc"), 13)
    assert read("0000 0008 00000007 0000") == ((0, 8, 7, ""), 10)
    assert read("0000 0008 00000007 ffff") == ((0, 8, 7, None), 10)


def test_header_version_2_has_the_same_client_id_and_then_tags() -> None:
    assert read("0000 0009 fffffffe 0003 616263 00 ff") == ((0, 9, -2, "abc"), 14)
    assert read("0000 0009 00000007 ffff 01 05 02 aabb ff") == ((0, 9, 7, None), 15)
    assert read("0012 0063 00000007 ffff 00") == ((18, 99, 7, None), 11)


def test_header_version_0_has_no_client_id() -> None:
    assert read("0007 0000 00000001") == ((7, 0, 1, None), 8)


def test_header_of_an_api_nobody_knows() -> None:
    assert read("03e7 0001 00000007 0001 61") == ((999, 1, 7, "a"), 11)


@each_case(
    ("text", "words"),
    [
        ("", "ends inside it, after 0 bytes"),
        ("0000 0009", "ends inside it, after 4 bytes"),
        ("0000 0009 00000007 00", "ends inside it, after 9 bytes"),
        ("0000 0008 00000007 0003 6162", "client id of 3 bytes, frame of 12"),
        ("0000 0008 00000007 fffe", "client id of -2 bytes"),
        ("0000 0008 00000007 0002 c328", "not UTF-8"),
        ("0000 0009 00000007 ffff", "ends inside it"),
        ("0000 0009 00000007 ffff 02 00", "2 tagged fields in 1 bytes"),
        ("0000 0009 00000007 ffff 01 00 05", "tag 0 of 5 bytes, 0 remain"),
        ("0000 0009 00000007 ffff 8080", "ends inside it"),
    ],
)
def test_malformed_headers(text: str, words: str) -> None:
    with pytest.raises(MalformedMessage, match=words):
        read(text)


def test_twenty_million_tagged_fields_before_authentication() -> None:
    """CVE-2026-111115: refused by their number, before any is read."""
    frame = bytes.fromhex("0012 0003 00000007 ffff 80dac409") + bytes(40_000_000)
    with pytest.raises(MalformedMessage, match="20000000 tagged fields"):
        read_request_header(memoryview(frame))


def test_response_header() -> None:
    assert response_header(ApiKey.PRODUCE, 8, 7) == b"\0\0\0\x07"
    assert response_header(ApiKey.PRODUCE, 9, 7) == b"\0\0\0\x07\0"
    assert response_header(ApiKey.API_VERSIONS, 3, -1) == b"\xff\xff\xff\xff"


def test_header_repr() -> None:
    text = "RequestHeader(api_key=0, api_version=9, correlation_id=7, client_id='me')"
    assert repr(RequestHeader(0, 9, 7, "me")) == text


def test_messages_for() -> None:
    assert messages_for(ApiKey.PRODUCE) == (ProduceRequest, ProduceResponse)
    with pytest.raises(KeyError, match="no message tables for API key 4"):
        messages_for(4)


def test_every_pair_is_a_request_and_its_response() -> None:
    for key, (request, response) in MESSAGES.items():
        assert request.SCHEMA.api_key == response.SCHEMA.api_key == ApiKey(key)
        assert (request.SCHEMA.kind, response.SCHEMA.kind) == ("request", "response")
        assert request.SCHEMA.versions == response.SCHEMA.versions
        assert request.SCHEMA.flexible == response.SCHEMA.flexible


@each_case("name", ["list-offsets", "ListOffsets", "LIST_OFFSETS", "listoffsets"])
def test_api_by_name(name: str) -> None:
    assert api_key_named(name) is ApiKey.LIST_OFFSETS


def test_no_api_of_that_name() -> None:
    with pytest.raises(KeyError, match="no API is called 'nonsense'"):
        api_key_named("nonsense")
