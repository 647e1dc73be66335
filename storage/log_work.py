"""The log work of a replica: what it does to its log, one thing at a time, in the Raft core's order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockstep.storage.types import Frame


class Work:
    """One item of log work; `after_checkpoint`: it waits for a checkpoint that is being written."""

    __slots__ = ("after_checkpoint", "run")

    def __init__(self, run: Callable[[], None], after_checkpoint: bool = False) -> None:
        self.run = run
        self.after_checkpoint = after_checkpoint


class OwnWrite:
    """Frames of this leader; `followed`: the state has seen them as they were made."""

    __slots__ = ("followed", "frames", "truncation_count")

    def __init__(self, frames: Sequence[Frame], truncation_count: int) -> None:
        self.frames = frames
        self.truncation_count = truncation_count
        self.followed = True
