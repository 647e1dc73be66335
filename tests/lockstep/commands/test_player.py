"""`lockstep player`: what it says where it cannot do what it is asked, and how it shows a status."""

from __future__ import annotations

import copy
import json
import logging
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.lockstep.conftest import Run

TARGET: dict[str, Any] = {
    "name": "a",
    "address": "here:1",
    "link": "open",
    "state": "N",
    "last_ack": 7,
    "lag": 2,
    "waiting_entries": 1,
    "unacknowledged_entries": 1,
    "stopped_because": "",
    "cannot_keep_up": False,
    "hung": 0,
    "closed_because": "it crashed",
}
STATUS: dict[str, Any] = {
    "player": "one",
    "topic": "orders",
    "targets": {"a": {"address": "here:1", "first": "earliest", "paused": False}},
    "logs": [
        {
            "partition": 0,
            "log_id": "c/t/0",
            "is_playing": True,
            "holder": "one",
            "player_term": 4,
            "failed": "",
            "played": {"current_position": 9, "targets": [TARGET]},
        }
    ],
}


@pytest.fixture(autouse=True)
def _logging_stays_as_it_is() -> Iterator[None]:
    """`player run` sets it for its process, which here is the tests'."""
    logs = [logging.getLogger(name) for name in ("lockstep", "player")]
    before = [(log.handlers, log.level, log.propagate) for log in logs]
    yield
    for log, (handlers, level, propagate) in zip(logs, before, strict=True):
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer()

    do_POST = do_DELETE = do_GET

    def _answer(self) -> None:
        server: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append((self.command, self.path, self.headers.get("Content-Type"), body))
        status, answer = server.answer
        self.send_response(status)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Asked:
    """A player as far as the command sees it."""

    def __init__(self) -> None:
        server: Any = HTTPServer(("127.0.0.1", 0), _Handler)
        self.server = server
        self.server.asked = []
        self.answers({})
        self.where = ("--player", f"127.0.0.1:{self.server.server_port}")

    def answers(self, document: object, status: int = 200) -> None:
        self.server.answer = (
            status,
            document if isinstance(document, bytes) else json.dumps(document).encode(),
        )

    @property
    def asked(self) -> list[tuple[str, str, str | None, bytes]]:
        return list(self.server.asked)


@pytest.fixture
def player() -> Iterator[Asked]:
    asked = Asked()
    thread = threading.Thread(target=asked.server.serve_forever, args=(0.02,))
    thread.start()
    yield asked
    asked.server.shutdown()
    thread.join()
    asked.server.server_close()


def test_a_status_for_people(command: Run, player: Asked) -> None:
    player.answers(STATUS)
    done = command("player", "status", *player.where)
    assert done.status == 0, done
    lines = [line.split() for line in done.out.splitlines()]
    assert ["0", "delivers", "one", "4", "9"] in lines
    assert ["0", "a", "here:1", "open", "N", "7", "2", "1", "1"] in lines


def test_a_status_for_programs(command: Run, player: Asked) -> None:
    player.answers(STATUS)
    assert json.loads(command("player", "status", *player.where, "--json").out) == STATUS


def test_records_for_nobody_are_shown(command: Run, player: Asked) -> None:
    """They say that something is set wrongly, and nothing else: the status is as good as before."""
    status = copy.deepcopy(STATUS)
    for unrouted, said in ((0, False), (3, True)):
        status["logs"][0]["played"]["unrouted"] = unrouted
        player.answers(status)
        done = command("player", "status", *player.where)
        line = "\n\npartition 0: 3 parts of records dropped, for targets that are not there\n"
        assert (done.status, done.out.endswith(line), "dropped" in done.out) == (0, said, said)


@pytest.mark.parametrize(
    ("change", "shown", "status"),
    [
        ({"link": "not connected"}, "it crashed", 1),
        ({"cannot_keep_up": True}, "cannot keep up", 1),
        ({"hung": 1}, "it crashed", 1),
        ({"link": "stopped", "stopped_because": "the log begins at 9"}, "the log begins at 9", 1),
    ],
)
def test_a_target_in_trouble(
    command: Run, player: Asked, change: dict[str, Any], shown: str, status: int
) -> None:
    found = copy.deepcopy(STATUS)
    found["logs"][0]["played"]["targets"][0].update(change)
    player.answers(found)
    done = command("player", "status", *player.where)
    assert (done.status, shown in done.out) == (status, True)
    found["targets"]["a"]["paused"] = True
    player.answers(found)
    assert command("player", "status", *player.where).status == 0


def test_a_standby_and_a_failed_one(command: Run, player: Asked) -> None:
    log = {**STATUS["logs"][0], "is_playing": False, "played": None, "holder": "two"}
    player.answers({**STATUS, "logs": [log]})
    done = command("player", "status", *player.where)
    assert done.status == 0
    assert ["0", "stands", "by", "two", "4", "-"] in [line.split() for line in done.out.splitlines()]
    player.answers({**STATUS, "logs": [{**log, "holder": None, "player_term": None, "failed": "no topic"}]})
    done = command("player", "status", *player.where)
    assert done.status == 1
    assert ["0", "failed", "nobody", "-", "-", "no", "topic"] in [
        line.split() for line in done.out.splitlines()
    ]
    player.answers({**STATUS, "logs": []})
    assert command("player", "status", *player.where).status == 1


def test_one_that_cannot_reach_its_brokers(command: Run, player: Asked) -> None:
    """It plays, and nothing comes: that is told, and no success."""
    player.answers({**STATUS, "logs": [{**STATUS["logs"][0], "problem": "no answer"}]})
    done = command("player", "status", *player.where)
    assert done.status == 1
    lines = [line.split() for line in done.out.splitlines()]
    assert ["0", "delivers", "one", "4", "9", "no", "answer"] in lines


def test_changes(command: Run, player: Asked) -> None:
    player.answers({"target": "c", "done": "changed", "lasts": "until it ends"})
    for words in (
        ("pause", "c"),
        ("resume", "c"),
        ("remove", "c"),
        ("add", "c", "here:1"),
        ("add", "c", "here:1", "--first", "7"),
    ):
        done = command("player", *words, *player.where)
        assert (done.status, done.out) == (0, "target c is changed, until it ends\n")
    assert [each[:2] for each in player.asked] == [
        ("POST", "/targets/c/pause"),
        ("POST", "/targets/c/resume"),
        ("DELETE", "/targets/c"),
        ("POST", "/targets"),
        ("POST", "/targets"),
    ]
    assert all(each[2] == "application/json" for each in player.asked if each[0] == "POST")
    assert json.loads(player.asked[3][3]) == {"name": "c", "address": "here:1", "first": "earliest"}
    assert json.loads(player.asked[4][3])["first"] == 7


def test_a_change_for_programs_and_a_name_that_is_quoted(command: Run, player: Asked) -> None:
    player.answers({"target": "c", "done": "paused", "lasts": "x"})
    assert json.loads(command("player", "pause", "a/../b", *player.where, "--json").out)["done"] == "paused"
    assert player.asked[-1][1] == "/targets/a%2F..%2Fb/pause"


def test_what_a_player_refuses(command: Run, player: Asked) -> None:
    player.answers({"error": "there is no target 'c'"}, 404)
    done = command("player", "pause", "c", *player.where)
    assert (done.status, done.err) == (1, "lockstep: there is no target 'c'\n")
    player.answers(b"<html>")
    done = command("player", "status", *player.where)
    assert done.status == 1
    assert "is no player" in done.err


def test_nobody_there(command: Run) -> None:
    done = command("player", "status", "--player", "127.0.0.1:1")
    assert done.status == 1
    assert done.err == (
        "lockstep: no player responds at 127.0.0.1:1: connection refused; "
        "--player is the value of `listen` in its configuration\n"
    )
    assert command("player", "status", "--player", "nonsense").status == 2
    assert command("player", "status", "--token-file", "/no/such").status == 2
    assert command("player", "status", "--ca", "/no/such").status == 2


def test_what_answers_speaks_no_http(command: Run) -> None:
    """A target's port, as those who confuse the two addresses give it."""

    def answer(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"\x00\x00\x18\x04 no HTTP\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer, args=(listener,))
        thread.start()
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        done = command("player", "status", "--player", where)
        thread.join()
    assert (done.status, done.err) == (
        1,
        f"lockstep: the server at {where} is no player: it does not speak HTTP\n",
    )


def test_the_brokers_come_from_the_environment(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with every other command; what the file says counts more."""
    file = tmp_path / "player.toml"
    text = 'player = "x"\ntopic = "x"\nroute = {by = "all"}\ntargets = {a = {address = "h:1"}}\n'
    file.write_text(text)
    monkeypatch.setenv("LOCKSTEP_BOOTSTRAP", "127.0.0.1:1")
    assert "cannot connect to 127.0.0.1:1: " in command("player", "run", str(file)).err
    file.write_text('bootstrap = "127.0.0.1:2"\n' + text)
    assert "cannot connect to 127.0.0.1:2: " in command("player", "run", str(file)).err


RUNNABLE = b'player = "x"\ntopic = "x"\nroute = {by = "all"}\ntargets = {a = {address = "h:1"}}\n'
"""A configuration, without TLS."""


def test_configurations_that_cannot_be_run(command: Run, tmp_path: Path) -> None:
    file = tmp_path / "player.toml"
    for text, said in (
        (None, "cannot read"),
        (b"\xff", "is not a text file in UTF-8"),
        (b"player = 1", "player: 1 is not a text"),
        (b'player = "x"\ntopic = "x"\nroute = {by = "function", function = "no_such:f"}', "route.function"),
        (RUNNABLE + b'[client]\n"security.protocol" = "SLL"', "client: security.protocol: 'SLL'"),
    ):
        if text is not None:
            file.write_bytes(text)
        done = command("player", "run", str(file))
        assert (done.status, done.out) == (2, "")
        assert said in done.err


@pytest.mark.parametrize(
    "text",
    [
        b'[tls]\ntrusted = "nowhere.pem"',
        b'[client]\n"security.protocol" = "SSL"\n"ssl.truststore.location" = "nowhere.pem"',
    ],
)
def test_a_file_that_a_configuration_names_may_be_there_later(
    command: Run, tmp_path: Path, text: bytes
) -> None:
    file = tmp_path / "player.toml"
    file.write_bytes(RUNNABLE + text)
    done = command("player", "run", str(file))
    assert (done.status, done.out) == (1, "")
    assert "nowhere.pem" in done.err


def test_a_topic_or_a_broker_that_is_not_there(
    command: Run, running: Any, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "player.toml"
    text = (
        'player = "x"\ntopic = "{}"\nroute = {{by = "all"}}\nbootstrap = "{}"\n{}\n[claims]\ntopic = "{}"\n'
    )
    bootstrap = running.bootstrap_servers
    for values, said in (
        ((topic, "127.0.0.1:1", "", topic), "127.0.0.1:1"),
        ((topic, bootstrap, "", f"c-{topic}"), f"topic {topic}"),
        ((f"c-{topic}", bootstrap, "partitions = [4]", f"c-{topic}"), "has no partition 4"),
        ((topic, bootstrap, 'listen = "nowhere.invalid:1"', topic), "nowhere.invalid"),
    ):
        file.write_text(text.format(*values))
        done = command("player", "run", str(file))
        assert (done.status, done.out) == (1, ""), done
        assert said in done.err
