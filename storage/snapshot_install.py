"""Snapshots under way at one member: outgoing ones to followers, and the incoming one from the leader.

Owns the next chunk to send and the abort of a snapshot; the core decides which members need one, which chunks
are needed and which were accepted. Outgoing chunks are read and incoming ones stored on a thread: whole
segments are flushed on the way. The replica decides when the log switches, in the order of its other log
work.

A snapshot for which the disk has no room leaves nothing behind, and the next one waits a while. Until one is
whole the log that it is to replace stays: a crash must find it. But below both of its checkpoints, segments
that the leader does not have any more are freed at once, as they would be if this member had followed: their
records are deleted, which a majority without this member knows, for a snapshot is committed. Newer records in
the place of some of them are not here yet; the same holds for a snapshot whose leader continues to compact.
Hence no client may read here until the leader's commit is applied (`DataLog.whole_index`).
A member with missing records that are not skipped sends no snapshot: its receiver would not know of the
gap. Source: docs/storage_rules.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from lockstep.storage.checkpointer import CONFIGURATION_SECTION
from lockstep.storage.control_partition import ControlPartition
from lockstep.storage.group_options import node_of
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.file_system import is_full
from lockstep.storage.missing_records import may_miss_records
from lockstep.storage.raft.messages import Install, Message
from lockstep.storage.raft.progress import SendState
from lockstep.storage.raft.raft import Raft
from lockstep.storage.raft.ready import Ready
from lockstep.storage.rate_limited_log import RateLimitedLog
from lockstep.storage.snapshot_chunk import ChunkPayload
from lockstep.storage.snapshot_transfer import IncomingSnapshot, OutgoingSnapshot
from lockstep.storage.types import Checkpoint, FlushFailed, StorageError, StorageFull, WriteFailed

log_of_installs = logging.getLogger(__name__)

FIRST_PAUSE_MS: Final = 1000
MAX_PAUSE_MS: Final = 30_000
"""Between two snapshots that could not be stored; each pause is twice as long as the one before."""


class SnapshotInstaller:
    """See the module."""

    __slots__ = (
        "_beginning",
        "_control",
        "_log",
        "_loop",
        "_no_room_index",
        "_now_ms",
        "_outgoing",
        "_pause_ms",
        "_paused_until_ms",
        "_raft",
        "_rate_limited_log",
        "_rejected",
        "_send",
        "_step",
        "_threads",
        "_trim",
        "incoming",
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
        step: Callable[[Callable[[], None]], None],
        control: ControlPartition,
    ) -> None:
        self._log = log
        self._raft = raft
        self._send = send
        self._now_ms = now_ms
        self._loop = loop
        self._threads = threads
        self._trim = trim
        self._step = step
        self._control = control
        self._rate_limited_log = RateLimitedLog(loop.time, log_of_installs)
        self._rejected: set[int] = set()
        """Members whose missing snapshot was logged; looked up, never iterated."""
        self._outgoing: dict[int, OutgoingSnapshot] = {}
        self._beginning: set[int] = set()
        """Members for which the checkpoint is being read; looked up, never iterated."""
        self.incoming: IncomingSnapshot | None = None
        self._pause_ms = 0
        self._paused_until_ms = 0
        self._no_room_index = 0
        """The index of the last snapshot for which the disk had no room."""

    @property
    def is_out_of_space(self) -> bool:
        """True where this member needs the snapshot for which its disk had no room."""
        return self._no_room_index > self._raft.commit_index

    @property
    def outgoing_index(self) -> int | None:
        """The oldest outgoing snapshot's index, after which entries will be needed; None for none."""
        return min((each.checkpoint.index for each in self._outgoing.values()), default=None)

    @property
    def is_sending(self) -> bool:
        """True while a snapshot is being sent from here."""
        return bool(self._outgoing or self._beginning)

    @property
    def is_busy(self) -> bool:
        """True while a snapshot is being sent or received."""
        return self.incoming is not None or bool(self._outgoing or self._beginning)

    def drain(self, ready: Ready) -> None:
        """Sends the snapshots that the core requests, and the next chunk where one was accepted."""
        if self._outgoing:
            self._forget_finished()
        for peer in ready.installs:
            outgoing = self._outgoing.get(peer)
            # A checkpoint without the entries after it would not help.
            if outgoing is None or outgoing.checkpoint.index < self._raft.terms.base_index:
                self._begin(peer)
            else:
                self._send_chunk(peer, outgoing, max(0, outgoing.chunk))
        for ack in ready.chunk_acks:
            outgoing = self._outgoing.get(ack.sender)
            if outgoing is None or outgoing.checkpoint.index != ack.index:
                continue
            if not ack.accepted:
                del self._outgoing[ack.sender]  # the core requests it again, from the start
            elif ack.chunk == outgoing.chunk:
                self._send_chunk(ack.sender, outgoing, ack.chunk + 1)

    def _begin(self, peer: int) -> None:
        """Starts a snapshot send; the checkpoint is read in a thread."""
        if peer not in self._beginning:
            self._beginning.add(peer)
            loading = self._loop.run_in_executor(self._threads, self._log.load_checkpoint)
            loading.add_done_callback(partial(self._on_checkpoint_read, peer))

    def _on_checkpoint_read(self, peer: int, done: asyncio.Future[Checkpoint | None]) -> None:
        self._beginning.discard(peer)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            log_of_installs.warning("log group %d: no checkpoint to send: %s", self._log.group_id, error)
            return
        if may_miss_records(self._log, self._control):
            if peer in self._rejected:
                return
            self._rejected.add(peer)
            log_of_installs.warning(
                "log group %d: no snapshot is sent to member %d: records are missing here that are not "
                "skipped, and `lockstep cluster status` names them",
                self._log.group_id,
                peer,
            )
            return
        checkpoint = None if done.cancelled() else done.result()
        if checkpoint is not None and self._raft.leader_state is not None:
            # A checkpoint of an older version does not name the members.
            members = self._raft.configurations.at(checkpoint.index)
            checkpoint.sections.setdefault(CONFIGURATION_SECTION, members.encode())
            outgoing = self._outgoing[peer] = OutgoingSnapshot(self._log, checkpoint)
            self._send_chunk(peer, outgoing, 0)

    def _forget_finished(self) -> None:
        for peer in tuple(self._outgoing):
            progress = self._raft.progress(peer)
            if progress is None or progress.state is not SendState.INSTALL:
                del self._outgoing[peer]

    def _send_chunk(self, peer: int, outgoing: OutgoingSnapshot, chunk: int) -> None:
        if outgoing.reading:
            return
        outgoing.reading = True
        reading = self._loop.run_in_executor(self._threads, outgoing.read_chunk, chunk)
        reading.add_done_callback(lambda done: self._on_chunk_read(peer, outgoing, chunk, done))

    def _on_chunk_read(
        self,
        peer: int,
        outgoing: OutgoingSnapshot,
        chunk: int,
        done: asyncio.Future[tuple[ChunkPayload, bool] | None],
    ) -> None:
        outgoing.reading = False
        error = done.exception()
        if error is not None:
            # Retention has freed frames of the snapshot, or they do not verify: the next attempt starts over.
            self._log.reading_failed(error)
            self._rate_limited_log.warning(
                f"log group {self._log.group_id}: a snapshot for member {peer} was aborted: {error}",
                same=peer,
            )
            self._outgoing.pop(peer, None)
            return
        found = done.result()
        if found is None or self._outgoing.get(peer) is not outgoing or self._raft.leader_state is None:
            return
        piece, last = found
        checkpoint = outgoing.checkpoint
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
        """Stores a needed chunk and acknowledges it; then `stored` is called with whether all chunks are
        there, so that the log may switch to the snapshot."""
        incoming = self.incoming
        if incoming is not None and incoming.storing:
            return
        if incoming is not None and incoming.whole and self._is_of(incoming, install):
            return
        if install.chunk == 0:  # of the same checkpoint, too: another send may be cut into other chunks
            if self._now_ms() < self._paused_until_ms:
                return  # without a response it comes again, a while later
            self.abort()
            incoming = self.incoming = IncomingSnapshot(self._log, install.index, install.last_term)
        if incoming is None or not self._is_of(incoming, install) or install.chunk > incoming.next_chunk:
            self._raft.chunk_stored(install, accepted=False)
            return
        if install.chunk < incoming.next_chunk:
            self._raft.chunk_stored(install)
            return
        assert isinstance(install.payload, ChunkPayload)
        incoming.whole_index = max(incoming.whole_index, install.commit_index)
        incoming.storing = True
        storing = self._loop.run_in_executor(self._threads, incoming.store, install.payload, install.done)
        storing.add_done_callback(partial(self._on_stored, incoming, install, stored))

    def _on_stored(
        self,
        incoming: IncomingSnapshot,
        install: Install,
        stored: Callable[[bool], None],
        done: asyncio.Future[None],
    ) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if self.incoming is not incoming:
            return  # the member was stopped meanwhile, and its log is closed
        incoming.storing = False
        if isinstance(error, StorageFull | WriteFailed | OSError):
            self._on_store_failed(incoming, install, error)
        elif error is not None:
            log_of_installs.warning("log group %d: a snapshot was aborted: %s", self._log.group_id, error)
            self.abort()
        elif incoming.whole:
            self._pause_ms = self._paused_until_ms = 0
        # A failure of the last chunk has no response: the send begins again after its timeout.
        if not install.done:
            self._raft.chunk_stored(install, accepted=error is None)
        stored(incoming.whole)

    def _on_store_failed(
        self, incoming: IncomingSnapshot, install: Install, error: StorageFull | WriteFailed | OSError
    ) -> None:
        """Frees space after a failed store, most likely on a full disk, and pauses before the next
        attempt."""
        log, stored_bytes = self._log, incoming.stored_bytes
        self.abort()
        self._pause_ms = min(2 * self._pause_ms or FIRST_PAUSE_MS, MAX_PAUSE_MS)
        self._paused_until_ms = self._now_ms() + self._pause_ms
        advice = ""
        if isinstance(error, StorageFull) or (isinstance(error, OSError) and is_full(error)):
            self._no_room_index = incoming.index
            log.yield_room(True)  # at once; the broker decides for the other logs of the disk, and until when
            self._step(partial(self._free_as_leader, incoming))
            advice = (
                f"; node {node_of(install.sender)} sends more than this disk has room for, and the log here "
                f"({log.size_bytes / 1e6:.1f} MB) stays until it is whole: free other space"
            )
        log_of_installs.warning(
            "log group %d: a snapshot was aborted after %.1f MB: %s; retried in %d s or later%s",
            log.group_id,
            stored_bytes / 1e6,
            error,
            self._pause_ms // 1000,
            advice,
        )

    def _free_as_leader(self, incoming: IncomingSnapshot) -> None:
        first_index = incoming.first_index
        if first_index is not None and self._log.free_below(first_index, incoming.whole_index):
            self._trim()

    @staticmethod
    def _is_of(incoming: IncomingSnapshot | None, install: Install) -> bool:
        return incoming is not None and (incoming.index, incoming.term) == (install.index, install.last_term)

    def switch(self) -> Checkpoint | None:
        """Switches the log to the incoming snapshot and returns its checkpoint.

        Returns None if it is not whole, if the log has passed it meanwhile, or if the log does not take it.
        Raises FlushFailed."""
        incoming = self.incoming
        if incoming is None or not incoming.whole:
            return None
        if not self._raft.needs_install(incoming.index, incoming.term):
            self.abort()
            return None
        try:
            checkpoint = incoming.switch()
        except FlushFailed:
            raise
        except (ValueError, StorageError) as error:
            log_of_installs.warning("log group %d: a snapshot was aborted: %s", self._log.group_id, error)
            self.abort()
            return None
        self.incoming = None
        return checkpoint

    def abort_if_passed(self, commit_index: int) -> None:
        """Aborts an incoming snapshot that the log has passed by itself."""
        if self.incoming is not None and not self.incoming.storing and commit_index >= self.incoming.index:
            self.abort()
            self._pause_ms = self._paused_until_ms = 0

    def close(self) -> None:
        """Aborts the incoming snapshot; the member's threads have ended."""
        if self.incoming is not None:
            self.incoming.storing = False
        self.abort()

    def abort(self) -> None:
        """Aborts the incoming snapshot, if there is one."""
        if self.incoming is not None:
            self.incoming.abort()
            self.incoming = None
