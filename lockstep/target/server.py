"""A target that listens: a store, its sessions, and a transport's server, started and stopped together.

Owns: their order. At the end the target notifies its streams, finishes the parts that it is applying and
drops the queued ones, which the player sends again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from lockstep.player.target.sessions import StoreSessions, TargetSettings
from lockstep.player.target.store import TargetStore
from lockstep.player.target.threads import in_thread
from lockstep.player.transport.factory import Transport, make_server
from lockstep.player.transport.tls_files import TlsFiles

_log = logging.getLogger("lockstep.target")


class Serving(NamedTuple):
    """A target that listens."""

    address: str
    """The address for the player's configuration."""


@contextlib.asynccontextmanager
async def serve(
    store: TargetStore,
    listen: str = "localhost:0",
    *,
    transport: Transport = "grpc",
    inline: bool = False,
    settings: TargetSettings | None = None,
    tls: TlsFiles | None = None,
) -> AsyncIterator[Serving]:
    """Listens for players until the block ends.

    Args:
        listen: HOST:PORT (port 0: any that is free), or unix:PATH. Without `tls` any player that can connect
            can send.
        transport: raw frames have less delay; the player must use the same.
        inline: apply on the event loop. See `StoreSessions`.
        tls: the certificate of this target, and whom it trusts: only players with a certificate of theirs.
    Raises:
        OSError: the address cannot be bound, or a file of TLS cannot be read.
        ValueError: there is no such transport, `listen` is no address, or keys do not fit.
    """
    sessions = StoreSessions(store, settings, inline=inline)
    server = make_server(transport, sessions, tls)
    address = await server.start(listen)
    _log.info("target ready, serving players on %s", address)
    try:
        yield Serving(address)
    finally:
        await sessions.close()
        await server.close()


def serve_in_thread(
    store: TargetStore,
    listen: str = "localhost:0",
    *,
    transport: Transport = "grpc",
    settings: TargetSettings | None = None,
    tls: TlsFiles | None = None,
) -> AbstractContextManager[Serving]:
    """Like `serve` for applications without asyncio: on a loop in a thread. `apply` runs in other threads."""
    return in_thread(lambda: serve(store, listen, transport=transport, settings=settings, tls=tls))
