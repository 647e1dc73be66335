"""`python -m lockstep.demo.shard`: a shard that listens for a player until it is stopped, or an audit of one.

Exit status: 0 done (also by Ctrl-C or SIGTERM), 1 an audit found something, or it could not be done (one line
on standard error has the reason), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lockstep.demo.shard.tables import Tables
from lockstep.player.target.store import TargetStore
from lockstep.player.transport.addresses import parse_address
from lockstep.target import SqliteStore, serve

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="python -m lockstep.demo.shard",
        description="A shard that a player sends to: the newest value of each key, and what was applied.",
    )
    root.add_argument(
        "--store",
        required=True,
        type=_store_url,
        metavar="URL",
        help="sqlite:///file.db (one more slash for an absolute path), or postgresql://...",
    )
    root.add_argument(
        "--listen",
        default="localhost:7100",
        type=_address,
        metavar="HOST:PORT",
        help="where players connect (default: localhost:7100; port 0: any that is free)",
    )
    root.add_argument("--transport", choices=("grpc", "raw"), default="grpc", help="(default: grpc)")
    root.add_argument(
        "--audit", action="store_true", help="read what was applied, report what is wrong, and end"
    )
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    is_postgres = options.store.startswith(POSTGRES)
    tables = Tables(is_postgres)
    try:
        store = _store(options.store, tables)
        if options.audit and not _is_there(options.store):
            raise FileNotFoundError(f"there is no {options.store}")
        with _connect(options.store) as connection:
            if options.audit:
                return _audit(tables, connection)
            tables.create(connection)
        asyncio.run(_serve(store, options))
    except sqlite3.Error as error:
        return _fail(f"{options.store}: {error}")
    except (OSError, ImportError) as error:
        return _fail(str(error))
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "psycopg":
            raise
        return _fail(str(error))
    return 0


async def _serve(store: TargetStore, options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(store, options.listen, transport=options.transport) as serving:
        print(f"shard ready, serving players on {serving.address}", flush=True)
        await stop.wait()


def _store(url: str, tables: Tables) -> TargetStore:
    if not url.startswith(POSTGRES):
        return SqliteStore(url.removeprefix(SQLITE), tables.apply)
    from lockstep.target import PostgresStore

    return PostgresStore(url, tables.apply)


@contextlib.contextmanager
def _connect(url: str) -> Iterator[Any]:
    if url.startswith(POSTGRES):
        import psycopg

        with psycopg.connect(url) as postgres:
            yield postgres
        return
    with contextlib.closing(sqlite3.connect(url.removeprefix(SQLITE))) as sqlite, sqlite:
        yield sqlite


def _audit(tables: Tables, connection: Any) -> int:
    found = tables.audit(connection)
    for problem in found.problems:
        print(f"error: {problem}", file=sys.stderr)
    print(found)
    return 1 if found.problems else 0


def _is_there(url: str) -> bool:
    """SQLite would make the file, and the audit find nothing wrong with it."""
    return url.startswith(POSTGRES) or Path(url.removeprefix(SQLITE)).exists()


def _fail(problem: str) -> int:
    print(f"error: {' '.join(problem.split())}", file=sys.stderr)
    return 1


def _store_url(text: str) -> str:
    """An argument type."""
    if (text.startswith(SQLITE) and text != SQLITE) or text.startswith(POSTGRES):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither sqlite:///FILE nor postgresql://...")


def _address(text: str) -> str:
    """An argument type."""
    try:
        parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


if __name__ == "__main__":
    sys.exit(main())
