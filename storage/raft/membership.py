"""Changes of the members: one at a time, by joint consensus where voters change (Raft paper, section 6).

Invariants: a change begins only once the leader's no-op and the configuration before are committed; a
configuration is in force from its append on; a joint one is followed by its successor as soon as it is
committed; a leader that is no voter any more leads until the entry that removes it is committed. What a new
leader inherits (an uncommitted or joint configuration) it brings to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.raft import sending
from storage.raft.configuration import Configuration
from storage.raft.messages import TimeoutNow
from storage.raft.roles import become_follower
from storage.raft.volatile import NOBODY, Leadership

if TYPE_CHECKING:
    from storage.raft.raft import Raft


class ConfigurationRefused(Exception):
    """The members cannot change now, or not to this; the text says why."""


def require_settled(leading: Leadership) -> None:
    """Raises ConfigurationRefused while the leader does not serve yet, changes members or hands over."""
    if not leading.serving:
        raise ConfigurationRefused("the leader has not committed an entry of its term yet")
    if leading.unsettled or leading.wanted_configuration is not None:
        raise ConfigurationRefused("a change of the members is under way")
    if leading.transfer_target != NOBODY:
        raise ConfigurationRefused("the leader is handing over")


def change(raft: Raft, leading: Leadership, voters: Sequence[int], learners: Sequence[int]) -> None:
    """Ask for these members; the entry comes with the next `ready`. Raises ConfigurationRefused."""
    require_settled(leading)
    if not voters:
        raise ConfigurationRefused("a group needs a voter")
    if len({*voters, *learners}) != len(voters) + len(learners):
        raise ConfigurationRefused(
            f"a member is named twice: voters {list(voters)}, learners {list(learners)}"
        )
    now = raft.configurations.current
    old_voters = () if set(voters) == set(now.voters) else now.voters
    wanted = Configuration(tuple(sorted(voters)), old_voters, tuple(sorted(learners)))
    if not old_voters and set(learners) == set(now.learners):
        raise ConfigurationRefused("these are the members")
    leading.wanted_configuration = wanted


def append_wanted(raft: Raft, leading: Leadership) -> tuple[int, Configuration]:
    """The wanted configuration becomes the log's next entry and is in force."""
    configuration = leading.wanted_configuration
    assert configuration is not None
    leading.wanted_configuration = None
    index = raft.extend()
    raft.configurations.append(index, configuration)
    leading.adopt(configuration, raft.member_id, index)
    return index, configuration


def settle(raft: Raft, leading: Leadership) -> None:
    """The commit index rose: a joint configuration is followed by its successor, a removed leader goes."""
    configurations = raft.configurations
    if configurations.current_index > raft.commit_index:
        return
    current = configurations.current
    if current.joint:
        leading.wanted_configuration = Configuration(current.voters, (), current.learners)
    leading.unsettled = False
    if not current.is_voter(raft.member_id):
        _leave(raft, leading)


def _leave(raft: Raft, leading: Leadership) -> None:
    """Step down for good, and let the voter that holds most begin at once instead of waiting for silence."""
    held = {voter: leading.progress[voter].match_index for voter in raft.configurations.current.voters}
    heir = max(sorted(held), key=lambda voter: held[voter])
    for progress in leading.progress.values():
        sending.send_heartbeat(raft, progress)
    raft.outbox.append(TimeoutNow(raft.member_id, heir, raft.term))
    become_follower(raft, raft.term)
