"""A member's heartbeat: joins, changes the subscription, reports what it owns, and gets its assignment.

Pure. Owns: the three steps of a heartbeat. The member is made or updated, and the group epoch rises if the
group's topics changed; the target assignment is computed again if its epoch is below the group epoch, at most
once in an assignment interval; the member goes a step towards the target. Invariants: the state is only read,
all changes are in the returned records; a heartbeat that changes nothing has none; the response has the
assignment where it changed, and for a join or a full request. Source: Kafka's
GroupMetadataManager.consumerGroupHeartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup, find_remaining, subscribed_names
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    CurrentAssignment,
    GroupEpoch,
    MemberState,
    Partitions,
    ResolvedRegex,
    TargetMetadata,
    current_record,
    group_epoch_record,
    member_record,
    regex_tombstone,
)
from lockstep.broker.groups.consumer.current_assignment_builder import (
    Owned,
    is_consistent,
    next_assignment,
)
from lockstep.broker.groups.consumer.membership import FoundMember, find_member
from lockstep.broker.groups.consumer.request_checks import JOIN_EPOCH
from lockstep.broker.groups.consumer.subscribed_regex import check_regex
from lockstep.broker.groups.consumer.subscribed_topics import (
    TopicDescriber,
    is_subscribed,
    metadata_hash,
)
from lockstep.broker.groups.consumer.target_assignment import next_target, preferred_assignor
from lockstep.broker.groups.group_records import Record
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


@dataclass(frozen=True, slots=True)
class HeartbeatContext:
    """The inputs of a heartbeat besides its request."""

    topics: TopicDescriber
    now_ms: int
    client_id: str
    client_host: str
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    assignors: Sequence[str]
    """The configured ones, the default first."""
    is_metadata_new: bool = False
    """True if topics may have changed since the group's hash was compared last."""


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The outcome of one heartbeat."""

    records: list[Record]
    response: ConsumerGroupHeartbeatResponse
    member: ConsumerGroupMember
    current: CurrentAssignment
    is_moved: bool
    """True if the member's current assignment changed."""
    replaced_id: str | None
    has_new_regex: bool
    """True if the member's regular expression is not resolved yet."""


def heartbeat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, context: HeartbeatContext
) -> HeartbeatResult:
    """Serves one heartbeat with an epoch of 0 or more; an empty group stands for one that is not there.

    Raises RequestError; then nothing changes.
    """
    member_id = request.member_id
    is_known = member_id in group.members or group.static_member(request.instance_id) is not None
    if len(group.members) >= context.max_size and not is_known:
        text = f"The consumer group has reached its maximum capacity of {context.max_size} members."
        raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)
    owned = _find_owned(request)
    found = find_member(group, member_id, request.instance_id, request.member_epoch, owned)
    return _Heartbeat(group, request, context, found, owned).run()


def _find_owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    """The partitions that the member has; a topic may come more than once."""
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, list[int]] = {}
    for each in request.topic_partitions:
        owned.setdefault(each.topic_id, []).extend(each.partitions)
    return owned


class _Heartbeat:
    """One heartbeat under way."""

    __slots__ = (
        "_context",
        "_found",
        "_group",
        "_has_new_regex",
        "_is_regex_resolved",
        "_member",
        "_owned",
        "_records",
        "_regexes",
        "_request",
    )

    def __init__(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        context: HeartbeatContext,
        found: FoundMember,
        owned: Owned | None,
    ) -> None:
        self._group = group
        self._request = request
        self._context = context
        self._found = found
        self._owned = owned
        self._records = list(found.records)
        self._member = self._updated_member()
        self._regexes: Mapping[str, ResolvedRegex] = group.regexes
        self._is_regex_resolved = self._has_new_regex = False

    def run(self) -> HeartbeatResult:
        member, before = self._member, self._found.member
        if self._found.is_new or member != before:
            self._records.append(member_record(self._group.group_id, member))
        if member.regex != before.regex:
            self._change_regex(before.regex, member.regex)
        group_epoch = self._next_group_epoch()
        assignment_epoch, target = self._update_target(group_epoch)
        current = self._reconcile(assignment_epoch, target)
        is_moved = current != self._found.current
        if is_moved:
            self._records.append(current_record(self._group.group_id, member.member_id, current))
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=self._context.heartbeat_interval_ms,
        )
        if self._includes_assignment(current):
            response.assignment = assignment_of(current)
        return HeartbeatResult(
            self._records, response, member, current, is_moved, self._found.replaced_id, self._has_new_regex
        )

    # --- the member -----------------------------------------------------------------------------------------

    def _updated_member(self) -> ConsumerGroupMember:
        request, before = self._request, self._found.member
        topics, regex = before.topics, before.regex
        if request.subscribed_topic_names is not None:
            names = request.subscribed_topic_names
            if len(names) != len(topics) or tuple(names) != topics:
                topics = tuple(sorted(set(names)))
        if request.subscribed_topic_regex is not None:
            regex = request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        return ConsumerGroupMember(
            before.member_id,
            before.instance_id if request.instance_id is None else request.instance_id,
            before.rack_id if request.rack_id is None else request.rack_id,
            self._context.client_id,
            self._context.client_host,
            topics,
            regex,
            before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            before.server_assignor if request.server_assignor is None else request.server_assignor,
        )

    def _change_regex(self, old: str, new: str) -> None:
        group = self._group
        if old and group.regex_members.get(old) == 1:
            self._records.append(regex_tombstone(group.group_id, old))
            self._regexes = {regex: resolved for regex, resolved in group.regexes.items() if regex != old}
        if not new:
            self._is_regex_resolved = True
        elif new not in group.regex_members:
            check_regex(new)
            self._has_new_regex = True
        elif new in group.regexes:
            self._is_regex_resolved = True

    # --- the group's epoch ----------------------------------------------------------------------------------

    def _next_group_epoch(self) -> int:
        """A group begins with epoch 1, to which the first subscription adds one."""
        group = self._group
        first_epoch = max(group.group_epoch, 1)
        is_changed = self._member.topics != self._found.member.topics or self._is_regex_resolved
        is_changed = is_changed or self._assignor() != preferred_assignor(
            group.assignors, self._context.assignors
        )
        digest = group.epoch.metadata_hash
        if is_changed or self._context.is_metadata_new:
            digest = metadata_hash(self._subscribed_names(), self._context.topics)
            is_changed = is_changed or digest != group.epoch.metadata_hash
        epoch = first_epoch + is_changed
        if epoch != group.group_epoch:
            self._records.append(group_epoch_record(group.group_id, GroupEpoch(epoch, digest)))
        return epoch

    def _assignor(self) -> str:
        """The assignor that the group prefers with this change."""
        before, after = self._found.member.server_assignor, self._member.server_assignor
        if after is None or after == before:
            return preferred_assignor(self._group.assignors, self._context.assignors)
        counts = dict(self._group.assignors)
        if before is not None:
            counts[before] -= 1
        counts[after] = counts.get(after, 0) + 1
        requested = {name: count for name, count in counts.items() if count}
        return preferred_assignor(requested, self._context.assignors)

    def _subscribed_names(self) -> set[str]:
        """The names that the group is subscribed to with this change."""
        group, before, member = self._group, self._found.member, self._member
        names = find_remaining(group.topic_members, before.topics).union(member.topics)
        regexes = find_remaining(group.regex_members, [before.regex]).union([member.regex])
        return subscribed_names(names, regexes, self._regexes)

    # --- the assignment -------------------------------------------------------------------------------------

    def _update_target(self, group_epoch: int) -> tuple[int, Partitions]:
        """The target's epoch and this member's part of it; computed again if that is due."""
        group, member, replaced_id = self._group, self._member, self._found.replaced_id
        present = group.target_of(replaced_id or member.member_id)
        elapsed_ms = self._context.now_ms - group.target_metadata.time_ms
        if group_epoch <= group.assignment_epoch or 0 <= elapsed_ms < self._context.assignment_interval_ms:
            return group.assignment_epoch, present
        members, targets = dict(group.members), dict(group.target)
        members.pop(replaced_id or member.member_id, None)
        has_target = targets.pop(replaced_id or member.member_id, None) is not None
        members[member.member_id] = member
        if has_target:
            targets[member.member_id] = present
        target, records = next_target(
            group,
            members,
            targets,
            self._regexes,
            self._context.topics,
            self._assignor(),
            TargetMetadata(group_epoch, self._context.now_ms),
        )
        self._records += records
        return group_epoch, target[member.member_id]

    def _reconcile(self, assignment_epoch: int, target: Partitions) -> CurrentAssignment:
        current, member = self._found.current, self._member

        def subscribes(topic_id: bytes) -> bool:
            return is_subscribed(topic_id, member, self._regexes, self._context.topics)

        if current.is_reconciled_to(assignment_epoch) and is_consistent(current, subscribes):
            return current
        return next_assignment(
            current, assignment_epoch, target, subscribes, self._owned, self._group.is_owned
        )

    def _includes_assignment(self, current: CurrentAssignment) -> bool:
        request = self._request
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        return (
            request.member_epoch == JOIN_EPOCH or is_full or current.assigned != self._found.current.assigned
        )


def assignment_of(current: CurrentAssignment) -> Assignment:
    """The partitions that the member may use, as in the response."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(epochs))
            for topic_id, epochs in sorted(current.assigned.items())
        ]
    )


def must_revoke(current: CurrentAssignment) -> bool:
    """Returns whether the member has to revoke partitions within its rebalance timeout."""
    return current.state is MemberState.UNREVOKED_PARTITIONS
