"""The public keys of token issuers: from a file, or from a URL that the settings allow.

Owns: `TokenKeys`, which has the last keys that could be read. Invariants: only the URL itself is fetched,
without redirections and without a proxy, at most MAX_BYTES of it; keys that cannot be read leave the former
ones, with a line in the log, and are tried again; a URL is fetched, and a file that has not changed since it
could not be used is read, at most once in MIN_PAUSE_SECONDS, whatever tokens come.
Does not: run by itself: `refresh` blocks and belongs on a thread. Source: Kafka's RefreshingHttpsJwks.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from collections.abc import Callable, Collection
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lockstep.broker.process.log_text import printable
from lockstep.broker.process.regular_file import NotRegularFile, open_regular
from lockstep.broker.security.token_validator import MalformedKeys, TokenKey, parse_keys
from lockstep.broker.settings.oauthbearer_settings import ALLOWED_URLS

log = logging.getLogger("lockstep.security")

MAX_BYTES: Final = 1_048_576
"""LIMIT. Bytes of a list of keys."""
FETCH_TIMEOUT_SECONDS: Final = 10.0
MIN_PAUSE_SECONDS: Final = 10.0
WEB_SCHEMES: Final = ("https", "http")


class UnusableKeys(Exception):
    """Keys cannot be read; the text has the reason."""


class UnreadableKeys(UnusableKeys):
    """The file of keys is not there, is still empty, or cannot be read now."""


class TokenKeys:
    """See the module. Raises UnusableKeys for a URL that may not be used, or a file without keys.

    Args:
        url: file:///PATH, https://... or http://...
        allowed: the URLs that may be fetched.
        clock: seconds that only grow.
    """

    def __init__(
        self, url: str, allowed: Collection[str], refresh_seconds: float, clock: Callable[[], float]
    ) -> None:
        scheme = urlsplit(url).scheme
        self._path: Path | None = None
        self._url, self._refresh_seconds, self._clock = url, refresh_seconds, clock
        self.keys: tuple[TokenKey, ...] = ()
        self._refresh_requested = True
        self._fetched_at: float | None = None
        self._state: tuple[int, int, int, int] | None = None
        self._failure = ""
        """Why the file could not be used, if it could not."""
        if scheme == "file":
            self._path = Path(unquote(urlsplit(url).path))
            self._state = self._file_state()
            self.keys = self._read()
        elif scheme not in WEB_SCHEMES:
            raise UnusableKeys("a URL of file, https or http is needed")
        elif url not in allowed:
            raise UnusableKeys(f"it is not among the allowed URLs ({ALLOWED_URLS})")

    def request_refresh(self) -> None:
        """A token came with an unknown key: fetch soon."""
        self._refresh_requested = True

    def refresh(self) -> None:
        """Read the keys if it is time. Blocks; never raises."""
        if not (self._is_due() if self._path is None else self._is_file_due()):
            return
        try:
            self.keys = self._read()
        except UnusableKeys as error:
            if str(error) != self._failure:
                log.error("keys of tokens at %s: %s; %d known ones stay", self._url, error, len(self.keys))
            self._failure = str(error) if self._path is not None else ""
        else:
            self._failure = ""

    def _is_file_due(self) -> bool:
        now, state = self._clock(), self._file_state()
        if state != self._state:
            self._failure = ""
        elif not self._failure or now - (self._fetched_at or 0.0) < MIN_PAUSE_SECONDS:
            return False
        self._state, self._fetched_at = state, now
        return True

    def _is_due(self) -> bool:
        now, last = self._clock(), self._fetched_at
        pause = MIN_PAUSE_SECONDS if self._refresh_requested or not self.keys else self._refresh_seconds
        if last is not None and now - last < pause:
            return False
        self._fetched_at, self._refresh_requested = now, False
        return True

    def _file_state(self) -> tuple[int, int, int, int] | None:
        assert self._path is not None
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _read(self) -> tuple[TokenKey, ...]:
        try:
            data = _read_file(self._path) if self._path is not None else _fetch(self._url)
            if self._path is not None and not data:
                raise UnreadableKeys("is empty")
            if len(data) > MAX_BYTES:
                raise MalformedKeys(f"more than {MAX_BYTES} bytes")
            return parse_keys(json.loads(data))
        except NotRegularFile as error:
            raise UnusableKeys(str(error.strerror)) from None
        except OSError as error:
            raise UnreadableKeys(printable(str(error), 200)) from None
        except (HTTPException, ValueError, RecursionError) as error:
            raise UnusableKeys(printable(str(error), 200)) from None


def _read_file(path: Path) -> bytes:
    """The content of a file, as far as it may be read. Raises OSError."""
    with open(path, "rb", opener=open_regular) as stream:
        return stream.read(MAX_BYTES + 1)


def _fetch(url: str) -> bytes:
    """The content of a URL. Raises OSError, HTTPException."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    with opener.open(url, timeout=FETCH_TIMEOUT_SECONDS) as response:
        data: bytes = response.read(MAX_BYTES + 1)
        return data
