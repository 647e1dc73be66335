"""Changes of the members: one at a time, by joint consensus where voters change (Raft paper, section 6).

Invariants: a change begins only once the leader's no-op and the configuration before are committed; a
configuration is in force from its append on; a joint one is followed by the new one as soon as it is
committed; a leader that is no voter any more leads until the entry that removes it is committed. What a new
leader inherits (an uncommitted or joint configuration) it brings to its end.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.storage.raft import replication_send
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.messages import TimeoutNow
from lockstep.storage.raft.role_changes import become_follower
from lockstep.storage.raft.state import NOBODY, LeaderState, RaftState


class ConfigurationRejected(Exception):
    """The members cannot change now, or not to this; the text is the reason."""


def require_no_pending_change(leader_state: LeaderState) -> None:
    """Raises ConfigurationRejected while the leader does not serve yet, changes members or transfers."""
    if not leader_state.is_serving:
        raise ConfigurationRejected("the leader has not committed an entry of its term yet")
    if leader_state.change_pending or leader_state.next_configuration is not None:
        raise ConfigurationRejected("a change of the members is under way")
    if leader_state.transfer_target != NOBODY:
        raise ConfigurationRejected("the leader is transferring its leadership")


def change(
    raft: RaftState, leader_state: LeaderState, voters: Sequence[int], learners: Sequence[int]
) -> None:
    """Requests these members; the entry comes with the next `ready`. Raises ConfigurationRejected."""
    require_no_pending_change(leader_state)
    if not voters:
        raise ConfigurationRejected("a group needs a voter")
    if len({*voters, *learners}) != len(voters) + len(learners):
        raise ConfigurationRejected(
            f"a member is named twice: voters {list(voters)}, learners {list(learners)}"
        )
    now = raft.configurations.current
    old_voters = () if set(voters) == set(now.voters) else now.voters
    requested = Configuration(tuple(sorted(voters)), old_voters, tuple(sorted(learners)))
    if not old_voters and set(learners) == set(now.learners):
        raise ConfigurationRejected("these are the members")
    leader_state.next_configuration = requested


def append_next(raft: RaftState, leader_state: LeaderState) -> tuple[int, Configuration]:
    """Appends the next configuration, which is in force from then on."""
    configuration = leader_state.next_configuration
    assert configuration is not None
    leader_state.next_configuration = None
    index = raft.extend()
    raft.configurations.append(index, configuration)
    leader_state.adopt(configuration, raft.member_id, index)
    return index, configuration


def on_commit(raft: RaftState, leader_state: LeaderState) -> None:
    """Follows a committed joint configuration by the new one; a removed leader steps down."""
    configurations = raft.configurations
    if configurations.current_index > raft.commit_index:
        return
    current = configurations.current
    if current.joint:
        leader_state.next_configuration = Configuration(current.voters, (), current.learners)
    leader_state.change_pending = False
    if not current.is_voter(raft.member_id):
        _step_down(raft, leader_state)


def _step_down(raft: RaftState, leader_state: LeaderState) -> None:
    """Steps down as a removed leader; the most up-to-date voter starts an election without a timeout."""
    match = {voter: leader_state.progress[voter].match_index for voter in raft.configurations.current.voters}
    successor = max(sorted(match), key=lambda voter: match[voter])
    for progress in leader_state.progress.values():
        replication_send.send_heartbeat(raft, progress)
    raft.outbox.append(TimeoutNow(raft.member_id, successor, raft.term))
    become_follower(raft, raft.term)
