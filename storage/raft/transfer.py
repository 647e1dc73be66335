"""Handing over (Raft thesis, section 3.10): bring the target up to date, then tell it to stand for election.

While that is under way no proposals are taken; after the transfer timeout they are again, and the shell takes
appends once all that was appended before is applied. Once the target was told it may win at any time within
this term, and its voters do not wait for our lease to end: the lease is dropped for the rest of the term.
Should the target not take over, the leader stands for election itself, as told by itself, because in a new
term it can have a lease again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.raft import election, membership
from storage.raft.messages import TimeoutNow
from storage.raft.progress import Progress
from storage.raft.roles import become_follower
from storage.raft.volatile import NOBODY, Leadership

if TYPE_CHECKING:
    from storage.raft.raft import Raft


def begin(raft: Raft, leading: Leadership, target: int) -> None:
    """Raises ConfigurationRefused where the target is no other voter, or something else is under way."""
    membership.require_settled(leading)
    if target == raft.member_id or not raft.configurations.current.is_voter(target):
        raise membership.ConfigurationRefused(f"member {target} is no other voter")
    leading.transfer_target = target
    leading.transfer_due_ms = raft.now_ms + raft.settings.transfer_timeout_ms
    proceed(raft, leading.progress[target])


def proceed(raft: Raft, progress: Progress) -> None:
    """Tell the target to stand once it holds everything."""
    leading = raft.leading
    if leading is None or leading.transfer_target != progress.member:
        return
    if progress.match_index == raft.terms.last_index:
        leading.lease_dropped = True
        raft.outbox.append(TimeoutNow(raft.member_id, progress.member, raft.term))


def expire(raft: Raft, leading: Leadership) -> bool:
    """The target did not take over in time; False where this member leads no more because of that."""
    if leading.transfer_target == NOBODY or raft.now_ms < leading.transfer_due_ms:
        return True
    leading.transfer_target = NOBODY
    if not leading.lease_dropped:
        leading.resumed_index = raft.terms.last_index
        return True
    become_follower(raft, raft.term)
    election.stand(raft, transfer=True)
    return False
