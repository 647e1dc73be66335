"""HTTP as far as it is spoken here: answers, and whatever may come in place of a request."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus

import pytest
import uvloop

from lockstep.broker.metrics.http import HEAD_BYTES, MAX_CONNECTIONS, HttpListener, Page, index
from tests.broker.metrics.scraping import get
from tests.support.cases import each_case

Start = Callable[..., Awaitable[int]]
LARGE = 64 << 20
"""More than the buffers of two sockets hold."""


def _broken() -> Page:
    raise KeyError("planted")


PAGES = {
    "/ok": lambda: Page(HTTPStatus.OK, b"fine\n"),
    "/large": lambda: Page(HTTPStatus.OK, bytes(LARGE)),
    "/broken": _broken,
}


@contextlib.asynccontextmanager
async def starting() -> AsyncIterator[Start]:
    """Starts listeners, gives the port; ends them."""
    started: list[HttpListener] = []

    async def begin(seconds: float = 20.0) -> int:
        listener = HttpListener(PAGES, seconds)
        bound = socket.create_server(("127.0.0.1", 0))
        await listener.open([bound])
        started.append(listener)
        port: int = bound.getsockname()[1]
        return port

    yield begin
    for listener in started:
        await listener.close()


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with starting() as begin:
        yield begin


async def said(port: int, *pieces: bytes) -> bytes:
    """All that is answered to these bytes, up to the end of the connection; b"" where it is just cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await _rest(reader)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""


async def test_a_whole_answer(start: Start) -> None:
    port = await start()
    assert await said(port, b"GET /ok HTTP/1.1\r\nHost: here\r\n\r\n") == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 5\r\n"
        b"Connection: close\r\n\r\nfine\n"
    )


async def test_a_request_in_pieces_with_a_query(start: Start) -> None:
    port = await start()
    answer = await said(port, b"GET /ok?name", b"[]=x HTT", b"P/1.0\r\nAccept: */*", b"\r\n", b"\r", b"\n")
    assert answer.endswith(b"\r\n\r\nfine\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET / HTTP/1.1", b"404"),
        (b"GET /ok/ HTTP/1.1", b"404"),
        (b"GET /../ok HTTP/1.1", b"404"),
        (b"GET /OK HTTP/1.1", b"404"),
        (b"POST /nowhere HTTP/1.1", b"404"),
        (b"POST /ok HTTP/1.1", b"405"),
        (b"DELETE /ok HTTP/1.1", b"405"),
        (b"OPTIONS /ok HTTP/1.1", b"405"),
        (b"TRACE /ok HTTP/1.1", b"405"),
        (b"PATCH /ok HTTP/1.1", b"405"),
        (b"NOSUCHMETHOD /ok HTTP/1.1", b"405"),
        (b"OPTIONS /nowhere HTTP/1.1", b"404"),
        (b"GET /broken HTTP/1.1", b"500"),
        (b"get /ok HTTP/1.1", b"400"),
        (b"GET ok HTTP/1.1", b"400"),
        (b"GET http://here/ok HTTP/1.1", b"400"),
        (b"GET /ok HTTP/2.0", b"400"),
        (b"GET /ok", b"400"),
        (b"GET  /ok HTTP/1.1", b"400"),
        (b"GET /\xc3\xa4 HTTP/1.1", b"400"),
        (b"", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"400"),
    ],
)
async def test_what_is_not_a_page(start: Start, request_line: bytes, status: bytes) -> None:
    port = await start()
    answer = await said(port, request_line + b"\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b" "), answer
    assert body.startswith(status)
    assert (b"\r\nAllow: GET, HEAD" in head) == (status == b"405")
    assert (await get(port, "/ok")).body == "fine\n", "others are served as before"


async def test_head_gets_no_body(start: Start) -> None:
    port = await start()
    for path, status in ((b"/ok", b"200"), (b"/nowhere", b"404"), (b"/broken", b"500"), (b"/large", b"200")):
        answer = await said(port, b"HEAD %s HTTP/1.1\r\n\r\n" % path)
        assert answer.startswith(b"HTTP/1.1 " + status + b" ")
        assert answer.endswith(b"\r\n\r\n"), "no body"
        if path != b"/large":
            assert (
                answer
                == (await said(port, b"GET %s HTTP/1.1\r\n\r\n" % path)).partition(b"\r\n\r\n")[0]
                + b"\r\n\r\n"
            )


def test_an_index_links_its_pages() -> None:
    page = index("A node", {"/a": "one", "/b": "two"})
    assert (page.status, page.content_type) == (HTTPStatus.OK, "text/html; charset=utf-8")
    assert page.body.startswith(b"<!DOCTYPE html>")
    assert b'<li><a href="/a">/a</a>: one</li>\n<li><a href="/b">/b</a>: two</li>' in page.body


async def test_one_request_per_connection(start: Start) -> None:
    answer = await said(await start(), b"GET /ok HTTP/1.1\r\n\r\n" * 3)
    assert answer.count(b"HTTP/1.1 200 OK") == 1


@pytest.mark.parametrize(
    "head",
    [
        b"GET /ok HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES + b"\r\n\r\n",
        b"GET /ok HTTP/1.1\r\n" + b"X: y\r\n" * (HEAD_BYTES // 6) + b"\r\n",
        b"GET /" + b"x" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_head_beyond_the_limit(start: Start, head: bytes) -> None:
    port = await start()
    assert (await said(port, head)).startswith(b"HTTP/1.1 431 ")
    assert (await get(port, "/ok")).status == 200


async def test_the_largest_head(start: Start) -> None:
    port = await start()
    head = b"GET /ok HTTP/1.1\r\nX: "
    head += b"x" * (HEAD_BYTES - len(head) - 4) + b"\r\n\r\n"
    assert len(head) == HEAD_BYTES
    assert (await said(port, head)).endswith(b"fine\n")


async def test_an_endless_head_is_not_read_to_its_end(start: Start) -> None:
    """The connection is cut, perhaps before the answer is seen, after a little of what is sent."""
    port = await start()
    answer = await said(port, b"GET /ok HTTP/1.1\r\n", *[b"X: y\r\n" * 10_000] * 500)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert (await get(port, "/ok")).status == 200


async def test_a_client_that_disconnects_within_a_request_affects_no_other(start: Start) -> None:
    port = await start()
    for piece in (b"", b"GET /o", b"GET /large HTTP/1.1\r\n\r\n"):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(piece)
        await writer.drain()
        writer.transport.abort()
    assert (await get(port, "/ok")).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /ok HTTP/1.1\r\n", b"\x00\x00\x00\x12"])
async def test_a_client_that_sends_too_little_is_disconnected(start: Start, sent: bytes) -> None:
    assert await said(await start(seconds=0.1), sent) == b""


async def test_a_client_that_does_not_read_is_disconnected(start: Start) -> None:
    port = await start(seconds=0.5)
    with socket.create_connection(("127.0.0.1", port)) as lazy:
        lazy.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert await said(port, b"") == b"", "who came later and is as slow has been cut off by now"
        lazy.settimeout(20)
        got = await asyncio.to_thread(_all_of, lazy)
    assert 0 < got < LARGE


def _all_of(connected: socket.socket) -> int:
    """How many bytes come before the end."""
    total = 0
    try:
        while piece := connected.recv(1 << 20):
            total += len(piece)
    except ConnectionError:
        pass
    return total


async def test_a_large_response_to_a_client_that_reads(start: Start) -> None:
    assert len((await get(await start(), "/large")).body) == LARGE


async def test_no_more_than_some_connections(start: Start) -> None:
    port = await start()
    held = []
    for _ in range(MAX_CONNECTIONS):
        held.append(await asyncio.open_connection("127.0.0.1", port))
    assert await said(port, b"GET /ok HTTP/1.1\r\n\r\n") == b"", "one too many"
    for reader, writer in held:
        writer.write(b"GET /ok HTTP/1.1\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 20)).endswith(b"fine\n"), "the others are served"
        writer.close()
    assert (await get(port, "/ok")).status == 200, "and there is room again"


async def test_closing_cuts_everybody_off() -> None:
    listener = HttpListener(PAGES, 60.0)
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    await listener.open([bound])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /ok HTTP/1.1\r\n")
    assert (await get(port, "/ok")).status == 200, "so who came before is known by now"
    await listener.close()
    assert await _rest(reader) == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


@each_case(
    "case",
    [
        test_a_whole_answer,
        test_head_gets_no_body,
        test_one_request_per_connection,
        test_the_largest_head,
        test_an_endless_head_is_not_read_to_its_end,
        test_a_client_that_disconnects_within_a_request_affects_no_other,
        test_a_client_that_does_not_read_is_disconnected,
        test_a_large_response_to_a_client_that_reads,
        test_no_more_than_some_connections,
    ],
)
def test_on_the_loop_that_brokers_run_on(case: Callable[[Start], Awaitable[None]]) -> None:
    async def run() -> None:
        async with starting() as begin:
            await case(begin)

    uvloop.run(run())
