"""`lockstep player run|status|pause|resume|add|remove`: a player in this process, and requests to one.

Reads the configuration; everything else that `run` does is `lockstep.player_host.player_process`'s. The other
commands send HTTP requests to a player, at the address that its configuration has as `listen`.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lockstep.commands.options import (
    BOOTSTRAP_VARIABLE,
    Families,
    add_json,
    positive_seconds,
    print_json,
    print_table,
)
from lockstep.failures import CommandFailed, WrongUsage, unreadable

if TYPE_CHECKING:
    import http.client

    from lockstep.player_host.player_process import PlayerProcess

DEFAULT_ADDRESS: Final = "localhost:9780"

_ABOUT: Final = "deliver a topic to targets: databases, caches, services"
_RUN: Final = (
    "Deliver a topic to its targets, as configured in FILE (docs/player.md), in the foreground; or stand by "
    "while another player does. SIGTERM or Ctrl-C stops it cleanly: a standby takes over at once."
)
_CHANGE: Final = "The change lasts until the player's process ends: its configuration's file stays as it is."
_STATUS: Final = (
    "The logs of a player, and its targets. Exit status: 0 if all that is delivered here reaches all "
    "targets that are not paused, and no partition has a problem; 1 otherwise."
)


def add_to(families: Families) -> None:
    """Declare the command."""
    family = families.add_parser("player", help=_ABOUT, description=f"{_ABOUT.capitalize()}.")
    commands = family.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="run a player", description=_RUN)
    run.add_argument("file", metavar="FILE", help="the configuration, in TOML")
    run.set_defaults(run=_run)

    status = commands.add_parser("status", help="partitions, targets and positions", description=_STATUS)
    status.set_defaults(run=_status)
    add_json(status, "one object")

    pause = commands.add_parser("pause", help="send nothing to a target", description=_CHANGE)
    pause.set_defaults(run=_pause)
    resume = commands.add_parser(
        "resume",
        help="resume a target",
        description=f"Resume a target that is paused, or that the player stopped for an error. {_CHANGE}",
    )
    resume.set_defaults(run=_resume)
    add = commands.add_parser("add", help="add a target", description=_CHANGE)
    add.set_defaults(run=_add)
    remove = commands.add_parser(
        "remove", help="remove a target", description=f"The target keeps its position. {_CHANGE}"
    )
    remove.set_defaults(run=_remove)
    for command in (pause, resume, add, remove):
        command.add_argument("target", metavar="TARGET", help="the target's name")
    add.add_argument("address", metavar="ADDRESS", help="its address: HOST:PORT, or unix:/path")
    add.add_argument(
        "--first",
        default="earliest",
        metavar="earliest|latest|OFFSET",
        help="where it begins if it has stored no position yet (default: earliest)",
    )
    for command in (status, pause, resume, add, remove):
        command.add_argument(
            "--player",
            default=DEFAULT_ADDRESS,
            metavar="HOST:PORT",
            help=f"the address of the player (default {DEFAULT_ADDRESS})",
        )
        command.add_argument(
            "--token-file",
            metavar="FILE",
            help="the player's listen_token, in a file that others cannot read",
        )
        command.add_argument("--ca", metavar="FILE", help="HTTPS: the CA of the player's listen_certificate")
        command.add_argument(
            "--timeout",
            type=positive_seconds,
            default=30.0,
            metavar="SECONDS",
            help="how long to wait for a response (default 30)",
        )
    for command in (pause, resume, add, remove):
        add_json(command, "one object")


# --- a player in this process -----------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    import asyncio
    import os

    import uvloop

    from lockstep.broker.process.process_output import log_to_stderr, queued_output
    from lockstep.player_host.config import PlayerConfig, PlayerConfigError
    from lockstep.player_host.config_file import command_error, read
    from lockstep.player_host.player_process import CannotDeliver, PlayerProcess

    try:
        config = read(options.file, os.environ.get(BOOTSTRAP_VARIABLE, PlayerConfig.bootstrap))
    except OSError as error:
        raise WrongUsage(str(unreadable(error))) from error
    try:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with queued_output(), log_to_stderr(), runner:
            runner.run(_until_stopped(PlayerProcess(config)))
    except PlayerConfigError as error:
        raise command_error(options.file, error) from error
    except CannotDeliver as error:
        raise CommandFailed(str(error)) from error
    return 0


async def _until_stopped(process: PlayerProcess) -> None:
    """Raises CannotDeliver."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    stopping = asyncio.ensure_future(stopped.wait())
    living = asyncio.ensure_future(_live(process))
    try:
        await asyncio.wait((stopping, living), return_when=asyncio.FIRST_COMPLETED)
        if living.done():
            living.result()
    finally:
        for task in (stopping, living):
            task.cancel()
        await asyncio.gather(stopping, living, return_exceptions=True)
        await process.stop()


async def _live(process: PlayerProcess) -> None:
    await process.start()
    config = process.config
    where = f", serving status and metrics on {process.address}" if process.address else ""
    print(f"player {config.player} ready to play {config.topic}{where}", flush=True)
    await process.wait_until_done()


# --- requests to one --------------------------------------------------------------------------------------


def _status(options: argparse.Namespace) -> int:
    found = _send_request(options, "GET", "/status")
    if options.json:
        print_json(found)
    else:
        _show(found)
    return 0 if _is_healthy(found) else 1


def _pause(options: argparse.Namespace) -> int:
    return _change(options, "POST", f"/targets/{quote(options.target, '')}/pause")


def _resume(options: argparse.Namespace) -> int:
    return _change(options, "POST", f"/targets/{quote(options.target, '')}/resume")


def _remove(options: argparse.Namespace) -> int:
    return _change(options, "DELETE", f"/targets/{quote(options.target, '')}")


def _add(options: argparse.Namespace) -> int:
    first = int(options.first) if options.first.isdecimal() else options.first
    target = {"name": options.target, "address": options.address, "first": first}
    return _change(options, "POST", "/targets", target)


def _change(options: argparse.Namespace, method: str, path: str, body: object = None) -> int:
    response = _send_request(options, method, path, body)
    if options.json:
        print_json(response)
    else:
        print(f"target {response['target']} is {response['done']}, {response['lasts']}")
    return 0


def _send_request(options: argparse.Namespace, method: str, path: str, body: object = None) -> dict[str, Any]:
    """Returns the response. Raises CommandFailed."""
    import http.client
    import json

    from lockstep.broker.settings.addresses import parse_listener
    from lockstep.broker.settings.properties import ConfigError

    try:
        where = parse_listener(options.player, "--player")
    except ConfigError as error:
        raise WrongUsage(str(error)) from error
    headers = {"Content-Type": "application/json"} if method == "POST" else {}
    if options.token_file:
        headers["Authorization"] = f"Bearer {_read_token(options.token_file)}"
    connection = _connection(where.host, where.port, options)
    try:
        connection.request(method, path, "" if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    except OSError as error:
        why = (error.strerror or str(error) or type(error).__name__).lower()
        advice = "; --player is the value of `listen` in its configuration"
        raise CommandFailed(f"no player responds at {options.player}: {why}{advice}") from error
    except http.client.HTTPException as error:
        raise CommandFailed(f"the server at {options.player} is no player: it does not speak HTTP") from error
    finally:
        connection.close()
    if response.status == 401:
        raise CommandFailed(f"the player at {options.player} requires its listen_token: see --token-file")
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError
    except ValueError:
        response_text = text[:80].decode(errors="replace").strip()
        raise CommandFailed(f"the server at {options.player} is no player: {response_text!r}") from None
    if response.status != 200:
        raise CommandFailed(str(found.get("error", found)))
    return found


def _read_token(file: str) -> str:
    """Raises WrongUsage."""
    from pathlib import Path

    try:
        return Path(file).read_text(encoding="ascii").strip()
    except OSError as error:
        raise WrongUsage(f"--token-file: {unreadable(error)}") from error
    except UnicodeDecodeError:
        raise WrongUsage(f"{file} has no token, which is one word in ASCII") from None


def _connection(host: str, port: int, options: argparse.Namespace) -> http.client.HTTPConnection:
    """Raises WrongUsage."""
    import http.client
    import ssl

    if not options.ca:
        return http.client.HTTPConnection(host, port, timeout=options.timeout)
    try:
        context = ssl.create_default_context(cafile=options.ca)
    except ssl.SSLError:
        raise WrongUsage(f"--ca {options.ca}: no certificate can be read from it") from None
    except OSError as error:
        raise WrongUsage(f"--ca {options.ca}: {(error.strerror or str(error)).lower()}") from None
    return http.client.HTTPSConnection(host, port, timeout=options.timeout, context=context)


def _is_healthy(found: dict[str, Any]) -> bool:
    paused = {name for name, target in found["targets"].items() if target["paused"]}
    for log in found["logs"]:
        if log["failed"] or log.get("problem") or (log["is_playing"] and log["played"] is None):
            return False
        for target in (log["played"] or {}).get("targets", ()):
            is_well = target["link"] == "open" and not target["cannot_keep_up"] and not target.get("hung")
            if target["name"] not in paused and not is_well:
                return False
    return bool(found["logs"])


# --- output -----------------------------------------------------------------------------------------------


def _show(found: dict[str, Any]) -> None:
    print(f"player {found['player']}, topic {found['topic']}\n")
    print_table(
        ("PARTITION", "HERE", "PLAYER", "TERM", "POSITION", "PROBLEM"),
        [
            (
                _part(each),
                "delivers" if each["is_playing"] else "failed" if each["failed"] else "stands by",
                each["holder"] or "nobody",
                each["player_term"] or "-",
                each["played"]["current_position"] if each["played"] else "-",
                each["failed"] or each.get("problem", ""),
            )
            for each in found["logs"]
        ],
    )
    print()
    print_table(
        ("PARTITION", "TARGET", "ADDRESS", "LINK", "STATE", "STORED", "LAG", "WAITING", "UNACKED", "PROBLEM"),
        [
            (
                _part(log),
                each["name"],
                each["address"],
                each["link"],
                each["state"],
                each["last_ack"],
                each["lag"],
                each["waiting_entries"],
                each["unacknowledged_entries"],
                _problem(each),
            )
            for log in found["logs"]
            if log["played"]
            for each in log["played"]["targets"]
        ],
    )
    for log in found["logs"]:
        if log["played"] and (unrouted := log["played"].get("unrouted", 0)):
            part = _part(log)
            where = f"partition {part}" if part.isdecimal() else part
            print(f"\n{where}: {unrouted} parts of records dropped, for targets that are not there")


def _part(log: dict[str, Any]) -> str:
    from lockstep.player.source.interface import partition_label

    return partition_label(log["partition"], log.get("log_group"))


def _problem(target: dict[str, Any]) -> str:
    if target["stopped_because"]:
        return str(target["stopped_because"])
    if target["cannot_keep_up"]:
        return "cannot keep up"
    is_playing = target["link"] == "open" and not target.get("hung")
    return "" if is_playing else str(target["closed_because"])
