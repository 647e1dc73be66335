"""The HTTP listener with TLS, and with a token."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path

import pytest

import lockstep.testing
from compat_tests.probe import free_port
from lockstep.broker.metrics.http import MAX_CONNECTIONS, ChangeRequest, HttpListener, Page
from tests.support.certificates import SelfSignedCa

LARGE = 3_000_000
PAGES = {"/ok": lambda: Page(HTTPStatus.OK, b"fine\n"), "/large": lambda: Page(HTTPStatus.OK, bytes(LARGE))}
AUTHORITY = SelfSignedCa()
Start = Callable[..., Awaitable[int]]


class Tls:
    """A listener's context, and that of a client who trusts it."""

    def __init__(self, directory: Path) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(AUTHORITY.issue().write_pem(directory / "broker.pem"))
        self.client = ssl.create_default_context(cadata=AUTHORITY.pem())


async def _changed(change: ChangeRequest) -> Page | None:
    return Page(HTTPStatus.OK, json.dumps(len(change.body)).encode())


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[HttpListener] = []

    async def begin(tls: Tls | None = None, token: str = "", seconds: float = 20.0) -> int:
        listener = HttpListener(PAGES, seconds, _changed, tls=tls, token=token)
        bound = socket.create_server(("127.0.0.1", 0))
        await listener.open([bound])
        started.append(listener)
        port: int = bound.getsockname()[1]
        return port

    yield begin
    for listener in started:
        await listener.close()


async def said(port: int, request: bytes, context: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_only_the_token_opens(start: Start) -> None:
    port = await start(token="s3cret")
    for header in (b"", b"Authorization: Bearer other\r\n", b"Authorization: Basic s3cret\r\n"):
        for request in (b"GET /ok", b"GET /nothing", b"DELETE /ok"):
            answer = await said(port, request + b" HTTP/1.1\r\n" + header + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
            assert b"\r\nWWW-Authenticate: Bearer\r\n" in answer and b"s3cret" not in answer
    for scheme in (b"Bearer", b"bearer"):
        answer = await said(port, b"GET /ok HTTP/1.1\r\nauthorization: " + scheme + b" s3cret\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n") and answer.endswith(b"fine\n")


async def test_pages_and_changes_over_tls(start: Start, tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    port = await start(tls)
    assert (await said(port, b"GET /ok HTTP/1.1\r\n\r\n", tls.client)).endswith(b"fine\n")
    assert (
        len((await said(port, b"GET /large HTTP/1.1\r\n\r\n", tls.client)).partition(b"\r\n\r\n")[2]) == LARGE
    )
    head = b"POST /x HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
    assert (await said(port, head + b"x" * 60_000, tls.client)).endswith(b"60000")


async def test_a_client_without_tls_gets_nothing(start: Start, tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    port = await start(tls)
    assert b"fine" not in await said(port, b"GET /ok HTTP/1.1\r\n\r\n")
    assert (await said(port, b"GET /ok HTTP/1.1\r\n\r\n", tls.client)).endswith(b"fine\n")


async def test_handshakes_count_and_have_their_time(start: Start, tmp_path: Path) -> None:
    tls = Tls(tmp_path)
    port = await start(tls, seconds=0.5)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_CONNECTIONS + 3)]
    ends = await asyncio.gather(*(reader.read() for reader, _ in silent), return_exceptions=True)
    assert len(ends) == MAX_CONNECTIONS + 3  # each of them is over
    for _, writer in silent:
        writer.close()
    assert (await said(port, b"GET /ok HTTP/1.1\r\n\r\n", tls.client)).endswith(b"fine\n")


async def test_a_broker_with_both(tmp_path: Path) -> None:
    port, store = free_port(), AUTHORITY.issue().write_pem(tmp_path / "broker.pem")
    client = ssl.create_default_context(cadata=AUTHORITY.pem())

    def health(token: str) -> int:
        request = urllib.request.Request(f"https://127.0.0.1:{port}/health")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=20, context=client) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    async with lockstep.testing.broker(
        lockstep_metrics_listener=f"127.0.0.1:{port}",
        lockstep_metrics_security_protocol="SSL",
        lockstep_metrics_token="s3cret",
        ssl_keystore_type="PEM",
        ssl_keystore_location=str(store),
    ):
        assert await asyncio.to_thread(health, "s3cret") == 200
        assert await asyncio.to_thread(health, "other") == 401
