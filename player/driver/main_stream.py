"""The reading of new entries, for all targets that follow the main stream.

Owns: the next read's position, and the wait for room. Invariants: a read's entries are fed in the same
iteration of the loop; one call feeds about a batch at most, so that it makes no queue overflow; nothing is
read while every following target has a long queue. Does not: read for recoveries (`target_stream.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from lockstep.player.core.messages import Entry
from lockstep.player.driver.errors import PlayerStopped
from lockstep.player.driver.interface import Driver
from lockstep.player.source.interface import LogChunk, RangeLost

log = logging.getLogger("lockstep.player")


class MainStream:
    """The main stream of one driver."""

    __slots__ = ("_driver", "_room", "entries", "reads")

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._room: asyncio.Future[None] | None = None
        self.entries = 0
        """Entries read so far, for any target or none."""
        self.reads = 0
        """Reads that brought something, if only a position."""

    async def read_from(self, position: int) -> None:
        """Read and feed, until cancelled. Raises SourceClosed, PlayerStopped."""
        driver = self._driver
        core, source, max_bytes = driver.core, driver.source, driver.settings.batch.size_bytes
        while True:
            await self._wait_for_room()
            try:
                chunk = await source.read(position, max_bytes, driver.poll_s)
            except RangeLost as lost:
                if lost.first_position <= position:
                    raise PlayerStopped(f"nothing can be read at {position}, though {lost}") from lost
                log.warning("%s: %s, where %d was to be read", driver.log_name, lost, position)
                driver.step(core.feed_lost, lost.first_position)
                position = lost.first_position
                continue
            if chunk.through_position >= position:
                position = chunk.through_position + 1
                await self._feed(chunk)
            await asyncio.sleep(0)  # a source may return at once, again and again

    async def _feed(self, chunk: LogChunk) -> None:
        driver = self._driver
        core, max_entries = driver.core, driver.settings.batch.entries
        self.reads += 1
        self.entries += len(chunk.entries)
        rest: Sequence[Entry] = chunk.entries
        while len(rest) > max_entries:
            driver.step(core.feed, rest[:max_entries], rest[max_entries - 1].position)
            rest = rest[max_entries:]
            await self._wait_for_room()
        driver.step(core.feed, rest, chunk.through_position)

    async def _wait_for_room(self) -> None:
        while not self._driver.core.has_room:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def on_step(self) -> None:
        """Resume reading if this step has made room."""
        if self._room is not None and self._driver.core.has_room:
            room, self._room = self._room, None
            if not room.done():
                room.set_result(None)
