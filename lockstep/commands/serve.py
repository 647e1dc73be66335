"""`lockstep serve`: one broker, in this process; with `--processes` several, each in a process of its own.

Reads the settings; everything else, the reason why it cannot start included, is `lockstep.broker.main`'s, or
`lockstep.supervisor`'s.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lockstep.commands.options import Families
from lockstep.failures import CommandFailed, WrongUsage, unreadable

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
    serve.add_argument(
        "--processes",
        metavar="N",
        type=int,
        default=1,
        help="run N nodes on this machine, each in a process of its own, to use more than one core: a "
        "cluster with one replica of each partition, in DIR/node-1 to DIR/node-N. Node 1 listens where "
        "--listen names, which is all that clients need, the others on the ports above. docs/cluster.md",
    )
    serve.add_argument("--child-of", type=int, help=argparse.SUPPRESS)
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
    if options.peers is not None and not options.peers.strip():
        raise WrongUsage("--peers names no node; without it this node is alone")
    flags = {
        "log.dirs": options.data_dir,
        "listeners": options.listen,
        "node.id": options.node_id,
        "lockstep.peers": options.peers,
    }
    given = {name: text for name, text in flags.items() if text is not None}
    if options.processes != 1:
        return _run_processes(options, given)
    if options.child_of is not None:
        from lockstep.supervisor.supervisor import die_with_parent

        die_with_parent(options.child_of)
    gc.disable()  # imports leave no garbage; the collector's search for it takes a seventh of a start's CPU
    try:
        settings = _load(options, options.set, given)
        companion = _configured_player(settings)

        from lockstep.broker import main
    finally:
        gc.freeze()
        gc.enable()
    main.run(settings, companion)
    return 0


def _load(options: argparse.Namespace, assignments: Sequence[str], flags: Mapping[str, str]) -> Settings:
    """Raises WrongUsage, CommandFailed."""
    from pathlib import Path

    from lockstep.broker.settings.loader import load
    from lockstep.broker.settings.properties import ConfigError

    try:
        return load(None if options.config is None else Path(options.config), assignments, flags)
    except ConfigError as error:
        raise (CommandFailed if error.is_temporary else WrongUsage)(str(error)) from None
    except OSError as error:
        raise WrongUsage(str(unreadable(error))) from error
    except UnicodeDecodeError as error:
        raise WrongUsage(f"{options.config} is not a text file in UTF-8: {error}") from error


def _run_processes(options: argparse.Namespace, flags: Mapping[str, str]) -> int:
    from pathlib import Path

    from lockstep.supervisor import node_plan, supervisor

    try:
        node_plan.check_processes(options.processes)  # first: checking a hundred thousand peers takes minutes
    except node_plan.PlanError as error:
        raise WrongUsage(str(error)) from None
    # Checked as a cluster's settings, before the nodes' own are known; each node's are checked again below.
    provisional = {"node.id": "1", "lockstep.peers": node_plan.provisional_peers(max(options.processes, 2))}
    settings = _load(options, options.set, {**flags, **provisional})
    names = {assignment.partition("=")[0].strip() for assignment in options.set}
    given = {*names, *flags, *_names_in_file(options.config)}
    try:
        plans = node_plan.plan_nodes(settings, options.processes, given)
    except node_plan.PlanError as error:
        raise WrongUsage(str(error)) from None
    commands = []
    for plan in plans:
        replaced = {*plan.settings, "log.dir"}
        others = [each for each in options.set if each.partition("=")[0].strip() not in replaced]
        assignments = [*others, *(f"{name}={text}" for name, text in plan.settings.items())]
        _configured_player(_load(options, assignments, {}))
        config = [] if options.config is None else ["--config", options.config]
        sets = [part for assignment in assignments for part in ("--set", assignment)]
        commands.append([*_own_command(), "serve", "--child-of", str(os.getpid()), *config, *sets])
    return supervisor.run(Path(settings.log_dirs), plans, commands, settings.lockstep_shutdown_timeout_ms)


def _names_in_file(file: str | None) -> set[str]:
    """The settings in a file that could be read before."""
    if file is None:
        return set()
    import javaproperties

    with open(file, encoding="utf-8") as stream:
        return set(javaproperties.load(stream))


def _own_command() -> list[str]:
    """The command that started this process, without its arguments."""
    script = sys.argv[0]
    return [sys.executable, *(["-m", "lockstep"] if script.endswith("__main__.py") else [script])]


def _configured_player(settings: Settings) -> Companion | None:
    """The player that is to run in this process. Raises CommandFailed."""
    if not settings.lockstep_player_config:
        return None
    # Here and not above: what a player needs takes time and memory, which only a broker with players should
    # pay.
    from lockstep.player_host.config import PlayerConfigError
    from lockstep.player_host.config_file import command_error, read
    from lockstep.player_host.in_broker import PlayerInBroker

    file = settings.lockstep_player_config
    try:
        return PlayerInBroker(read(file))
    except OSError as error:
        raise unreadable(error) from error
    except PlayerConfigError as error:
        raise command_error(file, error) from error
