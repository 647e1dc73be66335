"""A broker with the players of a run: `lockstep serve`, and a port where a player is requested.

`python -m bench.player.child_host serve ...` takes the options of `lockstep serve`. A connection to the port
in the file PORT_FILE, beside its log file, is one player: its job is the first line, it ends with the
connection. Player and source are those that `lockstep.player.config` sets for a broker.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from bench.player.player_runs import Lines, play
from bench.sessions.children import PORT_FILE, Words
from compat_tests.probe import HOST
from lockstep.broker.main import run
from lockstep.broker.server import Broker
from lockstep.broker.settings.loader import load
from lockstep.commands import serve
from lockstep.player_host.in_process_source import InProcessSource


@contextlib.asynccontextmanager
async def taking_players(broker: Broker) -> AsyncIterator[None]:
    """While the broker serves."""

    async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def next_line() -> Words | None:
            line = await reader.readline()
            return json.loads(line) if line else None

        def send(words: Words) -> None:
            writer.write(json.dumps(words).encode() + b"\n")

        try:
            await _play(broker, await next_line() or {}, next_line, send)
        except Exception as error:
            send({"error": f"{type(error).__name__}: {error}"})
        finally:
            writer.close()

    listening = await asyncio.start_server(serve_one, HOST, 0)
    _tell(listening)
    async with listening:
        yield


def _tell(listening: asyncio.Server) -> None:
    Path(PORT_FILE).write_text(str(listening.sockets[0].getsockname()[1]))


async def _play(broker: Broker, job: Words, next_line: Lines, send: Callable[[Words], None]) -> None:
    topic = broker.assembly.cluster.topic(job["topic"])
    if topic is None:
        raise LookupError(f"there is no topic {job['topic']}")
    source = InProcessSource(broker.assembly.cluster, broker.assembly.fetch_purgatory, topic.partitions[0])
    try:
        await play(job, source, next_line, send)
    finally:
        await source.close()


def main() -> int:
    """Serve until SIGTERM; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.player.child_host")
    serve.add_to(parser.add_subparsers(required=True))
    options = parser.parse_args()
    flags = {
        "log.dirs": options.data_dir,
        "listeners": options.listen,
        "node.id": options.node_id,
        "lockstep.peers": options.peers,
    }
    given = {name: text for name, text in flags.items() if text is not None}
    run(load(None, options.set, given), taking_players)
    return 0


if __name__ == "__main__":
    sys.exit(main())
