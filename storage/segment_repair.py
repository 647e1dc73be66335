"""Repair of a corrupt segment from peers: frames are equal on all members, so any member has the right bytes.

Owns one repair at a time: it requests the frames of a sealed segment from the other members in turn, a chunk
at a time, verifies each against the chain value that this log has itself, and has the segment written afresh.
Segments begin elsewhere on every member, so the first of the log may hold dead frames that all others have
freed: then it is written without them, and the chain value at its end is what verifies it. Of a joined
segment only damaged frames are requested: others may have freed or not cleaned the rest. It also
responds to such requests, with committed entries only. Nothing here touches the Raft state. A request or a
response may be lost: then the next member gets the request. Received frames are cleaned as far as that member
had come: `on_others_bytes` is called before they are written and after. Source: protocol-aware recovery;
docs/storage_rules.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial

from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import chain_of, decode_frames, frame_buffers
from lockstep.storage.raft.messages import Message, RangeRequest, RangeResponse
from lockstep.storage.raft.raft import Raft
from lockstep.storage.types import (
    CorruptLog,
    Frame,
    FramesUnavailable,
    StorageError,
    StorageFull,
    WriteFailed,
)

log_of_repairs = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
RESPONSE_TIMEOUT_SECONDS = 1.0
"""The timeout of a member's response; after it the next member gets the request."""


class ScrubStopped(Exception):
    """The member stops while a segment is read through."""


class _Repair:
    """A segment that is being fetched."""

    __slots__ = (
        "before",
        "chain",
        "first_index",
        "frames",
        "frames_bytes",
        "has_exact_begin",
        "is_busy",
        "last_index",
        "later",
        "senders",
        "sequence",
        "tried",
        "without_peers",
    )

    def __init__(
        self, sequence: int, first_index: int, last_index: int, chain: int, has_exact_begin: bool = True
    ) -> None:
        self.sequence = sequence
        self.first_index = first_index
        self.last_index = last_index
        self.chain = chain
        self.has_exact_begin = has_exact_begin
        """False where the first frame is a guess, not too high: the chain value at the end verifies all."""
        self.before: int | None = None
        """The chain value before the first frame, by a peer, where that is not the segment's first."""
        self.later: tuple[int, int] | None = None
        """Where the frames of peers begin that have not all: the lowest index, the chain value before it."""
        self.frames: list[Frame] = []
        self.frames_bytes = 0
        """The size of a joined segment's frames: members that cleaned less have more than it may hold."""
        self.is_busy = False
        """A thread works on it: no response is accepted."""
        self.without_peers = False
        """All members got the request, and repair was tried without them."""
        self.tried: list[int] = []
        self.senders: set[int] = set()
        """The members whose frames were taken."""

    @property
    def next_index(self) -> int:
        return self.first_index + len(self.frames)

    def offered(self, first_index: int, chain: int) -> None:
        """A peer has no frame before this one."""
        if not self.frames and first_index <= self.last_index:
            self.later = min(self.later or (first_index, chain), (first_index, chain))

    def begin_later(self) -> bool:
        """Continue without frames that no member has; False where other frames are missing."""
        if self.later is None or self.frames:
            return False
        self.first_index, self.chain = self.later
        self.before = self.chain
        self.later = None
        self.tried = []
        return True


class SegmentRepair:
    """See the module."""

    __slots__ = (
        "_asking",
        "_begun",
        "_ended",
        "_log",
        "_log_starts",
        "_loop",
        "_on_others_bytes",
        "_raft",
        "_repair",
        "_send",
        "_stopped",
        "_threads",
        "_timer",
        "on_corrupt",
        "on_corrupt_above_checkpoint",
        "on_repaired",
        "repaired",
    )

    def __init__(
        self,
        log: DataLog,
        raft: Raft,
        log_starts: Callable[[int], int],
        send: Callable[[int, Message], None],
        on_others_bytes: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
    ) -> None:
        self._log = log
        self._raft = raft
        self._log_starts = log_starts
        self._send = send
        self._on_others_bytes = on_others_bytes
        self._loop = loop
        self._threads = threads
        self._stopped = False
        self._repair: _Repair | None = None
        self._ended = asyncio.Event()
        """Set while no repair is under way."""
        self._ended.set()
        self._begun = 0
        """Repairs since the start: each begins with another member, whose frames may be rejected."""
        self._asking: set[int] = set()
        """Members for whom entries are being read: one request each; looked into, never walked."""
        self._timer: asyncio.TimerHandle | None = None
        self.on_corrupt_above_checkpoint: Callable[[int], object] = lambda sequence: None
        """Called with a corrupt segment that a scrub found and that cannot be rewritten yet."""
        self.repaired = 0
        """Segments written afresh since the start."""
        self.on_corrupt: Callable[[int], None] = self._log_corrupt
        """Called with the sequence number of a segment whose repair begins; the broker names its records."""
        self.on_repaired: Callable[[int, Sequence[int]], None] = self._log_repaired
        """Called with the sequence number of a repaired segment, and the members whose frames were taken."""

    def stop(self) -> None:
        """Sends no further request, and reads nothing."""
        self._stopped = True
        self._abort()

    async def wait_until_ended(self) -> None:
        """Wait for the repair that is under way, if there is one."""
        await self._ended.wait()

    def _abort(self) -> None:
        self._repair = None
        self._ended.set()
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def scrub(self, sequence: int, throttle: Callable[[int], None]) -> asyncio.Future[tuple[int, int] | None]:
        """Read a sealed segment through; where it is corrupt a repair begins. The result: what is corrupt.
        Raises OSError, and ScrubEnded."""

        def go_on(count: int) -> None:
            if self._stopped:
                raise ScrubStopped
            throttle(count)

        chains: list[int | None] = []
        """The chain value before what is corrupt: within a joined segment it is read."""

        def look() -> tuple[int, int] | None:
            found = self._log.scrub(sequence, go_on)
            if found is not None:
                chains.append(self._read_chain(found[0] - 1))
            return found

        scrub = self._loop.run_in_executor(self._threads, look)
        scrub.add_done_callback(partial(self._scrub_result, sequence, chains))
        return scrub

    def _read_chain(self, index: int) -> int | None:
        try:
            return self._log.chain_at_cold(index)
        except (CorruptLog, OSError) as problem:
            log_of_repairs.warning("log group %d: not repaired: %s", self._log.group_id, problem)
            return None

    def _scrub_result(
        self, sequence: int, chains: list[int | None], done: asyncio.Future[tuple[int, int] | None]
    ) -> None:
        found = None if done.cancelled() or done.exception() is not None else done.result()
        if found is None or self._repair is not None:
            return
        if not self._log.rewritable(sequence):
            log_of_repairs.warning(
                "log group %d: segment %d is corrupt, and can be repaired once two checkpoints are above it",
                self._log.group_id,
                sequence,
            )
            self.on_corrupt_above_checkpoint(sequence)
            return
        first_index, last_index = found
        (chain,) = chains
        if chain is None:
            return
        self.on_corrupt(sequence)
        has_exact_begin = self._log.has_exact_begin(sequence)
        self._repair = _Repair(sequence, first_index, last_index, chain, has_exact_begin)
        self._ended.clear()
        self._begun += 1
        self._request_next()

    def _log_corrupt(self, sequence: int) -> None:
        log_of_repairs.warning("log group %d: segment %d is corrupt", self._log.group_id, sequence)

    def _log_repaired(self, sequence: int, members: Sequence[int]) -> None:
        text = ", ".join(map(str, members)) or "none"
        log_of_repairs.info(
            "log group %d: segment %d is repaired, with frames of members: %s",
            self._log.group_id,
            sequence,
            text,
        )

    def _request_next(self) -> None:
        """Sends the request to the next member that has not got it since the last chunk arrived."""
        repair = self._repair
        if repair is None:
            return
        raft = self._raft
        members = [m for m in raft.configuration.members if m != raft.member_id]
        others = [m for m in members if m not in repair.tried]
        if not others and self._log.rewritable(repair.sequence, later=True) and repair.begin_later():
            others = members
        if not others and self._log.is_joined(repair.sequence) and not repair.without_peers:
            self._repair_alone(repair)
            return
        if not others:
            log_of_repairs.error(
                "log group %d: no member has the entries of segment %d", self._log.group_id, repair.sequence
            )
            self._abort()
            return
        peer = others[self._begun % len(others)]
        repair.tried.append(peer)
        self._send(peer, RangeRequest(raft.member_id, peer, raft.term, repair.next_index, repair.last_index))
        self._stop_timer()
        self._timer = self._loop.call_later(RESPONSE_TIMEOUT_SECONDS, self._request_next)

    def _repair_alone(self, repair: _Repair) -> None:
        """Do without the damaged records, should all of them be deleted: in the same file others live."""
        repair.without_peers = repair.is_busy = True
        self._stop_timer()
        writing = self._loop.run_in_executor(
            self._threads, self._log.drop_deleted_damage, repair.sequence, self._log_starts
        )
        writing.add_done_callback(partial(self._end_alone, repair))

    def _end_alone(self, repair: _Repair, done: asyncio.Future[None]) -> None:
        if self._repair is not repair:
            return
        repair.is_busy = False
        if done.cancelled() or isinstance(done.exception(), ValueError | StorageError | OSError):
            self._request_next()  # reports that no member has them
        else:
            self._write_repaired(done)

    def receive(self, message: RangeRequest | RangeResponse) -> None:
        """Handles a peer's request for committed entries, or its response to one of this member's."""
        if isinstance(message, RangeRequest):
            self._on_range_request(message)
        else:
            self._on_range_response(message)

    def _on_range_request(self, request: RangeRequest) -> None:
        """A peer requests entries: it gets committed ones."""
        raft, peer = self._raft, request.sender
        last_index = min(request.last_index, raft.commit_index)
        if request.to != raft.member_id or peer not in raft.configuration.members:
            return
        if peer in self._asking or not 0 < request.first_index <= last_index:
            return
        self._asking.add(peer)
        reading = self._loop.run_in_executor(self._threads, self._read, request.first_index, last_index)
        reading.add_done_callback(partial(self._send_response, request))

    def _read(self, first_index: int, last_index: int) -> tuple[list[Frame], int | None]:
        """Frames, and the chain value before the first. On a thread."""
        frames = self._log.snapshot_frames(first_index, last_index, CHUNK_BYTES)
        return frames, self._log.chain_at_cold(frames[0].index - 1) if frames else None

    def _send_response(
        self, request: RangeRequest, done: asyncio.Future[tuple[list[Frame], int | None]]
    ) -> None:
        self._asking.discard(request.sender)
        frames, chain = ([], None) if done.cancelled() or done.exception() is not None else done.result()
        if chain is None:
            return  # without a response, as the peer requests it from others, too
        data = [buffer for frame in frames for buffer in frame_buffers(frame, marked=True)]
        raft = self._raft
        self._send(
            request.sender,
            RangeResponse(raft.member_id, request.sender, raft.term, frames[0].index, chain, data),
        )

    def _on_range_response(self, response: RangeResponse) -> None:
        """A peer's entries: taken if they are the next ones and continue the chain."""
        repair = self._repair
        if repair is None or repair.is_busy or response.first_index < repair.next_index:
            return
        if response.first_index > repair.next_index:
            repair.offered(response.first_index, response.chain)
            if response.sender in repair.tried[-1:]:
                self._request_next()
            return
        is_first = not (repair.has_exact_begin or repair.frames)
        if is_first:
            repair.chain = response.chain
        try:
            frames = decode_frames(b"".join(response.frames), repair.chain, marked=True)
        except ValueError as error:
            log_of_repairs.warning("log group %d: member %d: %s", self._log.group_id, response.sender, error)
            return
        frames = [frame for frame in frames if frame.index <= repair.last_index]
        if not frames:
            return
        if is_first and not (frames := self._without_older(repair, frames, response.sender)):
            return
        if self._log.is_joined(repair.sequence):
            self._strip(repair, frames, response.sender)
        else:
            self._take(repair, frames, response.sender)

    def _without_older(self, repair: _Repair, frames: list[Frame], sender: int) -> list[Frame]:
        """The frames from the first one of a segment on whose begin is unknown; without any the next ones are
        requested."""
        found = list(self._log.frames_from_begin(repair.sequence, frames))
        older = frames[: len(frames) - len(found)]
        if older:
            assert older[-1].head is not None
            repair.first_index, repair.chain = older[-1].index + 1, chain_of(older[-1].head)
        repair.before = repair.chain
        if not found:
            repair.tried = [peer for peer in repair.tried if peer != sender]
            if repair.next_index <= repair.last_index:
                self._request_next()
        return found

    def _strip(self, repair: _Repair, frames: list[Frame], sender: int) -> None:
        """Frames of a joined segment: what is cleaned away here goes at once, for a member that cleaned less
        sends all that was in each of the segments that were joined."""
        self._stop_timer()
        repair.is_busy = True
        stripping = self._loop.run_in_executor(self._threads, self._log.as_cleaned, repair.sequence, frames)
        stripping.add_done_callback(partial(self._end_strip, repair, sender))

    def _end_strip(self, repair: _Repair, sender: int, done: asyncio.Future[list[Frame]]) -> None:
        if self._repair is not repair:
            return
        repair.is_busy = False
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or error is not None:
            log_of_repairs.warning("log group %d: not repaired: %s", self._log.group_id, error)
            self._abort()
            return
        frames = done.result()
        repair.frames_bytes += sum([len(frame.head or b"") + _payload_bytes(frame) for frame in frames])
        if repair.frames_bytes > self._log.max_repaired_bytes(repair.sequence):
            log_of_repairs.error(
                "log group %d: member %d has not cleaned what segment %d holds, and sends too much of it: "
                "the segment is repaired later",
                self._log.group_id,
                sender,
                repair.sequence,
            )
            self._abort()
            return
        self._take(repair, frames, sender)

    def _take(self, repair: _Repair, frames: list[Frame], sender: int) -> None:
        repair.frames += frames
        repair.senders.add(sender)
        assert frames[-1].head is not None
        repair.chain = chain_of(frames[-1].head)
        repair.tried = [peer for peer in repair.tried if peer != sender]
        if repair.next_index <= repair.last_index:
            self._request_next()
            return
        self._stop_timer()
        self._on_others_bytes()
        writing = self._loop.run_in_executor(
            self._threads,
            self._log.rewrite_segment,
            repair.sequence,
            repair.frames,
            repair.before,
            self._log_starts,
        )
        writing.add_done_callback(self._write_repaired)

    def _write_repaired(self, done: asyncio.Future[None]) -> None:
        repair, self._repair = self._repair, None
        self._ended.set()
        self._on_others_bytes()
        error = None if done.cancelled() else done.exception()
        if error is None:
            self.repaired += 1
            if repair is not None:
                self.on_repaired(repair.sequence, sorted(repair.senders))
        elif isinstance(
            error, ValueError | FramesUnavailable | StorageFull | WriteFailed | CorruptLog | OSError
        ):
            log_of_repairs.warning("log group %d: not repaired: %s", self._log.group_id, error)
        else:
            raise error


def _payload_bytes(frame: Frame) -> int:
    return sum(map(len, frame.payloads))
