"""A few pages over HTTP, for any client that reaches the port, and changes where a handler allows them.

Owns: reading a request within limits, one per connection, and writing the response. Invariants: whatever is
sent here ends at most its own connection, after `timeout_seconds` at the latest; no more than
`MAX_CONNECTIONS` are open; bodies are read for changes alone, and only as JSON, which a browser sends for
another site only after a preflight. With a token nothing is shown or changed for a client without it.

Pages are made on the event loop and not on a thread, as the library's own server would: they read what only
the loop changes (dicts that may grow meanwhile), and a page takes it a millisecond or two. A web framework
would be larger than all that is served; of HTTP this is what a scraper, a probe and curl need.
Does not: know the content of the pages (`pages.py`).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from lockstep.broker.metrics.tls_streams import TlsStreams

log = logging.getLogger("lockstep.metrics")

HEAD_BYTES: Final = 8192
"""Request line and headers, as much as most servers take."""
MAX_CONNECTIONS: Final = 16
"""Scrapers use one each; the log and the clients need the open files more (`listeners.RESERVED_FILES`)."""
TIMEOUT_SECONDS: Final = 5.0
"""For the whole of a request and its response. Prometheus's timeout is 10."""
BODY_BYTES: Final = 65536
"""The largest body of a change."""
PLAIN: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"

READING: Final = ("GET", "HEAD")
"""A HEAD has the status and the headers of a GET, and no body (RFC 9110, 9.3.2)."""

_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]\r?\n")


class Page(NamedTuple):
    """One response."""

    status: HTTPStatus
    body: bytes
    content_type: str = PLAIN
    headers: tuple[str, ...] = ()


class ChangeRequest(NamedTuple):
    """A POST or a DELETE."""

    method: str
    path: str
    body: bytes
    """The body, which should be JSON; empty where there is none."""


def index(title: str, links: Mapping[str, str]) -> Page:
    """A page of links. Args: links: a few words on each path; plain text, without characters of HTML."""
    lines = "".join(
        f'<li><a href="{path}">{path}</a>: {description}</li>\n' for path, description in links.items()
    )
    head = f'<!DOCTYPE html>\n<html lang="en">\n<title>{title}</title>\n<h1>{title}</h1>\n'
    return Page(HTTPStatus.OK, f"{head}<ul>\n{lines}</ul>\n</html>\n".encode(), HTML)


ChangeHandler = Callable[[ChangeRequest], Awaitable[Page | None]]
"""Makes a change, and returns its outcome; None where nothing can be changed at that path."""


class _BadRequest(Exception):
    """The request is not HTTP as this server understands it."""


class _ChangeRejected(Exception):
    """A change whose body is rejected."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status


class _Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""


class HasContext(Protocol):
    """The TLS of a listener, as `broker/security/tls_context.py` has it."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context of connections that begin now."""


class HttpListener:
    """See the module.

    Args:
        pages: by path, what makes the page now.
        timeout_seconds: how long a request and its response may take together.
        change_handler: what makes a change; None where nothing can be changed.
        methods_of: the methods that change what is at a path; none where nothing is.
        tls: None without TLS.
        token: what clients send in `Authorization: Bearer`; empty for any client.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Page]],
        timeout_seconds: float = TIMEOUT_SECONDS,
        change_handler: ChangeHandler | None = None,
        methods_of: Callable[[str], Sequence[str]] = lambda path: (),
        tls: HasContext | None = None,
        token: str = "",
    ) -> None:
        self._tls = tls
        self._token = token
        self._pages = pages
        self._change_handler = change_handler
        self._methods_of = methods_of
        self._timeout_seconds = timeout_seconds
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, sockets: Iterable[socket.socket]) -> None:
        """Serve on these sockets, which are bound. Raises OSError."""
        for each in sockets:
            each.listen()  # the loop does so too, but uvloop does not report a failure
            self._servers.append(
                await asyncio.start_server(self._serve_connection, sock=each, limit=HEAD_BYTES)
            )

    async def close(self) -> None:
        """Stop serving and close all connections."""
        for server in self._servers:
            server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                if self._tls is None:
                    await self._respond_once(reader, writer, bytes)
                else:
                    limit = HEAD_BYTES + BODY_BYTES
                    tls = TlsStreams(reader, writer, self._tls.context, limit, HEAD_BYTES)
                    async with tls.open():
                        await self._respond_once(tls.reader, writer, tls.seal)
        except (TimeoutError, OSError, EOFError):
            pass  # too slow, or gone
        finally:
            self._connections.discard(task)
            if not writer.is_closing():
                writer.transport.abort()

    async def _respond_once(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seal: Callable[[bytes], bytes]
    ) -> None:
        method = ""
        try:
            request = await _request(reader)
            method = request.method
            page = await self._page(request, reader)
        except asyncio.LimitOverrunError:
            page = _error_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except _BadRequest:
            page = _error_page(HTTPStatus.BAD_REQUEST)
        except _ChangeRejected as rejection:
            page = _error_page(rejection.status)
        writer.transport.set_write_buffer_limits(high=0)  # then drained means sent
        writer.write(seal(_encode(page, with_body=method != "HEAD")))
        await writer.drain()
        writer.close()

    async def _page(self, request: _Request, reader: asyncio.StreamReader) -> Page:
        """Raises _ChangeRejected, EOFError."""
        method, path, _ = request
        if self._token and not _has_token(request, self._token):
            return _error_page(HTTPStatus.UNAUTHORIZED, "WWW-Authenticate: Bearer")
        page_factory = self._pages.get(path)
        try:
            if self._change_handler is not None and method in ("POST", "DELETE"):
                page = await self._change_handler(ChangeRequest(method, path, await _body(request, reader)))
                if page is not None:
                    return page
            if page_factory is not None and method in READING:
                return page_factory()
            allowed = (*(READING if page_factory is not None else ()), *self._methods_of(path))
            if not allowed:
                return _error_page(HTTPStatus.NOT_FOUND)
            return _error_page(HTTPStatus.METHOD_NOT_ALLOWED, f"Allow: {', '.join(allowed)}")
        except (_ChangeRejected, EOFError):
            raise
        except Exception:
            log.exception("%s failed", path)
            return _error_page(HTTPStatus.INTERNAL_SERVER_ERROR)


def _has_token(request: _Request, token: str) -> bool:
    """Compares in a time that does not depend on where the two differ."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_equal = hmac.compare_digest(given.strip().encode(), token.encode())
    return is_equal and scheme.lower() == "bearer"


async def _body(request: _Request, reader: asyncio.StreamReader) -> bytes:
    """Read the body of a change. Raises _ChangeRejected, EOFError."""
    headers = request.headers
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not length.isdecimal() or len(length) > 9:
        raise _ChangeRejected(HTTPStatus.LENGTH_REQUIRED)
    if int(length) > BODY_BYTES:
        raise _ChangeRejected(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != "application/json":
        raise _ChangeRejected(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    return await reader.readexactly(int(length))


async def _request(reader: asyncio.StreamReader) -> _Request:
    """All up to the body. Raises _BadRequest, LimitOverrunError, EOFError."""
    line = await reader.readuntil(b"\n")
    matched = _REQUEST_LINE.fullmatch(line)
    if matched is None:
        raise _BadRequest
    remaining = HEAD_BYTES - len(line)
    headers: dict[str, str] = {}
    while line not in (b"\r\n", b"\n"):
        line = await reader.readuntil(b"\n")
        remaining -= len(line)
        if remaining < 0:
            raise asyncio.LimitOverrunError("a long head", 0)
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return _Request(matched[1].decode(), matched[2].partition(b"?")[0].decode("ascii"), headers)


def _error_page(status: HTTPStatus, *headers: str) -> Page:
    return Page(status, f"{status.value} {status.phrase}\n".encode(), headers=headers)


def _encode(page: Page, with_body: bool) -> bytes:
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        "Connection: close",
        *page.headers,
        "\r\n",
    )
    return "\r\n".join(head).encode("ascii") + (page.body if with_body else b"")
