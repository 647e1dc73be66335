"""A target that posts: against a real HTTP server, which fails in every way that servers do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from lockstep.player.core.messages import Part
from lockstep.player.target.file import TargetStopped
from lockstep.player.target.records import Delivered, LogName, open_parts
from lockstep.player.target.webhook import Webhook, WebhookFailed
from lockstep.protocol.records.record import BatchBuilder
from tests.player.target.stores import entries, mark
from tests.player.target.streams import LOG_ID, PATIENCE_S

NAME = LogName(LOG_ID, "orders", 3)


class Receiver:
    """What came, and what is to be answered next; 200 where nothing is said."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.connections = 0
        self.answers: list[int | str] = []
        """A status, or: "hang up", "say nothing", "hang up afterwards"."""
        self.asked = threading.Event()
        self.go_on = threading.Event()

    def keys(self) -> list[str]:
        return [headers["idempotency-key"] for _, headers, _ in self.requests]


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def url(receiver: Receiver) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            receiver.connections += 1
            super().setup()

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): text for name, text in self.headers.items()}
            receiver.requests.append((self.path, headers, body))
            answer = receiver.answers.pop(0) if receiver.answers else 200
            receiver.asked.set()
            if answer == "say nothing":
                receiver.go_on.wait(PATIENCE_S)
            if answer in ("say nothing", "hang up"):
                self.close_connection = True
                return
            text = b"the words of the answer"
            self.send_response(answer if isinstance(answer, int) else 200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.close_connection = answer == "hang up afterwards"

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("localhost", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://localhost:{server.server_port}/a%20hook?of=mine"
    receiver.go_on.set()
    server.shutdown()
    thread.join()
    server.server_close()


def webhook(url: str, directory: Path, **more: Any) -> Webhook:
    return Webhook(url, directory, **{"first_pause_s": 0.001, "headers": {"Authorization": "x"}, **more})


def test_each_entry_is_posted_once(url: str, receiver: Receiver, tmp_path: Path) -> None:
    log = webhook(url, tmp_path).open(NAME)
    log.fence(mark(1, 6))
    builder = BatchBuilder()
    builder.append(b"\xff", b"caf\xc3\xa9", timestamp_ms=1, headers=[("a", None), ("b", b"\x00")])
    builder.append(None, None, timestamp_ms=2)
    parts = [Part(8, builder.build(7), 1), Part(12, builder.build(11), 1)]
    log.store(Delivered(NAME, 6, 20, open_parts(parts, 3)), mark(1, 20))
    assert log.load() == mark(1, 20)
    log.close()
    assert receiver.keys() == ["cluster/topic/0:8", "cluster/topic/0:12"]
    assert receiver.connections == 1
    path, headers, body = receiver.requests[0]
    assert path == "/a%20hook?of=mine"
    assert (headers["authorization"], headers["content-type"]) == ("x", "application/json")
    assert body == {
        "log_id": LOG_ID,
        "topic": "orders",
        "partition": 3,
        "position": 8,
        "records": [
            {
                "offset": 7,
                "timestamp_ms": 1,
                "key": "café",
                "value": {"base64": "/w=="},
                "headers": [["a", None], ["b", "\0"]],
            },
            {"offset": 8, "timestamp_ms": 2, "key": None, "value": None, "headers": []},
        ],
    }


def test_what_may_pass_is_tried_again(url: str, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [500, 503, 429, "hang up", 200]
    log = webhook(url, tmp_path).open(NAME)
    log.fence(mark(1, -1))
    log.store(entries(-1, 0), mark(1, 0))
    assert receiver.keys() == ["cluster/topic/0:0"] * 5
    assert len({json.dumps(body) for _, _, body in receiver.requests}) == 1
    log.close()


def test_an_answer_that_does_not_come(url: str, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = ["say nothing"]
    log = webhook(url, tmp_path, timeout_s=0.2).open(NAME)
    log.fence(mark(1, -1))
    log.store(entries(-1, 0), mark(1, 0))
    assert receiver.keys() == ["cluster/topic/0:0"] * 2
    log.close()


def test_a_connection_that_was_ended_meanwhile(url: str, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = ["hang up afterwards"]
    log = webhook(url, tmp_path, retry_timeout_s=0).open(NAME)
    log.fence(mark(1, -1))
    for at in range(3):
        log.store(entries(at - 1, at), mark(1, at))
    assert receiver.keys() == [f"cluster/topic/0:{at}" for at in range(3)]
    assert receiver.connections == 2
    log.close()


@pytest.mark.parametrize("status", [400, 404, 422, 301])
def test_a_refusal_ends_the_stream(url: str, receiver: Receiver, tmp_path: Path, status: int) -> None:
    receiver.answers = [200, status]
    log = webhook(url, tmp_path).open(NAME)
    log.fence(mark(1, -1))
    with pytest.raises(WebhookFailed, match=f"{status} to cluster/topic/0:1: .*: the words of the answer"):
        log.store(entries(-1, 0, 1, 2), mark(1, 2))
    assert log.load() == mark(1, 0)  # what was taken does not come again with each try
    log.store(entries(0, 1), mark(1, 1))  # the same key again
    assert receiver.keys() == [f"cluster/topic/0:{at}" for at in (0, 1, 1)]
    log.close()


def test_patience_ends(url: str, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [503] * 1000
    log = webhook(url, tmp_path, retry_timeout_s=0.05).open(NAME)
    log.fence(mark(1, -1))
    with pytest.raises(WebhookFailed, match="503 to cluster/topic/0:0: Service Unavailable"):
        log.store(entries(-1, 0), mark(1, 0))
    log.close()
    nobody = Webhook("http://localhost:1/", tmp_path, first_pause_s=0.001, retry_timeout_s=0.01).open(NAME)
    with pytest.raises(WebhookFailed, match="no response to cluster/topic/0:0: ConnectionRefusedError"):
        nobody.store(entries(-1, 0), mark(1, 0))
    nobody.close()


def test_a_target_that_ends_does_not_wait(url: str, receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [503] * 1000
    store = webhook(url, tmp_path, first_pause_s=1000.0, retry_timeout_s=10_000.0)
    log = store.open(NAME)
    log.fence(mark(1, -1))

    def stop() -> None:
        receiver.asked.wait(PATIENCE_S)
        store.stop()

    threading.Thread(target=stop).start()
    began = time.monotonic()
    with pytest.raises(TargetStopped):
        log.store(entries(-1, 0), mark(1, 0))
    assert time.monotonic() - began < PATIENCE_S
    log.close()


@pytest.mark.parametrize("wrong", ["ftp://host/", "http:///path", "http://me:secret@host/", "host/path"])
def test_what_is_no_url(wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not http"):
        Webhook(wrong, tmp_path)
