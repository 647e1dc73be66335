"""Installs under way at one member: shipments to followers, and the arrival from the leader.

Owns which chunk goes next and when a shipment or an arrival is given up; the core says whom to ship to, which
chunks are wanted and which were taken. A shipment is read and an arrival stored on a thread: whole segments
are flushed on the way. It does not switch the log: the replica does, in the order of its other log work.

Where an arrival finds no room nothing of it stays, and the next one waits a while. Until one is whole the
log that it is to replace stays: a crash must find it. But below both of its checkpoints, what the leader does
not have any more goes at once, as it would if this member had followed: records that are deleted, which a
majority without this member knows, for what is shipped is committed. In the place of some of them came newer
ones, which are not here yet; so it is, too, with what is shipped while its leader goes on compacting. Hence
nobody is to read here until what the leader had committed is applied (`DataLog.whole_index`).
Source: docs/storage_rules.md.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from storage.checkpointing import CONFIGURATION_SECTION
from storage.group_options import node_of
from storage.log.data_log import DataLog
from storage.pieces import Piece
from storage.raft.messages import Install, Message
from storage.raft.progress import SendState
from storage.raft.raft import Raft
from storage.raft.ready import Ready
from storage.shipping import Arrival, Shipment
from storage.types import Checkpoint, StorageFull

log_of_installs = logging.getLogger(__name__)

FIRST_PAUSE_MS: Final = 1000
LONGEST_PAUSE_MS: Final = 30_000
"""Between two arrivals that could not be stored; each pause is twice as long as the one before."""


class Installing:
    """See the module."""

    __slots__ = (
        "_beginning",
        "_guarded",
        "_log",
        "_loop",
        "_no_room_index",
        "_now_ms",
        "_pause_ms",
        "_paused_until_ms",
        "_raft",
        "_send",
        "_shipments",
        "_threads",
        "_trim",
        "arrival",
    )

    def __init__(
        self,
        log: DataLog,
        raft: Raft,
        send: Callable[[int, Message], None],
        now_ms: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        trim: Callable[[], None],
        guarded: Callable[[Callable[[], None]], None],
    ) -> None:
        self._log = log
        self._raft = raft
        self._send = send
        self._now_ms = now_ms
        self._loop = loop
        self._threads = threads
        self._trim = trim
        self._guarded = guarded
        self._shipments: dict[int, Shipment] = {}
        self._beginning: set[int] = set()
        """Members for whom the checkpoint is being read; looked into, never walked."""
        self.arrival: Arrival | None = None
        self._pause_ms = 0
        self._paused_until_ms = 0
        self._no_room_index = 0
        """Of the last arrival that found no room."""

    @property
    def lacks_room(self) -> bool:
        """Whether this member needs what it found no room for when it came last."""
        return self._no_room_index > self._raft.commit_index

    @property
    def shipped_index(self) -> int | None:
        """The oldest checkpoint under way to somebody: what comes after it will be wanted; None for none."""
        return min((each.checkpoint.index for each in self._shipments.values()), default=None)

    @property
    def is_shipping(self) -> bool:
        """Whether anything is on the way from here."""
        return bool(self._shipments or self._beginning)

    def drain(self, ready: Ready) -> None:
        """Shipping side: begin or repeat what the core asks for, go on where a chunk was taken."""
        if self._shipments:
            self._forget_arrived()
        for peer in ready.installs:
            shipment = self._shipments.get(peer)
            # Where entries do not go on after a checkpoint, having it would not help.
            if shipment is None or shipment.checkpoint.index < self._raft.terms.base_index:
                self._begin(peer)
            else:
                self._ship(peer, shipment, max(0, shipment.chunk))
        for ack in ready.chunk_acks:
            shipment = self._shipments.get(ack.sender)
            if shipment is None or shipment.checkpoint.index != ack.index:
                continue
            if not ack.accepted:
                del self._shipments[ack.sender]  # the core asks again, and it begins afresh
            elif ack.chunk == shipment.chunk:
                self._ship(ack.sender, shipment, ack.chunk + 1)

    def _begin(self, peer: int) -> None:
        """Begin a shipment afresh; the checkpoint is read in a thread."""
        if peer not in self._beginning:
            self._beginning.add(peer)
            loading = self._loop.run_in_executor(self._threads, self._log.load_checkpoint)
            loading.add_done_callback(partial(self._begun, peer))

    def _begun(self, peer: int, done: asyncio.Future[Checkpoint | None]) -> None:
        self._beginning.discard(peer)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            log_of_installs.warning("log group %d: no checkpoint to ship: %s", self._log.group_id, error)
            return
        checkpoint = None if done.cancelled() else done.result()
        if checkpoint is not None and self._raft.leader_state is not None:
            # One that an older version wrote does not say who the members were.
            members = self._raft.configurations.at(checkpoint.index)
            checkpoint.sections.setdefault(CONFIGURATION_SECTION, members.encode())
            shipment = self._shipments[peer] = Shipment(self._log, checkpoint)
            self._ship(peer, shipment, 0)

    def _forget_arrived(self) -> None:
        for peer in tuple(self._shipments):
            progress = self._raft.progress(peer)
            if progress is None or progress.state is not SendState.INSTALL:
                del self._shipments[peer]

    def _ship(self, peer: int, shipment: Shipment, chunk: int) -> None:
        if shipment.reading:
            return
        shipment.reading = True
        reading = self._loop.run_in_executor(self._threads, shipment.piece, chunk)
        reading.add_done_callback(lambda done: self._read(peer, shipment, chunk, done))

    def _read(
        self, peer: int, shipment: Shipment, chunk: int, done: asyncio.Future[tuple[Piece, bool] | None]
    ) -> None:
        shipment.reading = False
        error = done.exception()
        if error is not None:
            # Retention has freed what was being shipped, or it does not verify: the next try starts afresh.
            self._log.reading_failed(error)
            log_of_installs.warning("log group %d: shipping to %d ended: %s", self._log.group_id, peer, error)
            self._shipments.pop(peer, None)
            return
        found = done.result()
        if found is None or self._shipments.get(peer) is not shipment or self._raft.leader_state is None:
            return
        piece, last = found
        checkpoint = shipment.checkpoint
        self._send(
            peer,
            Install(
                self._raft.member_id,
                peer,
                self._raft.term,
                checkpoint.index,
                checkpoint.term,
                chunk,
                last,
                self._now_ms(),
                piece,
                self._raft.commit_index,
            ),
        )

    def take(self, install: Install, stored: Callable[[bool], None]) -> None:
        """Receiving side: store a wanted chunk and answer it; then `stored` is told whether all is there, so
        that the log may switch to it."""
        arrival = self.arrival
        if arrival is not None and arrival.storing:
            return
        if arrival is not None and arrival.whole and self._is_of(arrival, install):
            return
        if install.chunk == 0:  # of the same checkpoint, too: another shipment may be cut into other chunks
            if self._now_ms() < self._paused_until_ms:
                return  # unanswered it comes again, a while later
            self.abort()
            arrival = self.arrival = Arrival(self._log, install.index, install.last_term)
        if arrival is None or not self._is_of(arrival, install) or install.chunk > arrival.next_chunk:
            self._raft.chunk_stored(install, accepted=False)
            return
        if install.chunk < arrival.next_chunk:
            self._raft.chunk_stored(install)
            return
        assert isinstance(install.payload, Piece)
        arrival.whole_index = max(arrival.whole_index, install.commit_index)
        arrival.storing = True
        storing = self._loop.run_in_executor(self._threads, arrival.store, install.payload, install.done)
        storing.add_done_callback(partial(self._stored, arrival, install, stored))

    def _stored(
        self,
        arrival: Arrival,
        install: Install,
        stored: Callable[[bool], None],
        done: asyncio.Future[None],
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if self.arrival is not arrival:
            return  # the member has ended meanwhile, and its log is closed
        arrival.storing = False
        if isinstance(error, StorageFull | OSError):
            self._not_stored(arrival, install, error)
        elif error is not None:
            log_of_installs.warning("log group %d: an install was given up: %s", self._log.group_id, error)
            self.abort()
        elif arrival.whole:
            self._pause_ms = self._paused_until_ms = 0
        # What failed as it was completed is not answered: the shipment begins again when its time is over.
        if not install.done:
            self._raft.chunk_stored(install, accepted=error is None)
        stored(arrival.whole)

    def _not_stored(self, arrival: Arrival, install: Install, error: StorageFull | OSError) -> None:
        """The disk refused it, most likely for want of room: let it have what there is, and try later."""
        log, stored_bytes = self._log, arrival.stored_bytes
        self.abort()
        self._pause_ms = min(2 * self._pause_ms or FIRST_PAUSE_MS, LONGEST_PAUSE_MS)
        self._paused_until_ms = self._now_ms() + self._pause_ms
        reason, what_lacks = error.__cause__ or error, ""
        if isinstance(reason, OSError) and reason.errno in (errno.ENOSPC, errno.EDQUOT):
            self._no_room_index = arrival.index
            log.yield_room(True)  # at once; all logs of the disk, and until when, are the broker's to say
            self._guarded(partial(self._free_as_leader, arrival))
            what_lacks = (
                f"; node {node_of(install.sender)} sends more than this disk has room for, and the log here "
                f"({log.size_bytes / 1e6:.1f} MB) stays until all of it has come: free other space"
            )
        log_of_installs.warning(
            "log group %d: an install was given up after %.1f MB: %s; tried again in %d s or later%s",
            log.group_id,
            stored_bytes / 1e6,
            error,
            self._pause_ms // 1000,
            what_lacks,
        )

    def _free_as_leader(self, arrival: Arrival) -> None:
        first_index = arrival.first_index
        if first_index is not None and self._log.free_below(first_index, arrival.whole_index):
            self._trim()

    @staticmethod
    def _is_of(arrival: Arrival | None, install: Install) -> bool:
        return arrival is not None and (arrival.index, arrival.term) == (install.index, install.last_term)

    def outrun(self, commit_index: int) -> None:
        """The log has got somewhere by itself: an arrival that would not bring it further is given up."""
        if self.arrival is not None and not self.arrival.storing and commit_index >= self.arrival.index:
            self.abort()
            self._pause_ms = self._paused_until_ms = 0

    def give_up(self) -> None:
        """The member ends, and its threads have ended."""
        if self.arrival is not None:
            self.arrival.storing = False
        self.abort()

    def abort(self) -> None:
        """Give up what has arrived."""
        if self.arrival is not None:
            self.arrival.abort()
            self.arrival = None
