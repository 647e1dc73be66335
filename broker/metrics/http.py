"""A few pages over HTTP, for whoever may reach the port, and changes where they are wanted.

Owns: reading a request within limits, one per connection, and writing the answer. Invariants: whatever is
sent here ends at most its own connection, after `seconds` at the latest; no more than `MOST_CONNECTIONS` are
open; bodies are read for changes alone, and only as JSON, which no page of another site may send unasked.

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
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

log = logging.getLogger("lockstep.metrics")

HEAD_BYTES: Final = 8192
"""Request line and headers, as much as most servers take."""
MOST_CONNECTIONS: Final = 16
"""Scrapers use one each; the log and the clients need the open files more (`listeners.RESERVED_FILES`)."""
SECONDS: Final = 5.0
"""For the whole of a request and its answer. Prometheus gives up after 10."""
BODY_BYTES: Final = 65536
"""Of a change."""
PLAIN: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"

READING: Final = ("GET", "HEAD")
"""A HEAD has the status and the headers of a GET, and no body (RFC 9110, 9.3.2)."""

_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]\r?\n")


class Page(NamedTuple):
    """One answer."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN
    headers: tuple[str, ...] = ()


class Change(NamedTuple):
    """A POST or a DELETE."""

    method: str
    path: str
    body: bytes
    """JSON, as its sender says; empty where there is none."""


def index(title: str, links: Mapping[str, str]) -> Page:
    """A page of links. Args: links: a few words on each path; plain text, without characters of HTML."""
    lines = "".join(f'<li><a href="{path}">{path}</a>: {words}</li>\n' for path, words in links.items())
    head = f'<!DOCTYPE html>\n<html lang="en">\n<title>{title}</title>\n<h1>{title}</h1>\n'
    return Page(HTTPStatus.OK, f"{head}<ul>\n{lines}</ul>\n</html>\n".encode(), HTML)


Changing = Callable[[Change], Awaitable[Page | None]]
"""Makes a change, and says what came of it; None where there is nothing of that path to change."""


class _BadRequest(Exception):
    """It is not HTTP as it is spoken here."""


class _Refused(Exception):
    """A change whose body is not taken."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status


class _Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""


class HttpListener:
    """See the module.

    Args:
        pages: by path, what makes the page now.
        seconds: how long a request and its answer may take together.
        changing: what makes a change; None where nothing can be changed.
        changed_by: the methods that change what is at a path; none where nothing is.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Page]],
        seconds: float = SECONDS,
        changing: Changing | None = None,
        changed_by: Callable[[str], Sequence[str]] = lambda path: (),
    ) -> None:
        self._pages = pages
        self._changing = changing
        self._changed_by = changed_by
        self._seconds = seconds
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.Task[None]] = set()

    async def open(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on these sockets, which are bound. Raises OSError."""
        for each in sockets:
            each.listen()  # the loop does so too, but uvloop keeps a failure to itself
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
        method = ""
        try:
            request = await _request(reader)
            method = request.method
            page = await self._page(request, reader)
        except asyncio.LimitOverrunError:
            page = _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except _BadRequest:
            page = _error(HTTPStatus.BAD_REQUEST)
        except _Refused as refused:
            page = _error(refused.status)
        writer.transport.set_write_buffer_limits(high=0)  # then drained means sent
        writer.write(_encoded(page, with_body=method != "HEAD"))
        await writer.drain()
        writer.close()

    async def _page(self, request: _Request, reader: asyncio.StreamReader) -> Page:
        """Raises _Refused, EOFError."""
        method, path, _ = request
        make = self._pages.get(path)
        try:
            if self._changing is not None and method in ("POST", "DELETE"):
                page = await self._changing(Change(method, path, await _body(request, reader)))
                if page is not None:
                    return page
            if make is not None and method in READING:
                return make()
            allowed = (*(READING if make is not None else ()), *self._changed_by(path))
            if not allowed:
                return _error(HTTPStatus.NOT_FOUND)
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, f"Allow: {', '.join(allowed)}")
        except (_Refused, EOFError):
            raise
        except Exception:
            log.exception("%s failed", path)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _body(request: _Request, reader: asyncio.StreamReader) -> bytes:
    """Of a change. Raises _Refused, EOFError."""
    headers = request.headers
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdecimal() or len(length) > 9:
        raise _Refused(HTTPStatus.LENGTH_REQUIRED)
    if int(length) > BODY_BYTES:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != "application/json":
        raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    return await reader.readexactly(int(length))


async def _request(reader: asyncio.StreamReader) -> _Request:
    """All up to the body. Raises _BadRequest, LimitOverrunError, EOFError."""
    line = await reader.readuntil(b"\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise _BadRequest
    left = HEAD_BYTES - len(line)
    headers: dict[str, str] = {}
    while line not in (b"\r\n", b"\n"):
        line = await reader.readuntil(b"\n")
        left -= len(line)
        if left < 0:
            raise asyncio.LimitOverrunError("a long head", 0)
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return _Request(found[1].decode(), found[2].partition(b"?")[0].decode("ascii"), headers)


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
