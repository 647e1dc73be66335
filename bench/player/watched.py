"""Targets that note when something came: around any `Sessions`, and the least that such a one can be.

Owns: the moment that counts (when a batch was received, or, `at_acknowledgement`, when all of it was stored),
and what is kept until the run is over. Does not look into parts before that, but for their headers' counts.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from bench.player.workload import Noted
from lockstep.player.core.messages import Batch, Part
from lockstep.player.transport.interface import Handshake, Responder, Session, Sessions
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import iter_records


class Watched:
    """The `Sessions` of one target. `keep`: what came, for `noted`; else it is only counted."""

    def __init__(self, inner: Sessions, *, at_acknowledgement: bool = False, keep: bool = True) -> None:
        self.inner = inner
        self.at_acknowledgement = at_acknowledgement
        self.records = 0
        self.record_bytes = 0
        self.greeted_ns = self.first_ns = self.last_ns = 0
        """The response to the last handshake, the first part after it, the last part. 0: there is none."""
        self.stream: object = None
        """The stream of the last handshake; messages of others do not count."""
        self._keep = keep
        self._came: list[tuple[int, Sequence[Part]]] = []
        self._position = -1

    def open_session(self, handshake: Handshake, responder: Responder) -> Session:
        return _WatchedStream(self, handshake, responder)

    def greeted(self, stream: object, at_ns: int) -> None:
        self.stream, self.greeted_ns, self.first_ns = stream, at_ns, 0

    def take(self, batch: Batch, at_ns: int) -> None:
        """A batch counts now; what came before does not count again."""
        parts = [each for each in batch.parts if not each.is_dummy and each.position > self._position]
        if not parts:
            return
        self._position = parts[-1].position
        self.first_ns = self.first_ns or at_ns
        self.last_ns = at_ns
        if self._keep:
            self._came.append((at_ns, parts))
        for part in parts:
            self.records += read_header(_bytes(part)).record_count
            self.record_bytes += len(_bytes(part))

    def noted(self) -> Noted:
        """The received records, decoded. MalformedBatch."""
        noted = Noted()
        for at_ns, parts in self._came:
            for part in parts:
                for record in iter_records(_bytes(part)):
                    noted.note(bytes(record.value or b""), at_ns)
        return noted


def _bytes(part: Part) -> Any:
    return part.payload


class _WatchedStream:
    """Between a transport and the session: both of its ends."""

    def __init__(self, watched: Watched, handshake: Handshake, responder: Responder) -> None:
        self._watched = watched
        self._responder = responder
        self._waiting: deque[Batch] = deque()
        self._session = watched.inner.open_session(handshake, self)

    # -- events of the transport -------------------------------------------------------------------------

    def receive(self, batch: Batch) -> None:
        if self._watched.at_acknowledgement:
            self._waiting.append(batch)
        elif self._watched.stream is self:
            self._watched.take(batch, time.monotonic_ns())
        self._session.receive(batch)

    def heartbeat(self) -> None:
        self._session.heartbeat()

    def on_closed(self) -> None:
        self._session.on_closed()

    @property
    def has_room(self) -> bool:
        return self._session.has_room

    async def wait_for_room(self) -> None:
        await self._session.wait_for_room()

    # -- results of the session --------------------------------------------------------------------------

    def accept(self, position: int) -> None:
        self._watched.greeted(self, time.monotonic_ns())
        self._responder.accept(position)

    def reject(self, player_term: int, target_term: int) -> None:
        self._responder.reject(player_term, target_term)

    def acknowledge(self, position: int) -> None:
        at_ns = time.monotonic_ns()
        while self._waiting and self._waiting[0].last_position <= position:
            self._watched.take(self._waiting.popleft(), at_ns)
        self._responder.acknowledge(position)

    def end(self, reason: str) -> None:
        self._responder.end(reason)


class LeanSessions:
    """A target without a store: its mark is in memory, and what came is acknowledged at once."""

    def __init__(self) -> None:
        self.position = -1
        self.terms = (0, 0)

    def open_session(self, handshake: Handshake, responder: Responder) -> Session:
        hello = handshake.hello
        stream = _LeanStream(self, responder, (hello.player_term, hello.target_term))
        if stream.terms <= self.terms:
            responder.reject(*self.terms)
            return stream
        if self.terms == (0, 0):
            self.position = hello.first_position - 1
        self.terms = stream.terms
        responder.accept(self.position)
        return stream


class _LeanStream:
    has_room = True

    def __init__(self, target: LeanSessions, responder: Responder, terms: tuple[int, int]) -> None:
        self._target = target
        self._responder = responder
        self.terms = terms

    def receive(self, batch: Batch) -> None:
        target = self._target
        if self.terms == target.terms:
            target.position = max(target.position, batch.last_position)
            self._responder.acknowledge(target.position)

    def heartbeat(self) -> None:
        if self.terms == self._target.terms:
            self._responder.acknowledge(self._target.position)

    def on_closed(self) -> None:
        pass

    async def wait_for_room(self) -> None:
        pass
