"""A target that posts to an HTTP server; the mark is in a file.

Each entry of the log (a record batch, or what of it is this target's) is one POST, with a body of JSON:

    {"log_id": "...", "topic": "orders", "partition": 0, "position": 41, "records": [
        {"offset": 41, "timestamp_ms": 1700000000000, "key": "k", "value": {"base64": "/w=="},
         "headers": []}]}

Keys, values and headers (pairs of a name and a value) are text where they are UTF-8, else an object with
`base64`; null stays null. `Idempotency-Key` is the log's id and the entry's position: the same entry has the
same key and the same body whenever it comes again.

What is guaranteed: entries are posted in order, the next one when the response to the one before was 2xx;
none is left out. After a crash, or a response that was lost, entries since the mark are posted again: at
least once. It is exactly once only where the receiver honours the key; since entries come in order, it may as
well keep the highest position for each log with what it changes, and respond with 200 to what is at or below
it.

Owns: the connection, which is kept, and the retries: what may pass (no response, 408, 425, 429, 5xx) is tried
again with growing pauses for `retry_timeout_s`; every other response, and the end of that time, ends the
stream with the response's words. What was taken before is marked; the player comes back later, and the same
entry is posted again.
Does not: follow redirects, use a proxy, or post several entries at once.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from lockstep.player.target.file import AppliedInPart, FileLog, FileStore, TargetStopped
from lockstep.player.target.records import Delivered, EntryRecords, LogName

MAX_PAUSE_S: Final = 5.0
MAX_REASON_CHARS: Final = 300
"""The characters of a failed response that the error has."""
_READ_BYTES: Final = 64 * 1024
"""The bytes of a response that are read; after a longer one the connection is not used again."""
_RETRIABLE_STATUSES: Final = frozenset({408, 425, 429})
_FAILURES: Final = (OSError, http.client.HTTPException)


class WebhookFailed(Exception):
    """The server did not take an entry."""


class Webhook:
    """A store (`lockstep.player.target.store`) that posts. See the module.

    Args:
        url: http or https, without a user and password: those go into `headers`.
        directory: of the marks; made if it is not there.
        headers: sent with each request.
        timeout_s: for the connection, and for each response.
        retry_timeout_s: how long one entry is retried.
    Raises:
        ValueError: `url` is none that can be posted to.
    """

    def __init__(
        self,
        url: str,
        directory: Path | str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        retry_timeout_s: float = 60.0,
        first_pause_s: float = 0.1,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError(f"{url!r} is not http://host/path or https://host/path")
        self.host, self.port = parts.hostname, parts.port
        self.is_secure = parts.scheme == "https"
        query = f"?{parts.query}" if parts.query else ""
        self.path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + query
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        self.timeout_s = timeout_s
        self.retry_timeout_s = retry_timeout_s
        self.first_pause_s = first_pause_s
        self.ssl_context = ssl_context
        self.stopping = threading.Event()
        self._marks = FileStore(directory, _no_op)

    def open(self, name: LogName) -> FileLog:
        """Raises OSError: the mark's."""
        poster = _Poster(self)
        return self._marks.log(name, poster.apply, poster.close)

    def stop(self) -> None:
        self.stopping.set()
        self._marks.stop()


class _Poster:
    """One log's connection."""

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook
        self._connection: http.client.HTTPConnection | None = None

    def apply(self, delivered: Delivered) -> None:
        taken = delivered.previous_position
        for entry in delivered.entries:
            try:
                if entry.records:
                    self._post(f"{delivered.log_id}:{entry.position}", body_of(delivered.name, entry))
            except (WebhookFailed, TargetStopped) as error:
                raise AppliedInPart(taken, error) from error
            taken = entry.position

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, key: str, body: bytes) -> None:
        """Repeats the request until it succeeds. Raises WebhookFailed, TargetStopped."""
        webhook = self._webhook
        deadline = time.monotonic() + webhook.retry_timeout_s
        pause_s = webhook.first_pause_s
        while True:
            if webhook.stopping.is_set():
                raise TargetStopped("while an entry was posted")
            try:
                status, words = self._request(key, body)
            except _FAILURES as error:
                self.close()
                failure = f"no response to {key}: {type(error).__name__}: {error}"
            else:
                if 200 <= status < 300:
                    return
                failure = f"{status} to {key}: {words}"
                if status < 500 and status not in _RETRIABLE_STATUSES:
                    raise WebhookFailed(failure)
            if time.monotonic() + pause_s > deadline:
                raise WebhookFailed(failure)
            webhook.stopping.wait(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, MAX_PAUSE_S)

    def _request(self, key: str, body: bytes) -> tuple[int, str]:
        headers = {**self._webhook.headers, "Idempotency-Key": key}
        if self._connection is not None:  # a server may end a connection that was idle, at any time
            with contextlib.suppress(ConnectionError, http.client.RemoteDisconnected):
                return self._exchange(self._connection, body, headers)
            self.close()
        self._connection = self._connect()
        return self._exchange(self._connection, body, headers)

    def _exchange(
        self, connection: http.client.HTTPConnection, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, str]:
        connection.request("POST", self._webhook.path, body, headers)
        response = connection.getresponse()
        text = response.read(_READ_BYTES).decode("utf-8", "replace")
        if not response.isclosed():  # there is more to read than is useful
            self.close()
        return response.status, f"{response.reason}: {text}"[:MAX_REASON_CHARS]

    def _connect(self) -> http.client.HTTPConnection:
        webhook = self._webhook
        if webhook.is_secure:
            return http.client.HTTPSConnection(
                webhook.host, webhook.port, timeout=webhook.timeout_s, context=webhook.ssl_context
            )
        return http.client.HTTPConnection(webhook.host, webhook.port, timeout=webhook.timeout_s)


def body_of(name: LogName, entry: EntryRecords) -> bytes:
    """The JSON of one entry."""
    records = [
        {
            "offset": record.offset,
            "timestamp_ms": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[header, _text(value)] for header, value in record.headers],
        }
        for record in entry.records
    ]
    placed = name._replace(partition=entry.partition)
    body = {**placed._asdict(), "position": entry.position, "records": records}
    return json.dumps(body, ensure_ascii=False).encode()


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _no_op(_: Delivered) -> None: ...
