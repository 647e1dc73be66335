"""The payload of one chunk of a snapshot, for `snapshot_transfer` and the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from lockstep.storage.types import Buffer


class PayloadKind(Enum):
    """A part of the checkpoint, or frames."""

    CHECKPOINT = "checkpoint"
    FRAMES = "frames"


@dataclass(frozen=True, slots=True)
class ChunkPayload:
    """The payload of one chunk.

    Attributes:
        chain: the chain value before the first of its frames.
        after: the index of the snapshot's last frame before this chunk, 0 for none: frames missing between it
        and the chunk's first one were freed at the sender.
    """

    kind: PayloadKind
    data: Sequence[Buffer]
    chain: int = 0
    after: int = 0
