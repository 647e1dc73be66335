"""A transport without a network: player and targets in one process, for tests and as the shortest example.

Invariants: those of the interface; each message comes in an iteration of the loop of its own, so that neither
side is called from within the other. A target is at an address while it listens there. Messages are handed
over as they are, not copied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from lockstep.player.core.messages import Batch
from lockstep.player.transport.interface import Handshake, Session, Sessions, StreamEvents


class MemoryNetwork:
    """The servers by address. `streams()` is a player's transport, `server(sessions)` a target's."""

    def __init__(self) -> None:
        self.listening: dict[str, MemoryServer] = {}

    def streams(self) -> MemoryStreams:
        return MemoryStreams(self)

    def server(self, sessions: Sessions) -> MemoryServer:
        return MemoryServer(self, sessions)


class MemoryServer:
    """Implements `Server`."""

    def __init__(self, network: MemoryNetwork, sessions: Sessions) -> None:
        self.sessions = sessions
        self.address = ""
        self.streams: set[_TargetStream] = set()
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

    def crash(self) -> None:
        """Act as a killed process: the streams break, messages on their way to the player are lost."""
        self._network.listening.pop(self.address, None)
        for stream in list(self.streams):
            stream.break_stream("connection reset")


class MemoryStreams:
    """Implements `Streams`."""

    def __init__(self, network: MemoryNetwork) -> None:
        self._network = network
        self.streams: set[_PlayerStream] = set()

    def open(self, address: str, handshake: Handshake, events: StreamEvents) -> _PlayerStream:
        stream = _PlayerStream(self, events)
        self.streams.add(stream)
        stream.dial(self._network.listening.get(address), address, handshake)
        return stream

    async def close(self) -> None:
        for stream in list(self.streams):
            stream.close()


class _Pipe:
    """One direction: pending calls, in order, one each iteration of the loop; none while it is paused."""

    __slots__ = ("_calls", "_loop", "_next_call", "is_paused")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Callable[[], None]] = deque()
        self._next_call: asyncio.Handle | None = None
        self.is_paused = False

    def send(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self.resume()

    def resume(self) -> None:
        if self._next_call is None and self._calls and not self.is_paused:
            self._next_call = self._loop.call_soon(self._run_next)

    def _run_next(self) -> None:
        self._next_call = None
        if self._calls and not self.is_paused:
            self._calls.popleft()()
            self.resume()

    def clear(self) -> None:
        """Drop the pending calls."""
        self._calls.clear()


class _PlayerStream:
    """Implements `Stream`."""

    def __init__(self, streams: MemoryStreams, events: StreamEvents) -> None:
        self._streams = streams
        self.events = events
        self.down = _Pipe()
        self.up = _Pipe()
        self.target: _TargetStream | None = None
        self.is_closed = False

    def dial(self, server: MemoryServer | None, address: str, handshake: Handshake) -> None:
        if server is None:
            self.up.send(lambda: self.on_broken(f"nothing listens at {address}"))
        else:
            self.target = _TargetStream(server, self)
            self.target.begin(handshake)

    def write(self, batch: Batch) -> None:
        if self.target is not None and not self.is_closed:
            self.down.send(lambda: self._deliver(batch))

    def _deliver(self, batch: Batch) -> None:
        if self.target is not None:
            self.up.send(self._report_written)
            self.target.receive(batch)

    def _report_written(self) -> None:
        if not self.is_closed:
            self.events.on_written()

    def heartbeat(self) -> None:
        if self.target is not None and not self.is_closed:
            self.down.send(self.target.heartbeat)

    def close(self) -> None:
        if not self.is_closed:
            self._detach()
            if self.target is not None:
                self.target.on_player_closed()

    def on_broken(self, reason: str) -> None:
        """Report the break, once."""
        if not self.is_closed:
            self._detach()
            self.events.on_closed(reason)

    def _detach(self) -> None:
        self.is_closed = True
        self.up.clear()
        self._streams.streams.discard(self)


class _TargetStream:
    """Implements `Responder`."""

    def __init__(self, server: MemoryServer, player: _PlayerStream) -> None:
        self._server = server
        self._player = player
        self._session: Session | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_closed = False
        self.has_ended = asyncio.Event()
        server.streams.add(self)

    def begin(self, handshake: Handshake) -> None:
        self._player.down.send(lambda: self._open_session(handshake))

    def _open_session(self, handshake: Handshake) -> None:
        if not self._is_closed:
            self._session = self._server.sessions.open_session(handshake, self)

    def receive(self, batch: Batch) -> None:
        session = self._session
        if session is None or self._is_closed:
            return
        session.receive(batch)
        if not session.has_room:
            self._player.down.is_paused = True
            self._reading = asyncio.get_running_loop().create_task(self._wait_for_room(session))

    async def _wait_for_room(self, session: Session) -> None:
        await session.wait_for_room()
        self._player.down.is_paused = False
        self._player.down.resume()

    def heartbeat(self) -> None:
        if self._session is not None and not self._is_closed:
            self._session.heartbeat()

    def accept(self, position: int) -> None:
        self._send_event(lambda events: events.on_greeted(position))

    def acknowledge(self, position: int) -> None:
        self._send_event(lambda events: events.on_acknowledged(position))

    def reject(self, player_term: int, target_term: int) -> None:
        self._send_event(lambda events: events.on_stale(player_term))
        self.end("the target has ended the stream")

    def _send_event(self, report: Callable[[StreamEvents], None]) -> None:
        if not self._is_closed:
            self._player.up.send(lambda: None if self._player.is_closed else report(self._player.events))

    def end(self, reason: str) -> None:
        if not self._is_closed:
            self._player.up.send(lambda: self._player.on_broken(reason))
            self._close()

    def on_player_closed(self) -> None:
        """The player has closed the stream; its messages on their way are lost."""
        if not self._is_closed:
            self._close()

    def break_stream(self, reason: str) -> None:
        self._player.up.clear()
        self.end(reason)

    def _close(self) -> None:
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()
        self._player.down.clear()
        self._player.down.is_paused = False
        self._player.down.send(self._close_session)

    def _close_session(self) -> None:
        self._server.streams.discard(self)
        if self._session is not None:
            self._session.on_closed()
        self.has_ended.set()
