"""The `lockstep` command: reads the command line, runs one command, turns errors into one line.

Exit status: 0 done, 1 it could not be done (one line on standard error has the reason), 2 wrong usage, 130
stopped by Ctrl-C. `log verify` and `log dump` exit with 1 on corruption, `cluster status` and `player status`
where not all is well; `serve` has statuses of its own (docs/operating.md).

Invariants: importing this module imports no asyncio, no codec and no broker: `lockstep --help` must be
instant. Each family of commands is a module of `lockstep.commands` that imports what it needs when it runs.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from lockstep.build_info import build
from lockstep.commands import (
    acls,
    certs,
    cluster,
    configs,
    consume,
    groups,
    log,
    player,
    produce,
    quotas,
    serve,
    topics,
    users,
)
from lockstep.commands.options import BOOTSTRAP_OPTIONS, CONFIG_OPTION
from lockstep.failures import CommandFailed, os_error
from lockstep.linked_packages import missing_links
from lockstep.native import enable_if_requested

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Where the output goes."""
STOPPED_BY_USER: Final = 130

_DESCRIPTION: Final = "A durable, Kafka-compatible broker, and the tools to look into it."
_EXAMPLES: Final = """\
first steps:
  lockstep serve --data-dir data --listen localhost:9092
  echo hello | lockstep produce greetings
  lockstep consume greetings --from-beginning
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = _Parser(
        prog="lockstep",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action=_Version, help="print the version and exit")
    for options in (BOOTSTRAP_OPTIONS, (CONFIG_OPTION,), ("--timeout",)):
        root.add_argument(*options, action=_MisplacedOption, help=argparse.SUPPRESS)
    families = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for family in (
        serve,
        topics,
        configs,
        users,
        acls,
        quotas,
        groups,
        produce,
        consume,
        cluster,
        certs,
        player,
        log,
    ):
        family.add_to(families)
    return root


class _Parser(argparse.ArgumentParser):
    """Reports its own unknown arguments: argparse leaves that to the root, which shows the root's usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


class _MisplacedOption(argparse.Action):
    """An option of the commands that the root parser does not take."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, help=help)

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option: str | None = None
    ) -> None:
        parser.error(f"{option} goes behind the command: lockstep COMMAND ... {option} {values}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    _open_closed_streams()
    options = parser().parse_args(arguments)
    status: int = 0
    try:
        if problem := missing_links(Path(__file__).parent):
            raise CommandFailed(problem)
        enable_if_requested()
        status = options.run(options)
        sys.stdout.flush()
        return status
    except CommandFailed as error:
        return _fail(str(error), error.status)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "lockstep"):
            raise
        return _fail(
            f"the package {package} is missing: run `make setup` in the clone, or install Lockstep again"
        )
    except BrokenPipeError:
        # The reader of our output has closed it (`| head`).
        _discard_output()
        return status
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        _discard_output()
        return _fail(str(os_error(error)))
    except KeyboardInterrupt:
        return STOPPED_BY_USER


def _open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that the process was started without (`>&-`).

    So no log file or connection gets its descriptor, on which C code may write. The output streams can be
    used like any other; `sys.stdin` stays None, which a command that reads it reports.
    """
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)  # the lowest free descriptor: 0
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w"))


def _discard_output() -> None:
    """Redirects standard output to /dev/null: Python must not try to flush it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, status: int = 1) -> int:
    print(f"lockstep: {' '.join(text.split())}", file=sys.stderr)
    return status


class _Version(argparse.Action):
    """Prints version, commit and whether the extension is used, which are looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from lockstep.extension import load

        print(f"lockstep {build()}, {load()[1]}")
        parser.exit()
