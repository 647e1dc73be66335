"""The options of a log group on this node, and the member ids of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from lockstep.storage.log.options import LogOptions
from lockstep.storage.raft.settings import RaftSettings

INCARNATION_SHIFT = 32


def member_of(node_id: int, incarnation: int = 0) -> int:
    """Returns a node's Raft member id; a node that lost its hard state comes back as another member."""
    return node_id | incarnation << INCARNATION_SHIFT


def node_of(member_id: int) -> int:
    """Returns the node of a member; -1 stays -1."""
    return member_id if member_id < 0 else member_id & ((1 << INCARNATION_SHIFT) - 1)


def fresh_incarnation(clock_ms: int) -> int:
    """Returns an incarnation that this node has not had before, provided that its clock is right."""
    return max(1, clock_ms // 1000 - 1_577_836_800)


@dataclass(frozen=True)
class GroupOptions:
    """Identity and limits of a group."""

    group_id: int
    node_id: int
    log: LogOptions = field(default_factory=LogOptions)
    max_uncommitted_bytes: int = 256 << 20
    voters: tuple[int, ...] | None = None
    """The members of a new group, the same on each of them; None: this node alone. Empty: it joins an
    existing group, whose leader adds it. Once there is a log, its own membership counts."""
    incarnation: int = 0
    """The incarnation of this node in a new directory."""
    salvage: bool = False
    """Whether a log that is damaged above its checkpoint, or has lost its hard state, is opened without the
    damaged part, as another member; only where peers have the lost entries."""
    kept_entries: int = 1 << 20
    """A follower that is no more entries behind gets entries, if they are on the disk, instead of a
    snapshot; 8 bytes of memory each."""
    raft: RaftSettings = field(default_factory=RaftSettings)
    straight_commit: bool = True
    """Whether a lone member commits its frames without the replica's general loop where nothing else is to be
    done. False: to compare; log, state and results are the same."""
    background: bool = True
    """Whether the log prepares segments in its own thread; otherwise the caller uses `log.prepare_now`."""
