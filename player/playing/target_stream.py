"""One stream as the playing has it: whatever is told of it goes to the core with its target's name and term.

Owns: the pair that the stream was opened with; the one thing that is read for it. The bounds of the log are
read after the greeting came, as the core wants them. Invariants: once closed it reads nothing more; no target
is left a mark at a place that the log has not.
Does not: judge what comes in; the core drops what an older stream says.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from player.core.messages import Hello
from player.core.ready import Fetch
from player.source.interface import Bounds, RangeLost
from player.transport.interface import Handshake, Stream

if TYPE_CHECKING:
    from player.playing.playing import Playing


class TargetStream:
    """The `StreamEvents` of one stream, and the stream."""

    __slots__ = ("_has_mark", "_has_missed", "_playing", "_reading", "_stream", "name", "target_term")

    def __init__(self, playing: Playing, name: str, target_term: int) -> None:
        self._playing = playing
        self.name = name
        self.target_term = target_term
        self._stream: Stream | None = None
        self._reading: asyncio.Task[None] | None = None
        """The log's bounds, then the fetches of its recovery: the core wants one at a time."""
        self._has_missed = False
        self._has_mark: asyncio.Future[bool] | None = None
        """While the target is asked that, and not greeted."""

    # --- what the playing does with it --------------------------------------------------------------------

    def open(self, address: str, handshake: Handshake) -> None:
        self._stream = self._playing.streams.open(address, handshake, self)

    def open_new(self, address: str, handshake: Handshake, from_earliest: bool) -> None:
        """The same where the target may have no mark, when it is known what the log has now: there it begins,
        or there its first position must be."""
        self._reading = self._playing.spawn(self._opened_new(address, handshake, from_earliest))

    @property
    def stream(self) -> Stream:
        assert self._stream is not None, "the core writes to what has answered"
        return self._stream

    def close(self) -> None:
        self.leave()
        if self._stream is not None:
            self._stream.close()

    def leave(self) -> None:
        """The stream is gone: what is being read for it is wanted by nobody."""
        if self._reading is not None:
            self._reading.cancel()

    def fetch(self, fetch: Fetch) -> bool:
        """Read for its recovery; whether that is the first time."""
        self._reading = self._playing.spawn(self._fetched(fetch))
        is_first = not self._has_missed
        self._has_missed = True
        return is_first

    # --- what is told of it -------------------------------------------------------------------------------

    def on_greeted(self, position: int) -> None:
        if self._has_mark is not None:
            self._told_of_mark(True)  # one that keeps such a Hello: now it has
        elif self._reading is None:  # a target may say it again, however often
            self._reading = self._playing.spawn(self._bounded(position))

    def on_stale(self, player_term: int) -> None:
        if self._has_mark is not None:
            self._told_of_mark(player_term > 0)
        else:
            self._playing.on_stale(self, player_term)

    def on_acknowledged(self, position: int) -> None:
        self._playing.on_acknowledged(self, position)

    def on_written(self) -> None:
        self._playing.on_written(self)

    def on_closed(self, reason: str) -> None:
        if self._has_mark is not None and self._has_mark.done():
            return  # it was asked on this stream, and has answered
        self.leave()
        self._playing.on_disconnected(self, reason)

    # --- what is read for it ------------------------------------------------------------------------------

    async def _opened_new(self, address: str, handshake: Handshake, from_earliest: bool) -> None:
        hello = handshake.hello
        bounds = await self._playing.source.bounds()
        wrong = "" if from_earliest else _misplaced(hello.first_position, bounds)
        if wrong and not await self._marked(address, handshake):
            self._reading = None
            self._playing.on_misplaced(self, f"it has no mark, and {wrong}")
            return
        self._reading = None
        if from_earliest:
            hello = Hello(hello.log_id, hello.player_term, hello.target_term, bounds.first_position)
        self.open(address, Handshake(hello, handshake.topic, handshake.partition))

    async def _marked(self, address: str, handshake: Handshake) -> bool:
        """Whether the target has a mark, asked without leaving it one, which would be there for good.

        Terms of (0, 0) are above none: it answers Stale, in the terms that it has stored, if it has.
        """
        hello = Hello(handshake.hello.log_id, 0, 0, handshake.hello.first_position)
        self._has_mark = asyncio.get_running_loop().create_future()
        self.open(address, Handshake(hello, handshake.topic, handshake.partition))
        has_mark = await self._has_mark
        self._has_mark = None
        self.stream.close()
        return has_mark

    def _told_of_mark(self, has_mark: bool) -> None:
        assert self._has_mark is not None
        if not self._has_mark.done():
            self._has_mark.set_result(has_mark)

    async def _bounded(self, position: int) -> None:
        bounds = await self._playing.source.bounds()
        self._playing.on_connected(self, position, bounds)

    async def _fetched(self, fetch: Fetch) -> None:
        playing = self._playing
        core, source = playing.core, playing.source
        try:
            chunk = await source.read(fetch.first_position, fetch.max_bytes, 0.0)
        except RangeLost:
            playing.step(core.on_range_lost, self.name, self.target_term)
            return
        if chunk.through_position < fetch.first_position:
            playing.step(core.on_fetch_failed, self.name, self.target_term)
        else:
            playing.step(core.on_fetched, self.name, self.target_term, chunk.entries, chunk.through_position)


def _misplaced(first_position: int, bounds: Bounds) -> str:
    """Why a target cannot begin there; empty where it can."""
    if first_position < bounds.first_position:
        return f"is to begin at {first_position}, the log begins at {bounds.first_position}"
    if first_position > bounds.next_position:
        return f"is to begin at {first_position}, the log ends before {bounds.next_position}"
    return ""
