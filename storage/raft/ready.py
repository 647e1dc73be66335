"""The work that the core has for its shell since the last call of `ready`."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import Install, InstallResponse, Message
from lockstep.storage.types import HardState


class Ready:
    """The core hands each piece of work out once; the shell does it in the order of the attributes below.

    Attributes:
        hard_state: flush it before anything else, then report it; its incarnation is the shell's.
        no_op_index: write an empty entry of the current term there.
        configuration: write this configuration entry.
        truncate_after: forget own entries after this index, once the write in flight is done.
        accepted: first and last entry of the Append just stepped that are to be written.
        messages: send them; an Append gets the frames prev_index + 1 to last_index.
        installs: peers that need a snapshot; named again when a snapshot send failed or stalled.
        chunks: store these, then call `chunk_stored`.
        chunk_acks: the peers' responses to the chunks sent to them.
    """

    __slots__ = (
        "accepted",
        "chunk_acks",
        "chunks",
        "configuration",
        "hard_state",
        "installs",
        "messages",
        "no_op_index",
        "truncate_after",
    )

    def __init__(self) -> None:
        self.hard_state: HardState | None = None
        self.no_op_index: int | None = None
        self.configuration: tuple[int, Configuration] | None = None
        self.truncate_after: int | None = None
        self.accepted: tuple[int, int] | None = None
        self.messages: Sequence[Message] = ()
        self.installs: Sequence[int] = ()
        self.chunks: Sequence[Install] = ()
        self.chunk_acks: Sequence[InstallResponse] = ()


NOTHING = Ready()
"""The empty one, for a core that is idle; never changed."""
