"""A player's pages, metrics and changes, over HTTP."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.metrics.http import HttpListener
from lockstep.broker.network.listeners import CannotListen
from lockstep.cli import main
from lockstep.player_host.admin import LASTS, Changes, pages, start_listener
from lockstep.player_host.players import Players
from tests.broker.metrics.scraping import get, scrape
from tests.broker.metrics.test_http import said
from tests.lockstep.player_host.test_players import played, players_of
from tests.player.driver.doubles import MemoryLog, MemoryStreams, has_all, until
from tests.support.certificates import SelfSignedCa


@pytest.fixture
def streams() -> MemoryStreams:
    return MemoryStreams("a", "b")


@pytest.fixture
def players(streams: MemoryStreams) -> Players:
    return players_of(streams, "a")


@pytest.fixture
async def port(players: Players) -> AsyncIterator[int]:
    changes = Changes(players)
    listener = HttpListener(pages(players, players.status), 20.0, changes, changes.methods)
    bound = socket.create_server(("127.0.0.1", 0))
    await listener.open([bound])
    yield bound.getsockname()[1]
    await listener.close()


async def ask(port: int, method: str, path: str, body: Any = b"") -> tuple[int, dict[str, Any]]:
    """Status, and the JSON that came."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {len(sent)}\r\n\r\n"
    )
    answer = await said(port, head.encode() + sent)
    head_bytes, _, text = answer.partition(b"\r\n\r\n")
    status = int(head_bytes.split()[1])
    return status, json.loads(text) if b"application/json" in head_bytes else {}


async def test_status_and_metrics(port: int, players: Players, streams: MemoryStreams) -> None:
    log = MemoryLog()
    log.append("a", "a", "c")
    async with played(players, log, player_term=4):
        await until(lambda: has_all(log, streams, "a"))
        await until(lambda: players.status()["playing"][0]["targets"][0]["lag"] <= 1)
        assert (await get(port, "/ping")).body == "pong\n"
        status = json.loads((await get(port, "/status")).body)
        assert status["playing"][0]["player_term"] == 4
        found = await scrape(port)
    assert found['lockstep_player_term{partition="0"}'] == 4
    assert found['lockstep_player_started{partition="0"}'] == 1
    assert found['lockstep_player_position{partition="0"}'] == 2
    assert found['lockstep_player_unrouted_total{partition="0"}'] == 1
    of_target = 'lockstep_player_target_%s{partition="0",target="a"}'
    assert found[of_target % "open"] == 1
    assert found[of_target % "stopped"] == 0
    assert found[of_target % "recovering"] == 0
    assert found[of_target % "term"] == 1
    assert found[of_target % "last_ack_position"] >= 1
    assert found[of_target % "parts_total"] == 2
    assert found[of_target % "sent_bytes_total"] == 20
    assert found[of_target % "streams_total"] == 1
    after = await scrape(port)
    assert not any(name.startswith("lockstep_player_target_open") for name in after), "it is not played now"


async def test_changes(port: int, players: Players) -> None:
    target = {"name": "b", "address": "localhost:7002", "first": "latest"}
    assert await ask(port, "POST", "/targets", target) == (
        200,
        {"target": "b", "done": "added", "lasts": LASTS},
    )
    assert players.status()["targets"]["b"] == {
        "address": "localhost:7002",
        "first": "latest",
        "paused": False,
    }
    assert (await ask(port, "POST", "/targets/b/pause"))[1]["done"] == "paused"
    assert players.status()["targets"]["b"]["paused"]
    assert (await ask(port, "POST", "/targets/b/resume"))[1]["done"] == "resumed"
    assert not players.status()["targets"]["b"]["paused"]
    assert (await ask(port, "DELETE", "/targets/b"))[1]["done"] == "removed"
    assert "b" not in players.status()["targets"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("POST", "/targets", {"name": "a", "address": "h:1"}, 409, "there is a target 'a'"),
        ("POST", "/targets", {"name": "b"}, 400, "target.address: None is not a text"),
        ("POST", "/targets", {"address": "h:1"}, 400, "name is missing"),
        ("POST", "/targets", {"name": "b c", "address": "h:1"}, 400, "name: 'b c'"),
        ("POST", "/targets", {"name": "b", "address": "h:1", "x": 1}, 400, "there is no 'x' of a target"),
        ("POST", "/targets", b"{", 400, "the body is not a JSON object"),
        ("POST", "/targets", b"[]", 400, "the body is not a JSON object"),
        ("POST", "/targets/c/pause", b"", 404, "there is no target 'c'"),
        ("DELETE", "/targets/c", b"", 404, "there is no target 'c'"),
        ("DELETE", "/targets/a%2Fb", b"", 404, "there is no target 'a/b'"),
        ("POST", "/targets/%C3%BC/pause", b"", 404, "there is no target 'ü'"),
        ("DELETE", "/targets", b"", 405, ""),
        ("DELETE", "/targets/a/pause", b"", 405, ""),
        ("POST", "/targets/a", b"", 405, ""),
        ("POST", "/targets/a/stop", b"", 404, ""),
        ("POST", "/status", b"", 405, ""),
        ("GET", "/targets/a/pause", b"", 405, ""),
        ("PUT", "/targets", b"", 405, ""),
        ("OPTIONS", "/targets/a", b"", 405, ""),
        ("OPTIONS", "/nowhere", b"", 404, ""),
    ],
)
async def test_what_is_refused(
    port: int, players: Players, method: str, path: str, body: Any, status: int, said: str
) -> None:
    before = players.status()
    found, answer = await ask(port, method, path, body)
    assert found == status
    assert answer.get("error", "").startswith(said)
    assert players.status() == before


async def test_https_and_a_token(
    players: Players, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority, token = SelfSignedCa(), tmp_path / "token"
    token.write_text("s3cret\n")
    config = replace(
        players.config,
        listen="127.0.0.1:0",
        listen_token="s3cret",
        listen_certificate=str(authority.issue().write_pem(tmp_path / "player.pem")),
    )
    assert "s3cret" not in repr(config)
    http, address = await start_listener(config, players, lambda: players.status() | {"logs": []})
    ca = str(authority.write_pem(tmp_path / "ca.pem"))
    status = ["player", "status", "--player", address, "--json"]
    try:
        for more, reason in (
            (["--ca", ca, "--token-file", str(token)], ""),
            (["--ca", ca], "requires its listen_token: see --token-file"),
            (["--token-file", str(token)], "no player responds"),
            (["--ca", str(token)], "no certificate can be read"),
            (["--ca", ca, "--token-file", f"{token}s"], "no such file"),
        ):
            await asyncio.to_thread(main, [*status, *more])
            told = capsys.readouterr()
            assert reason in told.err and bool(told.out) is (reason == "")
    finally:
        await http.close()
    for path in ("nowhere.pem", str(token)):
        with pytest.raises(CannotListen, match=f"listen_certificate: {path}: no"):
            await start_listener(replace(config, listen_certificate=path), players, players.status)
