"""The two sides of a snapshot, which a follower gets that is behind all entries of the leader's log.

A snapshot is the checkpoint and then the frames up to it, in chunks of bounded size, one under way at a time.
The receiver stores frames in temporary segments and keeps the checkpoint until the last chunk is there; only
then does the log switch, at once. Frames, not files, are sent: markers and segment headers are local.
The Raft core drives the chunks of both sides; neither knows terms or time. Source: docs/storage_rules.md.
"""

from __future__ import annotations

from lockstep.storage.checkpointer import CONFIGURATION_SECTION
from lockstep.storage.log.checkpoint_file import CHECKPOINT_MAGIC, decode_checkpoint, encode_checkpoint
from lockstep.storage.log.data_log import DataLog
from lockstep.storage.log.format import decode_frames, frame_buffers
from lockstep.storage.log.installation import Installation
from lockstep.storage.snapshot_chunk import ChunkPayload, PayloadKind
from lockstep.storage.types import Buffer, Checkpoint

CHUNK_BYTES = 1 << 20


class OutgoingSnapshot:
    """The sending side of one snapshot. Chunks are read in order; the last one can be read again."""

    __slots__ = ("_after", "_encoded", "_log", "_next_index", "_payload", "checkpoint", "chunk", "reading")

    def __init__(self, log: DataLog, checkpoint: Checkpoint) -> None:
        self._log = log
        self.checkpoint = checkpoint
        self._encoded = b"".join(encode_checkpoint(log.group_id, checkpoint, 0))
        self._next_index = log.oldest_index
        self._after = 0
        """The last frame read."""
        self.chunk = -1
        """The last chunk read."""
        self.reading = False
        """A thread reads a chunk."""
        self._payload: ChunkPayload | None = None

    def read_chunk(self, chunk: int) -> tuple[ChunkPayload, bool] | None:
        """Returns (payload, whether it is the last chunk); None for one that is neither the last read nor the
        next.

        Reads the disk: for a thread. Raises ValueError or FramesUnavailable where the frames were removed,
        CorruptLog.
        """
        if chunk == self.chunk + 1 and (self._payload is None or not self._done):
            self._payload = self._read(chunk)
            self.chunk = chunk
        if chunk != self.chunk or self._payload is None:
            return None
        return self._payload, self._done

    @property
    def _done(self) -> bool:
        covered = (self.chunk + 1) * CHUNK_BYTES >= len(self._encoded)
        return covered and self._next_index > self.checkpoint.index

    def _read(self, chunk: int) -> ChunkPayload:
        start = chunk * CHUNK_BYTES
        if start < len(self._encoded):
            return ChunkPayload(PayloadKind.CHECKPOINT, [self._encoded[start : start + CHUNK_BYTES]])
        after, upto = self._after, self.checkpoint.index
        frames = self._log.snapshot_frames(self._next_index, upto, CHUNK_BYTES)
        if not frames:  # all remaining frames were freed meanwhile: this chunk is the last
            self._next_index = upto + 1
            return ChunkPayload(PayloadKind.FRAMES, [], 0, after)
        # Freed frames leave gaps: the frame after one names the chain value that it follows.
        chain = self._log.chain_at_cold(frames[0].index - 1)
        if chain is None:
            raise ValueError(f"the chain value before entry {frames[0].index} is not known any more")
        self._after = frames[-1].index
        # No frame may be left up to the checkpoint: they are freed like others, and then this chunk is the
        # last.
        self._next_index = self._log.next_on_disk(self._after + 1)
        data = [buffer for frame in frames for buffer in frame_buffers(frame, marked=True)]
        return ChunkPayload(PayloadKind.FRAMES, data, chain, after)


class IncomingSnapshot:
    """The receiving side of one snapshot. Invariant: between its frames only those are missing that were
    freed at the sender, whichever snapshot send they are of."""

    __slots__ = (
        "_encoded",
        "_installation",
        "_log",
        "checkpoint",
        "first_index",
        "index",
        "next_chunk",
        "storing",
        "term",
        "whole",
        "whole_index",
    )

    def __init__(self, log: DataLog, index: int, term: int) -> None:
        self._log = log
        self.index = index
        self.term = term
        self.next_chunk = 0
        self.whole = False
        """The last chunk is there, and all is durable."""
        self.whole_index = index
        """The leader's commit index: newer records than the snapshot's may have replaced some of it."""
        self.storing = False
        """A thread stores a chunk: it can be neither continued nor aborted."""
        self.checkpoint: Checkpoint | None = None
        self.first_index: int | None = None
        """The first of all frames that the leader still has, once that is known."""
        self._encoded: list[Buffer] = []
        self._installation: Installation | None = None

    def store(self, payload: ChunkPayload, last: bool) -> None:
        """Stores the next chunk; after the last one all is made durable. For a thread.

        Raises ValueError for bytes that do not verify, StorageFull, WriteFailed.
        """
        self._add(payload)
        if last:
            self._prepare()
            self.whole = True

    def _add(self, payload: ChunkPayload) -> None:
        if payload.kind is PayloadKind.CHECKPOINT:
            if self.next_chunk == 0 and not b"".join(payload.data).startswith(CHECKPOINT_MAGIC):
                raise ValueError("the first chunk is no checkpoint's")
            self._encoded.extend(payload.data)
        else:
            if payload.after < 0:
                raise ValueError("the sender's version does not name the entry before the chunk")
            if payload.after != self._begin().last_index:
                raise ValueError(f"it has entries up to {self._begin().last_index}, not {payload.after}")
            frames = decode_frames(b"".join(payload.data), payload.chain, marked=True)
            if self.first_index is None and frames:
                self.first_index = frames[0].index
            self._begin().add(frames, payload.chain)
        self.next_chunk += 1

    def _begin(self) -> Installation:
        if self._installation is None:
            decoded = decode_checkpoint(b"".join(self._encoded), "a shipped checkpoint", self._log.group_id)
            found = decoded.checkpoint if decoded is not None else None
            if (
                found is None
                or (found.index, found.term) != (self.index, self.term)
                or CONFIGURATION_SECTION not in found.sections
            ):
                raise ValueError(f"the shipped checkpoint {self.index} does not verify")
            self.checkpoint = found
            self._installation = self._log.begin_install()
        return self._installation

    def _prepare(self) -> None:
        installation = self._begin()
        if self.first_index is None:
            self.first_index = self.index + 1  # nothing but the checkpoint
        assert self.checkpoint is not None
        installation.prepare(self.checkpoint)

    def switch(self) -> Checkpoint:
        """Switches the log to the snapshot. Raises as Installation.finish."""
        installation = self._begin()
        assert self.checkpoint is not None
        self._log.expect_whole_at(self.whole_index)
        installation.finish(self.checkpoint)
        return self.checkpoint

    @property
    def stored_bytes(self) -> int:
        """The bytes of it on the disk."""
        return self._installation.stored_bytes if self._installation is not None else 0

    def abort(self) -> None:
        """Drops the chunks that were received so far."""
        if self._installation is not None:
            self._installation.abort()
            self._installation = None
