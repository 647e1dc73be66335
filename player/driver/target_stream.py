"""One stream of a driver: its events go to the core with its target's name and term.

Owns: the terms that the stream was opened with; the one read for it. The bounds of the log are read after
the target's response came, as the core requires. Invariants: once closed it reads nothing more; no target
gets a stored position outside of the log.
Does not: validate events; the core drops those of older streams.
"""

from __future__ import annotations

import asyncio

from lockstep.player.core.messages import Hello
from lockstep.player.core.ready import RangeRead
from lockstep.player.driver.interface import Driver
from lockstep.player.source.interface import LogBounds, RangeLost
from lockstep.player.transport.interface import Handshake, Stream


class TargetStream:
    """The `StreamEvents` of one stream, and the stream."""

    __slots__ = ("_driver", "_has_fetched", "_position_probe", "_reading", "_stream", "name", "target_term")

    def __init__(self, driver: Driver, name: str, target_term: int) -> None:
        self._driver = driver
        self.name = name
        self.target_term = target_term
        self._stream: Stream | None = None
        self._reading: asyncio.Task[None] | None = None
        """The log's bounds, then the fetches of its recovery: one at a time."""
        self._has_fetched = False
        self._position_probe: asyncio.Future[bool] | None = None
        """Set while the stream only requests the target's position, without a new term."""

    # --- for the driver -----------------------------------------------------------------------------------

    def open(self, address: str, handshake: Handshake) -> None:
        self._stream = self._driver.streams.open(address, handshake, self)

    def open_new(self, address: str, handshake: Handshake, from_earliest: bool) -> None:
        """The same where the target may have no stored position: first the log's bounds are read, where its
        first position must be."""
        self._reading = self._driver.spawn(self._open_new(address, handshake, from_earliest))

    @property
    def stream(self) -> Stream:
        assert self._stream is not None, "the core writes to open streams only"
        return self._stream

    def close(self) -> None:
        self.cancel_read()
        if self._stream is not None:
            self._stream.close()

    def cancel_read(self) -> None:
        """Cancel the read for a closed stream."""
        if self._reading is not None:
            self._reading.cancel()

    def fetch(self, fetch: RangeRead) -> bool:
        """Read for its recovery; True the first time."""
        self._reading = self._driver.spawn(self._read_range(fetch))
        is_first = not self._has_fetched
        self._has_fetched = True
        return is_first

    # --- StreamEvents -------------------------------------------------------------------------------------

    def on_greeted(self, position: int) -> None:
        if self._position_probe is not None:
            self._resolve_probe(True)  # a target that accepts terms of (0, 0) has stored a position now
        elif self._reading is None:  # a target may repeat it
            self._reading = self._driver.spawn(self._connect_with_bounds(position))

    def on_stale(self, player_term: int) -> None:
        if self._position_probe is not None:
            self._resolve_probe(player_term > 0)
        else:
            self._driver.on_stale(self, player_term)

    def on_acknowledged(self, position: int) -> None:
        self._driver.on_acknowledged(self, position)

    def on_written(self) -> None:
        self._driver.on_written(self)

    def on_closed(self, reason: str) -> None:
        if self._position_probe is not None and self._position_probe.done():
            return  # the stream of a probe, which has its response
        self.cancel_read()
        self._driver.on_disconnected(self, reason)

    # --- reads for it -------------------------------------------------------------------------------------

    async def _open_new(self, address: str, handshake: Handshake, from_earliest: bool) -> None:
        hello = handshake.hello
        bounds = await self._driver.source.bounds()
        wrong = "" if from_earliest else _position_error(hello.first_position, bounds)
        if wrong and not await self._has_position(address, handshake):
            self._reading = None
            self._driver.on_misplaced(self, f"it has no mark, and {wrong}")
            return
        self._reading = None
        if from_earliest:
            hello = Hello(hello.log_id, hello.player_term, hello.target_term, bounds.first_position)
        self.open(address, Handshake(hello, handshake.topic, handshake.partition))

    async def _has_position(self, address: str, handshake: Handshake) -> bool:
        """Finds out whether the target has a stored position, without storing one, which would be permanent.

        Terms of (0, 0) are above none: it responds with Stale, and the terms that it has stored, if any.
        """
        hello = Hello(handshake.hello.log_id, 0, 0, handshake.hello.first_position)
        self._position_probe = asyncio.get_running_loop().create_future()
        self.open(address, Handshake(hello, handshake.topic, handshake.partition))
        has_position = await self._position_probe
        self._position_probe = None
        self.stream.close()
        return has_position

    def _resolve_probe(self, has_position: bool) -> None:
        assert self._position_probe is not None
        if not self._position_probe.done():
            self._position_probe.set_result(has_position)

    async def _connect_with_bounds(self, position: int) -> None:
        bounds = await self._driver.source.bounds()
        self._driver.on_connected(self, position, bounds)

    async def _read_range(self, fetch: RangeRead) -> None:
        driver = self._driver
        core, source = driver.core, driver.source
        try:
            chunk = await source.read(fetch.first_position, fetch.max_bytes, 0.0)
        except RangeLost:
            driver.step(core.on_range_lost, self.name, self.target_term)
            return
        if chunk.through_position < fetch.first_position:
            driver.step(core.on_fetch_failed, self.name, self.target_term)
        else:
            driver.step(core.on_fetched, self.name, self.target_term, chunk.entries, chunk.through_position)


def _position_error(first_position: int, bounds: LogBounds) -> str:
    """The reason why a target cannot begin there; empty where it can."""
    if first_position < bounds.first_position:
        return f"is to begin at {first_position}, the log begins at {bounds.first_position}"
    if first_position > bounds.next_position:
        return f"is to begin at {first_position}, the log ends before {bounds.next_position}"
    return ""
