"""Frames of Append messages: attached to those that are sent, checked in those that are received.

The core knows entries by index and term; here their bytes are attached to its requests, from memory or else
by a thread from the disk, and taken from received ones. Invariants: an Append leaves with all of its frames
or not at all, which is like one that was lost; only frames that verify reach the core. Frames are sent as
they lie on the disk. Does not know what is committed. Source: LogStore paper, section 4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from crc32c import crc32c

from lockstep.storage.log.batch_flags import is_changed
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import ENTRY_RAW, decode_frames, frame_buffers, frame_bytes
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Append, Message
from lockstep.storage.raft.raft import Raft
from lockstep.storage.rate_limited_log import RateLimitedLog
from lockstep.storage.types import CONTROL_PARTITION, DirectoryEntry, Frame, FrameKind

log_of_entries = logging.getLogger(__name__)

Send = Callable[[int, Message], None]


def no_peers(to: int, message: Message) -> None:
    """The `Send` of a group without peers."""
    raise AssertionError(f"no peers, but a message to {to}: {message!r}")


class AppendSender:
    """Sends the core's messages with the frames that belong to them.

    Args:
        kept_entries: how many of the newest entries stay for followers whatever a checkpoint covers.
        entries_unavailable: called on the loop with the last of entries that only a snapshot can send, since
        they were cleaned; or with None where some could not be read. The core has to know of either.
    """

    __slots__ = (
        "_entries_unavailable",
        "_kept_entries",
        "_log",
        "_loop",
        "_raft",
        "_rate_limited_log",
        "_send",
        "_threads",
    )

    def __init__(
        self,
        log: DataLog,
        raft: Raft,
        send: Send,
        loop: asyncio.AbstractEventLoop,
        threads: Executor,
        kept_entries: int,
        entries_unavailable: Callable[[int | None], None],
    ) -> None:
        self._log = log
        self._raft = raft
        self._send = send
        self._loop = loop
        self._threads = threads
        self._kept_entries = kept_entries
        self._entries_unavailable = entries_unavailable
        self._rate_limited_log = RateLimitedLog(loop.time, log_of_entries)

    def send(self, messages: Sequence[Message]) -> None:
        """Sends each now, or when its frames have been read. The entries that active members miss stay in
        memory."""
        for message in messages:
            self._send_one(message)
        self._log.keep_from(self._raft.lowest_active_match(self._log.recent_index))

    def last_unneeded_index(self, snapshot_index: int | None) -> int:
        """Returns the last index of the entries that no follower will be sent: those that are not on the disk
        any more, and beyond `kept_entries` those below a checkpoint that follow no outgoing snapshot.

        snapshot_index: the index of the oldest outgoing snapshot."""
        log = self._log
        unneeded = min(log.last_index - self._kept_entries, log.first_kept_index - 1)
        if snapshot_index is not None and snapshot_index > unneeded - self._kept_entries:
            unneeded = min(unneeded, snapshot_index)
        return max(unneeded, log.unbroken_index - 1)

    def _send_one(self, message: Message) -> None:
        if not isinstance(message, Append) or message.last_index == message.prev_index:
            self._send(message.to, message)
            return
        first, last = message.prev_index + 1, message.last_index
        if last > self._log.last_index:
            return  # a new leader that has not written all of its log yet: the core sends again
        size = self._raft.terms.size_between(first, last)
        chain = self._log.recent_chain_at(message.prev_index)
        frames = _read_frames(self._log.frames, first, last, size) if chain is not None else []
        if frames and chain is not None:
            self._attach(message, frames, chain)
            return
        reading = self._loop.run_in_executor(self._threads, self._read, first, last, size)
        reading.add_done_callback(lambda done: self._on_read(message, done))

    def _read(self, first: int, last: int, size: int) -> tuple[list[Frame], int | None]:
        """Reads frames from the disk, and the chain value before them. In a thread."""
        return _read_frames(self._log.frames_cold, first, last, size), self._log.chain_at_cold(first - 1)

    def _on_read(self, message: Append, done: asyncio.Future[tuple[list[Frame], int | None]]) -> None:
        error = done.exception()
        if error is not None:
            # A request that is not sent is like one that is lost: the core sends again.
            self._log.reading_failed(error)
            self._rate_limited_log.warning(
                f"log group {self._log.group_id}: entries for member {message.to}: {error}", same=message.to
            )
            self._entries_unavailable(None)
            return
        frames, chain = done.result()
        cleaned = [frame.index for frame in frames if is_changed(frame)]
        if cleaned:
            # Without all of its records a frame verifies only in a snapshot: let the core request one.
            self._entries_unavailable(cleaned[-1])
            return
        leads = self._raft.term == message.term and self._raft.leader_state is not None
        if frames and chain is not None and leads:
            self._attach(message, frames, chain)

    def _attach(self, message: Append, frames: Sequence[Frame], chain: int) -> None:
        message.frames = [buffer for frame in frames for buffer in frame_buffers(frame)]
        message.chain = chain
        self._send(message.to, message)


def _read_frames(
    read: Callable[[int, int], list[Frame] | None], first: int, last: int, size: int
) -> list[Frame]:
    """Returns the frames from `first` to `last`, some `size` bytes; none where `read` has not all of them."""
    found: list[Frame] = []
    while first <= last:  # the core does not count the bytes of its own entries
        more = read(first, size)
        if not more or more[0].index != first:
            return []
        found += more[: last + 1 - first]
        first = found[-1].index + 1
    return found


def unpack(append: Append) -> list[Frame]:
    """Returns the frames of a received Append, and sets its sizes. Raises ValueError where they do not
    verify, or are not the entries that its fields name."""
    frames = decode_frames(b"".join(append.frames), append.chain)
    if not _matches_envelope(frames, append):
        raise ValueError("frames and envelope disagree")
    append.sizes = [frame_bytes(frame) for frame in frames]
    return frames


def _matches_envelope(frames: Sequence[Frame], append: Append) -> bool:
    if not frames or (frames[0].index, frames[-1].index) != (append.prev_index + 1, append.last_index):
        return False
    starts = dict(append.runs)
    term = -1
    for frame in frames:
        term = starts.get(frame.index, term)
        if frame.term != term:
            return False
    found = [(f.index, configuration_in(f)) for f in frames if f.kind is FrameKind.CONFIGURATION]
    return found == list(append.configurations)


def put_configuration(frame: Frame, configuration: Configuration) -> None:
    """Adds a membership to a frame: a raw payload, no record, no LSN."""
    data = configuration.encode()
    frame.directory.append(DirectoryEntry(CONTROL_PARTITION, 0, 0, len(data), crc32c(data), 0, -1, ENTRY_RAW))
    frame.payloads.append(data)


def configuration_in(frame: Frame) -> Configuration:
    """Returns the membership in a frame. Raises ValueError where there is none."""
    if len(frame.payloads) != 1:
        raise ValueError(f"entry {frame.index}: a configuration entry of {len(frame.payloads)} payloads")
    return Configuration.decode(bytes(frame.payloads[0]))
