"""The seam without a network: player and targets in one process, for tests and as its shortest example.

Invariants: as the seam says; each message comes in a turn of the loop of its own, so that neither side is
called from within the other. A target is at an address while it listens there. Messages are handed over as
they are, not copied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from player.core.messages import Batch
from player.transport.seam import Greeting, Session, Sessions, StreamEvents


class MemoryNetwork:
    """Who listens where. The transport of a player is `streams()`, that of a target `server(sessions)`."""

    def __init__(self) -> None:
        self.listening: dict[str, MemoryServer] = {}

    def streams(self) -> MemoryStreams:
        return MemoryStreams(self)

    def server(self, sessions: Sessions) -> MemoryServer:
        return MemoryServer(self, sessions)


class MemoryServer:
    """The seam is `Server`."""

    def __init__(self, network: MemoryNetwork, sessions: Sessions) -> None:
        self.sessions = sessions
        self.address = ""
        self.streams: set[_TargetEnd] = set()
        self._network = network

    async def start(self, address: str) -> str:
        if address in self._network.listening:
            raise OSError(f"cannot listen at {address}")
        self._network.listening[address] = self
        self.address = address
        return address

    async def close(self, grace_s: float = 5.0) -> None:
        self._network.listening.pop(self.address, None)
        for stream in list(self.streams):
            stream.end("the target is stopping")
        await asyncio.gather(*[stream.has_ended.wait() for stream in self.streams])

    def lose(self) -> None:
        """As if the process were killed: the streams break, what is under way to the player is lost."""
        self._network.listening.pop(self.address, None)
        for stream in list(self.streams):
            stream.lost("connection reset")


class MemoryStreams:
    """The seam is `Streams`."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.streams: set[_PlayerEnd] = set()

    def open(self, address: str, greeting: Greeting, events: StreamEvents) -> _PlayerEnd:
        stream = _PlayerEnd(self, events)
        self.streams.add(stream)
        stream.dial(self._network.listening.get(address), address, greeting)
        return stream

    async def close(self) -> None:
        for stream in list(self.streams):
            stream.close()


class _Pipe:
    """One direction: what is to be called, in order, one each turn; it stands still while it is held."""

    __slots__ = ("_calls", "_loop", "_turn", "is_held")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Callable[[], None]] = deque()
        self._turn: asyncio.Handle | None = None
        self.is_held = False

    def send(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self.go_on()

    def go_on(self) -> None:
        if self._turn is None and self._calls and not self.is_held:
            self._turn = self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._turn = None
        if self._calls and not self.is_held:
            self._calls.popleft()()
            self.go_on()

    def cut(self) -> None:
        """What is under way is lost."""
        self._calls.clear()


class _PlayerEnd:
    """The seam is `Stream`."""

    def __init__(self, streams: MemoryStreams, events: StreamEvents) -> None:
        self._streams = streams
        self.events = events
        self.down = _Pipe()
        self.up = _Pipe()
        self.target: _TargetEnd | None = None
        self.is_over = False

    def dial(self, server: MemoryServer | None, address: str, greeting: Greeting) -> None:
        if server is None:
            self.up.send(lambda: self.ended(f"nothing listens at {address}"))
        else:
            self.target = _TargetEnd(server, self)
            self.target.begin(greeting)

    def write(self, batch: Batch) -> None:
        if self.target is not None and not self.is_over:
            self.down.send(lambda: self._arrived(batch))

    def _arrived(self, batch: Batch) -> None:
        if self.target is not None:
            self.up.send(self._written)
            self.target.receive(batch)

    def _written(self) -> None:
        if not self.is_over:
            self.events.written()

    def heartbeat(self) -> None:
        if self.target is not None and not self.is_over:
            self.down.send(self.target.heartbeat)

    def close(self) -> None:
        if not self.is_over:
            self._leave()
            if self.target is not None:
                self.target.gone()

    def ended(self, reason: str) -> None:
        """Tell so, once."""
        if not self.is_over:
            self._leave()
            self.events.closed(reason)

    def _leave(self) -> None:
        self.is_over = True
        self.up.cut()
        self._streams.streams.discard(self)


class _TargetEnd:
    """The seam is `Answers`."""

    def __init__(self, server: MemoryServer, player: _PlayerEnd) -> None:
        self._server = server
        self._player = player
        self._session: Session | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_over = False
        self.has_ended = asyncio.Event()
        server.streams.add(self)

    def begin(self, greeting: Greeting) -> None:
        self._player.down.send(lambda: self._greet(greeting))

    def _greet(self, greeting: Greeting) -> None:
        if not self._is_over:
            self._session = self._server.sessions.greet(greeting, self)

    def receive(self, batch: Batch) -> None:
        session = self._session
        if session is None or self._is_over:
            return
        session.receive(batch)
        if not session.wants_more:
            self._player.down.is_held = True
            self._reading = asyncio.get_running_loop().create_task(self._wait(session))

    async def _wait(self, session: Session) -> None:
        await session.wait_for_room()
        self._player.down.is_held = False
        self._player.down.go_on()

    def heartbeat(self) -> None:
        if self._session is not None and not self._is_over:
            self._session.heartbeat()

    def greeted(self, position: int) -> None:
        self._say(lambda events: events.greeted(position))

    def acknowledge(self, position: int) -> None:
        self._say(lambda events: events.acknowledged(position))

    def stale(self, player_term: int, target_term: int) -> None:
        self._say(lambda events: events.stale(player_term))
        self.end("the target has ended the stream")

    def _say(self, tell: Callable[[StreamEvents], None]) -> None:
        if not self._is_over:
            self._player.up.send(lambda: None if self._player.is_over else tell(self._player.events))

    def end(self, reason: str) -> None:
        if not self._is_over:
            self._player.up.send(lambda: self._player.ended(reason))
            self._over()

    def gone(self) -> None:
        """The player has closed; what it had under way is lost."""
        if not self._is_over:
            self._over()

    def lost(self, reason: str) -> None:
        self._player.up.cut()
        self.end(reason)

    def _over(self) -> None:
        self._is_over = True
        if self._reading is not None:
            self._reading.cancel()
        self._player.down.cut()
        self._player.down.is_held = False
        self._player.down.send(self._closed)

    def _closed(self) -> None:
        self._server.streams.discard(self)
        if self._session is not None:
            self._session.closed()
        self.has_ended.set()
