"""The log work of a replica: what it does to its log, one thing at a time, in the Raft core's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.storage.log.format import chain_of
from lockstep.storage.types import Frame


class LogWork:
    """One item of log work; `after_checkpoint`: it waits for a checkpoint that is being written."""

    __slots__ = ("after_checkpoint", "run")

    def __init__(self, run: Callable[[], None], after_checkpoint: bool = False) -> None:
        self.run = run
        self.after_checkpoint = after_checkpoint


class ReceivedFrames:
    """The frames of an Append that verified; `chain`: the log's chain value before the first of them."""

    __slots__ = ("chain", "frames")

    def __init__(self, frames: list[Frame], chain: int) -> None:
        self.frames = frames
        self.chain = chain

    def between(self, first_index: int, last_index: int) -> ReceivedFrames:
        """Returns the frames that the core accepted, both indexes included."""
        before = first_index - self.frames[0].index
        head = self.frames[before - 1].head if before else None
        chain = chain_of(head) if head is not None else self.chain
        return ReceivedFrames(self.frames[before : before + last_index - first_index + 1], chain)


NOTHING_RECEIVED = ReceivedFrames([], 0)


class OwnWrite:
    """Frames of this leader; `is_in_tail`: the tail machines have seen their batches."""

    __slots__ = ("frames", "is_in_tail", "truncation_count")

    def __init__(self, frames: Sequence[Frame], truncation_count: int) -> None:
        self.frames = frames
        self.truncation_count = truncation_count
        self.is_in_tail = True
