"""What a log group is on this node, and the member ids that its nodes go by."""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.log.options import LogOptions
from storage.raft.settings import RaftSettings

INCARNATION_SHIFT = 32


def member_of(node_id: int, incarnation: int = 0) -> int:
    """The Raft member that a node is; one that lost what it may have promised comes back as another."""
    return node_id | incarnation << INCARNATION_SHIFT


def node_of(member_id: int) -> int:
    """The node behind a member; -1 stays -1."""
    return member_id if member_id < 0 else member_id & ((1 << INCARNATION_SHIFT) - 1)


def fresh_incarnation(clock_ms: int) -> int:
    """One that this node has not had before, as far as clocks can be trusted: seconds since 2020."""
    return max(1, clock_ms // 1000 - 1_577_836_800)


@dataclass(frozen=True)
class GroupOptions:
    """What a group is and where its limits lie."""

    group_id: int
    node_id: int
    log: LogOptions = field(default_factory=LogOptions)
    max_uncommitted_bytes: int = 256 << 20
    voters: tuple[int, ...] | None = None
    """The members of a new group, the same on each of them; None: this node alone. Empty: it joins a group
    that is there, as whoever leads that says. Once there is a log, its own membership counts."""
    incarnation: int = 0
    """For a new directory: which life of this node it is."""
    salvage: bool = False
    """Whether a log that is damaged above its checkpoint, or has lost its hard state, is opened without what
    is damaged, as another member; only where peers have what this one lost."""
    kept_entries: int = 1 << 20
    """How far behind a follower may be and still be sent entries, as far as they are on the disk, instead of
    a shipped checkpoint; 8 bytes of memory each."""
    raft: RaftSettings = field(default_factory=RaftSettings)
    background: bool = True
    """Whether the log prepares segments in its own thread; otherwise somebody calls `log.prepare_now`."""
