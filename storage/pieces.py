"""What a chunk of a shipped checkpoint carries: the words of `shipping` and of the wire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from storage.types import Buffer


class PieceKind(Enum):
    """Part of the checkpoint, or frames."""

    CHECKPOINT = "checkpoint"
    FRAMES = "frames"


@dataclass(frozen=True, slots=True)
class Piece:
    """The payload of one chunk.

    Attributes:
        chain: the chain value before the first of its frames.
        after: the last frame of the shipment before this piece, 0 for none: what is missing between it and
            the piece's first was freed where it was read.
    """

    kind: PieceKind
    data: Sequence[Buffer]
    chain: int = 0
    after: int = 0
