"""The reading of new entries, for all targets that follow.

Owns: where the next read begins, and the wait for room. Invariants: what a read brings is fed before the loop
turns; one call feeds about a batch at most, so that it makes no queue overflow; nothing is read while every
target that follows has much waiting. Does not: read for recoveries (`target_stream.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from player.core.messages import Entry
from player.playing.ended import PlayingEnded
from player.source.interface import Chunk, RangeLost

if TYPE_CHECKING:
    from player.playing.playing import Playing

log = logging.getLogger("lockstep.player")


class MainStream:
    """Of one playing."""

    __slots__ = ("_playing", "_room", "entries", "reads")

    def __init__(self, playing: Playing) -> None:
        self._playing = playing
        self._room: asyncio.Future[None] | None = None
        self.entries = 0
        """Read so far, whomever they were for."""
        self.reads = 0
        """Answers that brought something, be it only a position."""

    async def read_from(self, position: int) -> None:
        """Read and feed, until cancelled. Raises SourceEnded, PlayingEnded."""
        playing = self._playing
        core, source, max_bytes = playing.core, playing.source, playing.settings.batch.size_bytes
        while True:
            await self._for_room()
            try:
                chunk = await source.read(position, max_bytes, playing.poll_s)
            except RangeLost as lost:
                if lost.first_position <= position:
                    raise PlayingEnded(f"nothing can be read at {position}, though {lost}") from lost
                log.warning("%s: %s, where %d was to be read", playing.log_name, lost, position)
                playing.step(core.feed_lost, lost.first_position)
                position = lost.first_position
                continue
            if chunk.through_position >= position:
                position = chunk.through_position + 1
                await self._feed(chunk)
            await asyncio.sleep(0)  # a source may have much, and wait for nothing

    async def _feed(self, chunk: Chunk) -> None:
        playing = self._playing
        core, most = playing.core, playing.settings.batch.entries
        self.reads += 1
        self.entries += len(chunk.entries)
        rest: Sequence[Entry] = chunk.entries
        while len(rest) > most:
            playing.step(core.feed, rest[:most], rest[most - 1].position)
            rest = rest[most:]
            await self._for_room()
        playing.step(core.feed, rest, chunk.through_position)

    async def _for_room(self) -> None:
        while not self._playing.core.has_room:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def stepped(self) -> None:
        """Something has happened: perhaps there is room now."""
        if self._room is not None and self._playing.core.has_room:
            room, self._room = self._room, None
            if not room.done():
                room.set_result(None)
