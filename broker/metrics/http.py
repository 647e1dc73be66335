"""A few pages over HTTP, for whoever may reach the port: GET, one request per connection, no bodies.

Owns: reading a request within limits, and writing the answer. Invariants: whatever is sent here ends at most
its own connection, after `seconds` at the latest; no more than `MOST_CONNECTIONS` are open.

Pages are made on the event loop and not on a thread, as the library's own server would: they read what only
the loop changes (dicts that may grow meanwhile), and a page takes it a millisecond or two. A web framework
would be larger than all that is served; of HTTP this is what a scraper, a probe and curl need.
Does not: know what the pages say (`pages.py`).
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

log = logging.getLogger("lockstep.metrics")

HEAD_BYTES: Final = 8192
"""Request line and headers, as much as most servers take."""
MOST_CONNECTIONS: Final = 16
"""Scrapers use one each; the log and the clients need the open files more (`listening.OWN_FILES`)."""
SECONDS: Final = 5.0
"""For the whole of a request and its answer. Prometheus gives up after 10."""
PLAIN: Final = "text/plain; charset=utf-8"

_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]\r?\n")


class Page(NamedTuple):
    """One answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN
    headers: tuple[str, ...] = ()


class _BadRequest(Exception):
    """It is not HTTP as it is spoken here."""


class HttpListener:
    """See the module.

    Args:
        pages: by path, what makes the page now.
        seconds: how long a request and its answer may take together.
    """

    def __init__(self, pages: Mapping[str, Callable[[], Page]], seconds: float = SECONDS) -> None:
        self._pages = pages
        self._seconds = seconds
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()

    async def open(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on these sockets, which are bound. Raises OSError."""
        for each in sockets:
            self._servers.append(await asyncio.start_server(self._connected, sock=each, limit=HEAD_BYTES))

    async def close(self) -> None:
        """Serve nobody any more."""
        for server in self._servers:
            server.close()
        tasks = list(self._open)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        self._open.add(task)
        try:
            async with asyncio.timeout(self._seconds):
                await self._converse(reader, writer)
        except (TimeoutError, OSError, EOFError):
            pass  # too slow, or gone
        finally:
            self._open.discard(task)
            if not writer.is_closing():
                writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = b""
        try:
            method, path = await _request(reader)
            page = self._page(method, path)
        except asyncio.LimitOverrunError:
            page = _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except _BadRequest:
            page = _error(HTTPStatus.BAD_REQUEST)
        writer.transport.set_write_buffer_limits(high=0)  # then drained means sent
        writer.write(_encoded(page, with_body=method != b"HEAD"))
        await writer.drain()
        writer.close()

    def _page(self, method: bytes, path: str) -> Page:
        make = self._pages.get(path)
        if make is None:
            return _error(HTTPStatus.NOT_FOUND)
        if method != b"GET":
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "Allow: GET")
        try:
            return make()
        except Exception:
            log.exception("%s failed", path)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    """Method and path; headers are read and mean nothing. Raises _BadRequest, LimitOverrunError, EOFError."""
    line = await reader.readuntil(b"\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise _BadRequest
    left = HEAD_BYTES - len(line)
    while line not in (b"\r\n", b"\n"):
        line = await reader.readuntil(b"\n")
        left -= len(line)
        if left < 0:
            raise asyncio.LimitOverrunError("a long head", 0)
    return found[1], found[2].partition(b"?")[0].decode("ascii")


def _error(status: HTTPStatus, *headers: str) -> Page:
    return Page(status, f"{status.value} {status.phrase}\n".encode(), headers=headers)


def _encoded(page: Page, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
        *page.headers,
        "\r\n",
    )
    return "\r\n".join(head).encode("ascii") + (page.body if with_body else b"")
