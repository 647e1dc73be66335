"""The view of a log group's leader: its members and their progress.

Owns: the rule by which a member counts as up to date. Invariant: unknown state removes no member; a member
is up to date only by its own recent responses. Decides nothing: `next_change` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from lockstep.storage.raft.progress import SendState
from lockstep.storage.raft.raft import Raft

MAX_LAG_ENTRIES = 256
"""A follower that keeps up lags by the entries in flight, some tens. Appending this many more costs it
some ten milliseconds: a commit that waits for it is hardly delayed."""


@dataclass(frozen=True, slots=True)
class DesiredMembers:
    """The desired members of a group, and the state of their nodes."""

    voter_nodes: tuple[int, ...]
    """The nodes that are to vote; the first is the preferred leader. Empty: unknown, so nothing is done."""
    learner_nodes: tuple[int, ...] = ()
    """The nodes that are only to receive the log."""
    member_of_node: Mapping[int, int] = field(default_factory=dict)
    """The member id that each node reports for this group; absent: it has reported none."""
    alive: Set[int] = frozenset()
    """Nodes with a recent status."""
    unwritable: Mapping[int, bool] = field(default_factory=dict)
    """Whether each node's disk is full or cannot be written, the leader's own included; absent: it has
    reported none."""
    incomplete: Set[int] = frozenset()
    """The nodes with missing or damaged records of this group that are not skipped, the leader included."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The state of a group that is led here, at one moment."""

    leader: int
    """The member of this node."""
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    no_change_pending: bool
    """Whether no change of members and no leadership transfer is under way."""
    is_nearly_committed: bool
    """Whether so few entries are uncommitted that a leadership transfer would hardly delay a client."""
    up_to_date: Set[int]
    """Members that responded recently and have nearly all of the log; the leader is one."""
    desired: DesiredMembers


def observe(raft: Raft, desired: DesiredMembers) -> GroupView | None:
    """Returns the view of this leader; None where it does not lead."""
    leader_state = raft.leader_state
    if leader_state is None:
        return None
    configuration = raft.configuration
    return GroupView(
        raft.member_id,
        configuration.voters,
        configuration.learners,
        leader_state.is_serving
        and not leader_state.change_pending
        and leader_state.next_configuration is None
        and not raft.is_transferring,
        _is_nearly_at_end(raft, raft.commit_index),
        {member for member in configuration.members if is_up_to_date(raft, member)},
        desired,
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
        and _is_nearly_at_end(raft, progress.match_index)
    )


def _is_nearly_at_end(raft: Raft, index: int) -> bool:
    """Returns whether no more entries follow `index` than a full pipeline holds, of any size."""
    terms, settings = raft.terms, raft.settings
    lag = terms.last_index - index
    if lag <= settings.pipeline_depth:
        return True
    if lag > MAX_LAG_ENTRIES or index < terms.base_index:
        return False
    size = terms.size_between(index + 1, terms.last_index)
    return size <= settings.pipeline_depth * settings.max_append_bytes
