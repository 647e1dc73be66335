"""The player's targets, in a process of their own: a server for each, all on one event loop.

Takes one job: how many there are (where some are elsewhere, `count` of them are here, from `first` on), the
transport, and a directory (and a name) if they shall be SQLite files, one for each, where every record is a
row. Without one they are lean: in memory, acknowledged at once. Prints the addresses, then responds to lines:
{transactions, opens_ns, closes_ns, timeout_s} with both delays when all of that has come; {do: "away" |
"back", target} when that target's server has ended, or listens again; {do: "wait", records: [...],
timeout_s} when each has got so many, with when.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench.player.watched import LeanSessions, Watched
from bench.player.workload import Shape, delays, expected_parts
from bench.sessions.children import Words, child_main, next_line, respond
from compat_tests.probe import HOST
from lockstep.player.target.records import Delivered
from lockstep.player.target.sessions import StoreSessions
from lockstep.player.target.sqlite import SqliteStore
from lockstep.player.transport.factory import Transport, make_server
from lockstep.player.transport.interface import Server, Sessions

LOOK_S = 0.01


class NotReceived(RuntimeError):
    """Something has not come in time."""


def _store(path: Path) -> Sessions:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE parts (offset INTEGER PRIMARY KEY, part BLOB)")

    def apply(connection: sqlite3.Connection, delivered: Delivered) -> None:
        rows = [(record.offset, record.value) for record in delivered.records]
        connection.executemany("INSERT INTO parts VALUES (?, ?)", rows)

    return StoreSessions(SqliteStore(path, apply))


class Targets:
    """All of them."""

    def __init__(self, job: Words) -> None:
        self._transport: Transport = job["transport"]
        directory, name = job["directory"], job.get("name", "target")
        self.first: int = job.get("first", 0)
        """The number of the first that is here."""
        count: int = job["count"] if "count" in job else job["targets"]
        paths = [Path(directory) / f"{name}-{each}.db" for each in range(count)]
        self.watched = [
            Watched(
                _store(path) if directory else LeanSessions(),
                at_acknowledgement=bool(directory),
                keep=job.get("keep", True),
            )
            for path in paths
        ]
        self.addresses = [f"{HOST}:0"] * len(self.watched)
        self._servers: list[Server | None] = [None] * len(self.watched)

    async def listen(self, target: int) -> None:
        server = make_server(self._transport, self.watched[target])
        self.addresses[target] = await server.start(self.addresses[target])
        self._servers[target] = server

    async def leave(self, target: int) -> None:
        server, self._servers[target] = self._servers[target], None
        if server is not None:
            await server.close(0.0)

    async def received(self, records: Sequence[int], timeout_s: float) -> None:
        """Until each has got so many. Raises NotReceived."""
        deadline = time.monotonic() + timeout_s
        while any(each.records < count for each, count in zip(self.watched, records, strict=True)):
            if time.monotonic() > deadline:
                found = [each.records for each in self.watched]
                raise NotReceived(f"{found} records of {list(records)} after {timeout_s:.0f} s")
            await asyncio.sleep(LOOK_S)


async def _run_command(targets: Targets, shape: Shape | None, line: Words) -> dict[str, Any]:
    do = line.get("do", "delays")
    if do == "delays":
        assert shape is not None
        count = line["transactions"]
        numbers = range(targets.first, targets.first + len(targets.watched))
        await targets.received([expected_parts(each, shape, count) for each in numbers], line["timeout_s"])
        noted = [each.noted() for each in targets.watched]
        for target, each in zip(numbers, noted, strict=True):
            each.check(target, shape, count)
        return delays(noted, line["opens_ns"], line["closes_ns"])
    if do == "wait":
        await targets.received(line["records"], line["timeout_s"])
    elif do == "back":
        await targets.listen(line["target"])
    else:
        await targets.leave(line["target"])
    names = ("records", "record_bytes", "greeted_ns", "first_ns", "last_ns")
    return {"targets": [{name: getattr(each, name) for name in names} for each in targets.watched]}


async def serve(job: Words) -> None:
    """Until the last line."""
    targets = Targets(job)
    shape = Shape(job["targets"], job["keys"]) if "keys" in job else None
    for target in range(len(targets.watched)):
        await targets.listen(target)
    respond({"addresses": targets.addresses})
    while (line := await asyncio.to_thread(next_line)) is not None:
        respond(await _run_command(targets, shape, line))
    for target in range(len(targets.watched)):
        await targets.leave(target)


def work(job: Words) -> None:
    uvloop.run(serve(job))


if __name__ == "__main__":
    sys.exit(child_main(work))
