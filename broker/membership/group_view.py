"""The view of a log group's leader: its members and their progress.

Owns: when a member counts as up to date. Invariant: what is not known speaks against nobody; a member is up
to date only by its own recent answers. Decides nothing: `next_change` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from lockstep.storage.raft.progress import SendState
from lockstep.storage.raft.raft import Raft

MAX_LAG_ENTRIES = 256
"""A follower in full flow lags by what is on the way, some tens of entries. Taking in so many more costs it
some ten milliseconds: no commit that had to wait for it would wait for long."""


@dataclass(frozen=True, slots=True)
class DesiredMembers:
    """The desired members of a group, and the state of their nodes."""

    wanted_nodes: tuple[int, ...]
    """Those that should vote; the first is the preferred leader. Empty: not known, so nothing is done."""
    learner_nodes: tuple[int, ...] = ()
    """Those that should receive the log only."""
    member_of_node: Mapping[int, int] = field(default_factory=dict)
    """The member that each node says it is in this group; absent: it has not said."""
    alive: Set[int] = frozenset()
    """Nodes that were heard of lately."""
    disks_full: Mapping[int, bool] = field(default_factory=dict)
    """Whether each node's disk is full, the leader's own included; absent: it has not said."""


@dataclass(frozen=True, slots=True)
class View:
    """One look at a group that is led here."""

    leader: int
    """The member that looks."""
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    settled: bool
    """Whether no change and no hand-over is under way."""
    light: bool
    """Whether so little is uncommitted that handing over would hardly be felt."""
    up_to_date: Set[int]
    """Members that answered lately and hold nearly all of the log; the leader is one."""
    wanted: DesiredMembers


def view_of(raft: Raft, wanted: DesiredMembers) -> View | None:
    """A look through this leader's eyes; None where it does not lead."""
    leader_state = raft.leader_state
    if leader_state is None:
        return None
    configuration = raft.configuration
    return View(
        raft.member_id,
        configuration.voters,
        configuration.learners,
        leader_state.is_serving
        and not leader_state.change_pending
        and leader_state.next_configuration is None
        and not raft.is_transferring,
        _little(raft, raft.commit_index),
        {member for member in configuration.members if is_up_to_date(raft, member)},
        wanted,
    )


def is_up_to_date(raft: Raft, member: int) -> bool:
    """Returns whether a majority may depend on this member: it responds, and is nearly complete."""
    if member == raft.member_id:
        return True
    progress = raft.progress(member)
    return (
        progress is not None
        and progress.state is SendState.REPLICATE
        and raft.now_ms - progress.contact_ms <= raft.settings.election_timeout_ms
        and _little(raft, progress.match_index)
    )


def _little(raft: Raft, index: int) -> bool:
    """Returns whether no more entries follow `index` than a full pipeline holds, of any size."""
    terms, settings = raft.terms, raft.settings
    lag = terms.last_index - index
    if lag <= settings.pipeline_depth:
        return True
    if lag > MAX_LAG_ENTRIES or index < terms.base_index:
        return False
    size = terms.size_between(index + 1, terms.last_index)
    return size <= settings.pipeline_depth * settings.max_append_bytes
