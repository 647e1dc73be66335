"""A player's HTTP: its status, its metrics, and changes of targets while it runs.

| request | what it does |
|---|---|
| `GET /` | links to these three |
| `GET /status` | the targets, each log and its player, as JSON |
| `GET /metrics` | the same in numbers, for Prometheus |
| `GET /ping` | responds while the process lives |
| `POST /targets` | adds a target: `{"name": ..., "address": ..., "first": ...}` |
| `DELETE /targets/NAME` | removes it |
| `POST /targets/NAME/pause`, `POST /targets/NAME/resume` | pauses it, resumes it |

Owns: these requests and responses, whichever process delivers, and their listener. Invariants: every response
to a change reports that it lasts as long as the process. Without a token any client that reaches the port may
do all of it (`lockstep.broker.metrics.http` keeps out web pages that a browser on the same machine shows).
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from lockstep.broker.metrics.http import ChangeRequest, HttpListener, Page, index
from lockstep.broker.network.listeners import CannotListen, bind, host_and_port
from lockstep.broker.settings.addresses import parse_listener
from lockstep.player_host.config import PlayerConfig, PlayerConfigError, target_of
from lockstep.player_host.exposition import PlayerCollector
from lockstep.player_host.players import Players

LASTS: Final = "until the player's process ends: its configuration's file is not changed"
LINKS: Final = {
    "/status": "the targets, and each log with the player that delivers it",
    "/metrics": "numbers for Prometheus",
    "/ping": "whether the process runs",
}
_TARGET: Final = re.compile(r"/targets/([^/]+)(?:/(pause|resume))?")

Status = Callable[[], dict[str, Any]]


class LogStatus(NamedTuple):
    """The status of one log in this process."""

    partition: int
    """-1 where the log is a topic's partitions of one log group."""
    log_group: int | None
    log_id: str
    is_playing: bool
    holder: str | None
    """The player that delivers it, here or elsewhere; None: no player is known here."""
    player_term: int | None
    failed: str = ""
    """The reason why this process has stopped trying."""
    problem: str = ""
    """The problem that stops delivery to it for now: it is tried again until the problem is over."""


def status_of(players: Players, standings: Iterable[LogStatus], **more: object) -> dict[str, Any]:
    """For JSON: `GET /status`, the same for every player. Args: more: of this process."""
    found = players.status()
    playing = {each["log_id"]: each for each in found.pop("playing")}
    logs = [{**each._asdict(), "played": playing.get(each.log_id)} for each in standings]
    return {**found, **more, "logs": logs, "changes_last": LASTS}


class _Tls:
    """The context of a listener with HTTPS."""

    def __init__(self, certificate: str) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, password=lambda: "")


async def start_listener(config: PlayerConfig, players: Players, status: Status) -> tuple[HttpListener, str]:
    """The listener at `listen`, and where it really listens. Raises CannotListen."""
    listener = parse_listener(config.listen or "", "listen")
    try:
        tls = _Tls(config.listen_certificate) if config.listen_certificate else None
    except OSError as error:  # ssl's among them
        reason = "no such file" if isinstance(error, FileNotFoundError) else "no key with its certificate"
        raise CannotListen(f"listen_certificate: {config.listen_certificate}: {reason}") from None
    sockets = bind(listener, "listen = HOST:PORT in its configuration")
    changes = Changes(players)
    http = HttpListener(
        pages(players, status),
        change_handler=changes,
        methods_of=changes.methods,
        tls=tls,
        token=config.listen_token,
    )
    await http.open(sockets)
    return http, host_and_port(listener.host, sockets[0].getsockname()[1])


def pages(players: Players, status: Status) -> Mapping[str, Callable[[], Page]]:
    """By path."""
    registry = CollectorRegistry()
    registry.register(PlayerCollector(players))
    ProcessCollector(registry=registry)
    return {
        "/": lambda: index(f"Lockstep player {escape(players.config.player)}", LINKS),
        "/status": lambda: _json(HTTPStatus.OK, status()),
        "/metrics": lambda: Page(HTTPStatus.OK, generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4),
        "/ping": lambda: Page(HTTPStatus.OK, b"pong\n"),
    }


class Changes:
    """The changes at run time; a `lockstep.broker.metrics.http.ChangeHandler`. They reach all players
    here."""

    def __init__(self, players: Players) -> None:
        self._players = players

    async def __call__(self, change: ChangeRequest) -> Page | None:
        """The response to a path; None for an unknown path."""
        try:
            if change.path == "/targets":
                return await self._add(change.body) if change.method == "POST" else None
            found = _TARGET.fullmatch(change.path)
            if found is None or (change.method == "DELETE") == (found[2] is not None):
                return None
            return self._change(unquote(found[1]), found[2] or "remove")
        except _Refused as refused:
            return _json(refused.status, {"error": str(refused)})

    @staticmethod
    def methods(path: str) -> Sequence[str]:
        """The methods that change the resource at `path`."""
        if path == "/targets":
            return ("POST",)
        found = _TARGET.fullmatch(path)
        return () if found is None else ("DELETE",) if found[2] is None else ("POST",)

    async def _add(self, body: bytes) -> Page:
        requested = _object(body)
        unknown = requested.keys() - {"name", "address", "first"}
        if unknown:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"there is no {min(unknown)!r} of a target")
        name = requested.get("name")
        if not isinstance(name, str):
            raise _Refused(HTTPStatus.BAD_REQUEST, "name is missing")
        try:
            target = target_of(name, requested.get("address"), requested.get("first", "earliest"))
        except PlayerConfigError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        try:
            await self._players.add(name, target)
        except ValueError as error:
            raise _Refused(HTTPStatus.CONFLICT, str(error)) from None
        return _done(name, "added")

    def _change(self, name: str, what: str) -> Page:
        change, done = {
            "remove": (self._players.remove, "removed"),
            "pause": (self._players.pause, "paused"),
            "resume": (self._players.resume, "resumed"),
        }[what]
        try:
            change(name)
        except KeyError:
            raise _Refused(HTTPStatus.NOT_FOUND, f"there is no target {name!r}") from None
        return _done(name, done)


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


def _object(body: bytes) -> dict[str, object]:
    try:
        requested = json.loads(body)
    except ValueError:
        requested = None
    if not isinstance(requested, dict):
        raise _Refused(HTTPStatus.BAD_REQUEST, "the body is not a JSON object")
    return requested


def _done(name: str, done: str) -> Page:
    return _json(HTTPStatus.OK, {"target": name, "done": done, "lasts": LASTS})


def _json(status: HTTPStatus, document: object) -> Page:
    return Page(status, json.dumps(document).encode() + b"\n", "application/json")
