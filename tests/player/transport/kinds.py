"""The transports under test, each as the same thing: where to listen, who dials, who serves."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from lockstep.player.transport.grpc_server import GrpcServer
from lockstep.player.transport.grpc_streams import GrpcStreams
from lockstep.player.transport.interface import Server, Sessions, Streams
from lockstep.player.transport.raw_server import RawServer
from lockstep.player.transport.raw_streams import RawStreams
from tests.player.transport.memory_streams import MemoryNetwork

ON_SOCKETS = ("grpc", "grpc-unix", "raw", "raw-unix")
ALL = (*ON_SOCKETS, "memory")


class Kind:
    """One transport, for one test."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self._folder = folder
        self._network = MemoryNetwork()
        self._numbers = itertools.count(1)
        self._servers: list[Server] = []
        self._streams: list[Streams] = []

    def address(self) -> str:
        """Where to listen."""
        if self.name.endswith("-unix"):
            # relative, since such a path may have 107 characters
            return f"unix:{os.path.relpath(self._folder)}/{next(self._numbers)}"
        return f"memory-{next(self._numbers)}" if self.name == "memory" else "127.0.0.1:0"

    async def serve(self, sessions: Sessions, address: str | None = None, **options: float) -> str:
        """Listen; the address to dial."""
        kinds: dict[str, Callable[..., Server]]
        kinds = {"grpc": GrpcServer, "raw": RawServer, "memory": self._network.server}
        server = kinds[self.name.split("-")[0]](sessions, **options)
        self._servers.append(server)
        return await server.start(address or self.address())

    def streams(self, **options: int) -> Streams:
        kinds: dict[str, Callable[..., Streams]]
        kinds = {"grpc": GrpcStreams, "raw": RawStreams, "memory": self._network.streams}
        made = kinds[self.name.split("-")[0]](**options)
        self._streams.append(made)
        return made

    @property
    def server(self) -> Server:
        return self._servers[-1]

    async def close(self) -> None:
        for streams in self._streams:
            await streams.close()
        for server in self._servers:
            await server.close(0)


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncIterator[Kind]:
    kind = Kind(name, folder)
    try:
        yield kind
    finally:
        await kind.close()
