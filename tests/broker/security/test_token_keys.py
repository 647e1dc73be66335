"""Keys of tokens: from a file that changes, from a server that answers this or that."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.broker.security import token_keys
from lockstep.broker.security.token_keys import MIN_PAUSE_SECONDS, TokenKeys, UnusableKeys
from tests.support.cases import each_case
from tests.support.tokens import EC, RSA, jwks


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Issuer:
    """A server of keys, on its own thread."""

    def __init__(self) -> None:
        self.status, self.body, self.requests = 200, json.dumps(jwks(RSA)).encode(), 0
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests += 1
                self.send_response(issuer.status)
                self.send_header("Location", "/other")
                self.send_header("Content-Length", str(len(issuer.body)))
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, format: str, *args: object) -> None:
                """No log."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    served = Issuer()
    yield served
    served.server.shutdown()
    served.server.server_close()


def names(keys: TokenKeys) -> list[str | None]:
    return [each.key_id for each in keys.keys]


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a b.json"
    path.write_text(json.dumps(jwks(RSA)))
    keys = TokenKeys(path.as_uri(), (), 3600, Clock())
    assert names(keys) == ["rsa"]
    path.write_text(json.dumps(jwks(RSA, EC)))
    keys.refresh()
    assert names(keys) == ["rsa", "ec"]
    path.write_text("{")
    keys.refresh()
    keys.refresh()
    assert names(keys) == ["rsa", "ec"]
    assert [each.getMessage().endswith("2 known ones stay") for each in caplog.records] == [True]
    path.unlink()
    keys.refresh()
    assert names(keys) == ["rsa", "ec"] and len(caplog.records) == 2


def test_a_file_that_has_not_changed_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    path.write_text(json.dumps(jwks(RSA)))
    keys = TokenKeys(path.as_uri(), (), 0, clock)
    monkeypatch.setattr(keys, "_read", lambda: pytest.fail("it is read"))
    clock.now += MIN_PAUSE_SECONDS
    keys.refresh()


def test_a_file_whose_time_and_size_are_kept_is_read(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(jwks(RSA)))
    keys = TokenKeys(path.as_uri(), (), 0, Clock())
    status = path.stat()
    path.write_text(json.dumps(jwks(RSA)).replace('"rsa"', '"new"'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    keys.refresh()
    assert names(keys) == ["new"]


def test_a_file_that_could_not_be_read_is_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    path.write_text(json.dumps(jwks(RSA)))
    keys = TokenKeys(path.as_uri(), (), 0, clock)
    path.write_text(json.dumps(jwks(RSA, EC)))
    with monkeypatch.context() as failing:

        def fail(path: Path, flags: int) -> None:
            raise OSError("too many open files")

        failing.setattr(token_keys, "open_regular", fail)
        keys.refresh()
        clock.now += MIN_PAUSE_SECONDS
        keys.refresh()
    keys.refresh()
    assert names(keys) == ["rsa"] and len(caplog.records) == 1, "one line, and none is read within the pause"
    clock.now += MIN_PAUSE_SECONDS
    keys.refresh()
    assert names(keys) == ["rsa", "ec"]


@each_case(
    ("url", "reason"),
    [
        ("file:///no/such/file", "No such file"),
        ("ftp://127.0.0.1/keys", "a URL of file, https or http is needed"),
        ("/keys.json", "a URL of file, https or http is needed"),
        ("https://127.0.0.1/keys", "it is not among the allowed URLs"),
    ],
)
def test_urls_that_are_not_used(url: str, reason: str) -> None:
    with pytest.raises(UnusableKeys, match=reason):
        TokenKeys(url, ("https://127.0.0.1/other",), 3600, Clock())


def test_a_url_is_fetched_when_it_is_time_or_a_key_is_wanted(issuer: Issuer) -> None:
    clock = Clock()
    keys = TokenKeys(issuer.url, (issuer.url,), 3600, clock)
    assert names(keys) == [] and issuer.requests == 0
    keys.refresh()
    keys.refresh()
    assert names(keys) == ["rsa"] and issuer.requests == 1
    clock.now += 3600
    keys.refresh()
    assert issuer.requests == 2
    issuer.body = json.dumps(jwks()).encode()
    keys.request_refresh()
    keys.refresh()
    assert issuer.requests == 2, "not twice in a pause"
    clock.now += MIN_PAUSE_SECONDS
    keys.refresh()
    keys.refresh()
    assert names(keys) == ["rsa", "ec"] and issuer.requests == 3
    clock.now += MIN_PAUSE_SECONDS
    keys.refresh()
    assert issuer.requests == 3


@each_case(
    ("status", "body", "reason"),
    [
        (302, json.dumps(jwks()).encode(), "302"),
        (500, json.dumps(jwks()).encode(), "500"),
        (200, b"<html>", "Expecting value"),
        (200, b" " * (token_keys.MAX_BYTES + 1), "more than"),
    ],
)
def test_answers_without_keys_leave_the_former(
    issuer: Issuer, caplog: pytest.LogCaptureFixture, status: int, body: bytes, reason: str
) -> None:
    clock = Clock()
    issuer.status, issuer.body, issuer.requests = 200, json.dumps(jwks(RSA)).encode(), 0
    keys = TokenKeys(issuer.url, (issuer.url,), 3600, clock)
    keys.refresh()
    issuer.status, issuer.body = status, body
    clock.now += 3600
    caplog.clear()
    keys.refresh()
    assert names(keys) == ["rsa"] and issuer.requests == 2, "a redirection is not followed"
    assert reason in caplog.text and "1 known ones stay" in caplog.text


def test_keys_that_were_never_there_are_fetched_after_each_pause(issuer: Issuer) -> None:
    clock, issuer.status = Clock(), 503
    keys = TokenKeys(issuer.url, (issuer.url,), 3600, clock)
    keys.refresh()
    issuer.status = 200
    clock.now += MIN_PAUSE_SECONDS
    keys.refresh()
    assert names(keys) == ["rsa"]
