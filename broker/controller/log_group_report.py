"""The report of one log group by its leader: its members, and the progress of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lockstep.broker.membership.group_view import is_up_to_date
from lockstep.storage.group_options import node_of
from lockstep.storage.raft.progress import SendState

if TYPE_CHECKING:
    from lockstep.storage.log_group import LogGroup

Document = dict[str, Any]
"""What becomes a JSON object."""


def report(group: LogGroup) -> Document:
    """A group that is led here; `changing` while the members are not for certain."""
    raft, configuration = group.raft, group.raft.configuration
    voters = {*configuration.voters, *configuration.old_voters}
    return {
        "leader": group.leader_id,
        "term": raft.term,
        "commit_index": raft.commit_index,
        "last_index": raft.last_index,
        "changing": raft.leader_state is None or raft.leader_state.change_pending or configuration.joint,
        "voters": [_member(group, each) for each in sorted(voters, key=_by_node)],
        "learners": [_member(group, each) for each in sorted(configuration.learners, key=_by_node)],
    }


def _by_node(member: int) -> tuple[int, int]:
    return node_of(member), member


def _member(group: LogGroup, member: int) -> Document:
    """One member; `in_sync` is `is_up_to_date`, at once and stricter than Kafka's ISR."""
    raft = group.raft
    progress = raft.progress(member)
    match: int | None = raft.last_index
    if progress is not None:
        # A new leader knows no position before the member's first response.
        is_known = progress.match_index > 0 or progress.state is not SendState.PROBE
        match = progress.match_index if is_known else None
    return {
        "node": node_of(member),
        "member": member,
        "match_index": match,
        "lag": None if match is None else raft.last_index - match,
        "in_sync": is_up_to_date(raft, member),
    }
