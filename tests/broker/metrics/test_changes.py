"""Changes over HTTP: which bodies are taken, and that pages stay as they are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus

import pytest

from lockstep.broker.metrics.http import BODY_BYTES, ChangeRequest, HttpListener, Page
from tests.broker.metrics.test_http import PAGES, said

JSON = b"Content-Type: application/json; charset=utf-8\r\n"


async def _changing(change: ChangeRequest) -> Page | None:
    if change.path == "/broken":
        raise KeyError("planted")
    if not change.path.startswith("/things"):
        return None
    return Page(HTTPStatus.OK, f"{change.method} {change.path} {len(change.body)}\n".encode())


@pytest.fixture
async def port() -> AsyncIterator[int]:
    listener = HttpListener(PAGES, 20.0, _changing)
    bound = socket.create_server(("127.0.0.1", 0))
    await listener.open([bound])
    yield bound.getsockname()[1]
    await listener.close()


def post(length: int | bytes, *headers: bytes, path: bytes = b"/things") -> bytes:
    told = length if isinstance(length, bytes) else b"%d" % length
    return b"POST %s HTTP/1.1\r\nContent-Length: %s\r\n%s\r\n" % (path, told, b"".join(headers))


async def test_a_body_in_pieces(port: int) -> None:
    answer = await said(port, post(6, JSON) + b"{", b'"a"', b":1}")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"\r\n\r\nPOST /things 6\n")
    assert (await said(port, post(BODY_BYTES, JSON) + bytes(BODY_BYTES))).endswith(b" %d\n" % BODY_BYTES)


async def test_a_change_without_a_body(port: int) -> None:
    assert (await said(port, b"DELETE /things/a HTTP/1.1\r\n\r\n")).endswith(b"DELETE /things/a 0\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (post(2) + b"{}", b"415"),
        (post(2, b"Content-Type: text/plain\r\n") + b"{}", b"415"),
        (post(BODY_BYTES + 1, JSON), b"413"),
        (post(b"9" * 30, JSON), b"411"),
        (post(b"-1", JSON), b"411"),
        (post(0, JSON, b"Transfer-Encoding: chunked\r\n"), b"411"),
        (post(0, JSON, path=b"/nowhere"), b"404"),
        (post(0, JSON, path=b"/ok"), b"405"),
        (post(0, JSON, path=b"/broken"), b"500"),
        (b"PUT /things HTTP/1.1\r\n\r\n", b"404"),
        (b"OPTIONS /things HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /things HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /ok HTTP/1.1\r\nContent-Length: 99\r\n\r\n", b"200"),
    ],
)
async def test_what_is_answered(port: int, request_bytes: bytes, status: bytes) -> None:
    assert (await said(port, request_bytes)).startswith(b"HTTP/1.1 " + status + b" ")


async def test_a_client_that_disconnects_within_a_body_affects_no_other(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(post(5, JSON) + b"{")
    await writer.drain()
    writer.transport.abort()
    assert (await said(port, b"GET /ok HTTP/1.1\r\n\r\n")).endswith(b"fine\n")
