"""The next step of one member towards the target: what it keeps, must revoke, and gets.

Pure. Owns: the transitions between `MemberState`s. A member revokes what is not in its target, and stays in
its epoch until then; after that it goes to the target's epoch and gets what nobody owns; what another member
has not released it gets later. Invariants: a partition is assigned only while nobody else owns it; a topic
that the member is not subscribed to any more, or that is deleted, is taken away at once. Source: Kafka's
CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from lockstep.broker.groups.consumer.consumer_group_records import (
    NO_EPOCHS,
    CurrentAssignment,
    EpochsByPartition,
    MemberState,
    Partitions,
)
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

Owned = Mapping[bytes, Collection[int]]
"""The partitions that a member reports to have, by topic id."""


def is_consistent(current: CurrentAssignment, is_subscribed: Callable[[bytes], bool]) -> bool:
    """Returns whether all assigned topics are ones that the member is subscribed to."""
    return all(map(is_subscribed, current.assigned))


def next_assignment(
    current: CurrentAssignment,
    assignment_epoch: int,
    target: Partitions,
    is_subscribed: Callable[[bytes], bool],
    owned: Owned | None,
    is_owned: Callable[[bytes, int], bool],
) -> CurrentAssignment:
    """Makes the member's next assignment, or returns the present one where nothing changes.

    Args:
        assignment_epoch, target: the target assignment's epoch, and this member's part of it.
        is_subscribed: whether a topic exists and the member is subscribed to it.
        owned: what the member reports; None where it reports nothing.
        is_owned: whether a partition has an owner, this member included.
    Raises RequestError.
    """
    step = _Step(current, assignment_epoch, target, is_subscribed, owned, is_owned)
    match current.state:
        case MemberState.STABLE:
            return (
                step.reconcile() if current.member_epoch != assignment_epoch else step.revoke_unsubscribed()
            )
        case MemberState.UNREVOKED_PARTITIONS:
            return step.revoke_unsubscribed() if step.owns_any(current.revoked) else step.reconcile()
        case MemberState.UNRELEASED_PARTITIONS:
            return step.reconcile()
    if owned is None or owned:
        raise RequestError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. "
            "The member must abandon all its partitions and rejoin.",
        )
    return step.reconcile(assignment_epoch)


class _Step:
    """One step of one member."""

    __slots__ = ("_assignment_epoch", "_current", "_is_owned", "_is_subscribed", "_owned", "_target")

    def __init__(
        self,
        current: CurrentAssignment,
        assignment_epoch: int,
        target: Partitions,
        is_subscribed: Callable[[bytes], bool],
        owned: Owned | None,
        is_owned: Callable[[bytes, int], bool],
    ) -> None:
        self._current = current
        self._assignment_epoch = assignment_epoch
        self._target = target
        self._is_subscribed = is_subscribed
        self._owned = owned
        self._is_owned = is_owned

    def owns_any(self, partitions: EpochsByPartition) -> bool:
        """Returns whether the member has any of these; one that reports nothing counts as owning all."""
        if self._owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, ())
            for topic_id, owned in self._owned.items()
            for partition in owned
        )

    def revoke_unsubscribed(self) -> CurrentAssignment:
        """Revokes the topics that the member is not subscribed to; the rest stays as it is."""
        current = self._current
        if is_consistent(current, self._is_subscribed):
            return current
        assigned = {each: epochs for each, epochs in current.assigned.items() if self._is_subscribed(each)}
        revoked = {each: dict(epochs) for each, epochs in current.revoked.items()}
        for topic_id, epochs in current.assigned.items():
            if not self._is_subscribed(topic_id):
                revoked.setdefault(topic_id, {}).update(epochs)
        if self.owns_any(revoked):
            return self._move_to(current.member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
        return replace(current, previous_member_epoch=current.member_epoch, assigned=assigned)

    def reconcile(self, member_epoch: int | None = None) -> CurrentAssignment:
        """Goes as far towards the target as is possible now."""
        current = self._current
        if member_epoch is None:
            member_epoch = current.member_epoch
        assigned: dict[bytes, dict[int, int]] = {}
        revoked: dict[bytes, dict[int, int]] = {}
        pending_assignment: dict[bytes, list[int]] = {}
        has_unreleased = False
        for topic_id in dict.fromkeys((*self._target, *current.assigned)):
            target = self._target.get(topic_id, ()) if self._is_subscribed(topic_id) else ()
            present = current.assigned.get(topic_id, {})
            target_set = set(target)
            if kept := {each: epoch for each, epoch in present.items() if each in target_set}:
                assigned[topic_id] = kept
            if dropped := {each: epoch for each, epoch in present.items() if each not in target_set}:
                revoked[topic_id] = dropped
            pending_revocation = current.revoked.get(topic_id, ())
            for partition in target:
                if partition in present:
                    continue
                if self._is_owned(topic_id, partition) and partition not in pending_revocation:
                    has_unreleased = True
                else:
                    pending_assignment.setdefault(topic_id, []).append(partition)
        if revoked and self.owns_any(revoked):
            return self._move_to(member_epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
        for topic_id, partitions in pending_assignment.items():
            assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, self._assignment_epoch))
        state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
        return self._move_to(self._assignment_epoch, state, assigned, NO_EPOCHS)

    def _move_to(
        self,
        member_epoch: int,
        state: MemberState,
        assigned: EpochsByPartition,
        revoked: EpochsByPartition,
    ) -> CurrentAssignment:
        """The assignment at this epoch; the present epoch becomes the previous one, even if it is the same,
        so that the epoch before that is fenced once the partitions changed."""
        return CurrentAssignment(member_epoch, self._current.member_epoch, state, assigned, revoked)
