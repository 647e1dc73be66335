"""`lockstep serve`: one broker, in this process.

Reads the settings; everything else, the reason why it cannot start included, is `lockstep.broker.main`'s.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from lockstep.commands.options import Families
from lockstep.failures import CommandFailed, WrongUsage

if TYPE_CHECKING:
    from lockstep.broker.main import Companion
    from lockstep.broker.settings.config import Settings


def add_to(families: Families) -> None:
    """Declare the command."""
    serve = families.add_parser(
        "serve",
        help="run a broker",
        description="Run a broker in the foreground. SIGTERM or Ctrl-C stops it cleanly. Later sources win: "
        "defaults, --config, --set, the other flags. More: docs/operating.md.",
    )
    serve.add_argument("--data-dir", metavar="DIR", help="the directory of the log (log.dirs; default: data)")
    serve.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where to listen (listeners; default: localhost:9092). Port 0 takes a free one.",
    )
    serve.add_argument("--node-id", metavar="N", help="this node's number (node.id; default: 1)")
    serve.add_argument(
        "--peers",
        metavar="LIST",
        help="every node of the cluster, ID@HOST:PORT of its replication listener, with commas between and "
        "this node included; or a file with one node a line (lockstep.peers; default: this node alone). "
        "If its address there is not this machine's own, --set lockstep.peers.listener=HOST:PORT is where "
        "this node listens.",
    )
    serve.add_argument("--config", metavar="FILE", help="a properties file with Kafka's names")
    serve.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="one setting, by the same names; may be repeated. docs/settings.md has all, and so has "
        "lockstep configs describe broker N --all",
    )
    serve.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from pathlib import Path

    from lockstep.broker.settings.loader import load
    from lockstep.broker.settings.properties import ConfigError

    if options.peers is not None and not options.peers.strip():
        raise WrongUsage("--peers names no node; without it this node is alone")
    flags = {
        "log.dirs": options.data_dir,
        "listeners": options.listen,
        "node.id": options.node_id,
        "lockstep.peers": options.peers,
    }
    try:
        settings = load(
            None if options.config is None else Path(options.config),
            options.set,
            {name: text for name, text in flags.items() if text is not None},
        )
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    except OSError as error:
        raise CommandFailed(f"cannot read {error.filename}: {(error.strerror or '').lower()}") from error
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{options.config} is not a text file in UTF-8: {error}") from error

    from lockstep.broker import main

    main.run(settings, _beside(settings))
    return 0


def _beside(settings: Settings) -> Companion | None:
    """The player that is to run in this process. Raises CommandFailed."""
    if not settings.lockstep_player_config:
        return None
    # Here and not above: what a player needs takes time and memory, which only a broker with players should
    # pay.
    from lockstep.player_host.config import PlayerConfigError
    from lockstep.player_host.config_file import read
    from lockstep.player_host.in_broker import PlayerInBroker

    file = settings.lockstep_player_config
    try:
        return PlayerInBroker(read(file))
    except PlayerConfigError as error:
        raise CommandFailed(f"{file}: {error}") from error
