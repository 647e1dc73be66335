"""A member of a consumer group, for `lockstep consume --group`: it joins, is assigned partitions, commits.

Owns: the classic protocol's requests of one member that subscribes to one topic, and the `range` assignment
when it leads the group, which Java's and librdkafka's consumers have, too. Invariants: offsets are committed
in the generation that they were read in; a member that the group does not know any more joins again. Its
owner calls `heartbeat` at least every few seconds, and `has_new_partitions` at the interval of its metadata:
nothing runs in the background. Does not: read records.
Source: Kafka's RangeAssignor, ConsumerProtocol, and ConsumerCoordinator's metadata snapshots.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerError, ClientError
from lockstep.kafka_client.groups import CONSUMER, TopicPartition, commit_offsets, owned_partitions
from lockstep.protocol.cluster_view import LEADERSHIP_ERRORS
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lockstep.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from lockstep.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

T = TypeVar("T")

RANGE: Final = "range"
SESSION_TIMEOUT_MS: Final = 45_000
REBALANCE_TIMEOUT_MS: Final = 60_000
MEMBERS_MIN_VERSION: Final = 3
"""The first version of LeaveGroup that names several members."""
REJOIN_ERRORS: Final = frozenset(
    {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
)
"""The generation is over, or the group does not know the member: join again."""


class ConsumerMember:
    """See the module. After `join` it has `partitions`, which may be none."""

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._member_id = ""
        self._generation = -1
        self._assigned_counts: dict[str, int] | None = None
        """The number of partitions of each topic that this member assigned as the group's leader; None for
        the other members."""
        self.partitions: tuple[int, ...] = ()

    async def join(self) -> None:
        """Become a member, or stay one, and be assigned partitions. BrokerError, ConnectionFailed."""
        while True:
            try:
                await self._with_coordinator(self._join)
                return
            except BrokerError as error:
                if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
                    reason = f"its members do not assign partitions by {RANGE!r}; choose another group"
                    raise BrokerError(error.code, f"group {self._group}", reason) from None
                if error.code not in REJOIN_ERRORS:
                    raise
                self._forget(error)

    async def heartbeat(self) -> bool:
        """True while the generation lasts; False: join again. BrokerError, ConnectionFailed."""
        return await self._in_generation(self._send_heartbeat)

    async def has_new_partitions(self) -> bool:
        """True if this member leads the group, and a topic's partitions are others than those it assigned:
        join again, which rebalances the group. A request that fails counts as False: the next one may
        report it."""
        counts = self._assigned_counts
        if counts is None:
            return False
        try:
            return await self._partition_counts(counts) != counts
        except ClientError:
            return False

    async def commit(self, offsets: Mapping[int, int]) -> bool:
        """Commit an offset for each partition; False: the generation is over, join again. Raises BrokerError,
        ConnectionFailed."""
        offsets_by_partition = {(self._topic, index): offset for index, offset in offsets.items()}
        if not offsets_by_partition:
            return True

        async def commit() -> None:
            await commit_offsets(
                self._client, self._group, offsets_by_partition, self._generation, self._member_id
            )

        return await self._in_generation(commit)

    async def leave(self) -> None:
        """Leave the group, so that it rebalances at once. Raises BrokerError, ConnectionFailed."""
        if not self._member_id:
            return
        connection = await self._client.coordinator(self._group)
        request = LeaveGroupRequest(group_id=self._group)
        if connection.version_of(LeaveGroupRequest) >= MEMBERS_MIN_VERSION:
            request.members = [MemberIdentity(member_id=self._member_id)]
        else:
            request.member_id = self._member_id
        await connection.call(request, LeaveGroupResponse)
        self._member_id = ""

    # --- private ------------------------------------------------------------------------------------------

    async def _with_coordinator(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._client.retry_while(attempt, LEADERSHIP_ERRORS)

    async def _in_generation(self, attempt: Callable[[], Awaitable[None]]) -> bool:
        try:
            await self._with_coordinator(attempt)
        except BrokerError as error:
            if error.code not in REJOIN_ERRORS:
                raise
            self._forget(error)
            return False
        return True

    def _forget(self, error: BrokerError) -> None:
        if error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    def _check(self, code: int) -> None:
        if code:
            raise BrokerError(code, f"group {self._group}")

    async def _send_heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._member_id
        )
        connection = await self._client.coordinator(self._group)
        self._check((await connection.call(request, HeartbeatResponse)).error_code)

    async def _join(self) -> None:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=CONSUMER,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=subscription([self._topic]))],
        )
        connection = await self._client.coordinator(self._group)
        timeout_s = self._client.timeout_s + REBALANCE_TIMEOUT_MS / 1000
        joined = await connection.call(request, JoinGroupResponse, timeout_s=timeout_s)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = request.member_id = joined.member_id
            joined = await connection.call(request, JoinGroupResponse, timeout_s=timeout_s)
        self._check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assigned: dict[str, list[TopicPartition]] = {}
        self._assigned_counts = None
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assigned = await self._compute_assignment(joined.members)
        sync = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=CONSUMER,
            protocol_name=RANGE,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment(partitions))
                for member, partitions in assigned.items()
            ],
        )
        synced = await connection.call(sync, SyncGroupResponse, timeout_s=timeout_s)
        self._check(synced.error_code)
        owned = owned_partitions(bytes(synced.assignment)) or ()
        self.partitions = tuple(index for topic, index in owned if topic == self._topic)

    async def _compute_assignment(
        self, members: list[JoinGroupResponseMember]
    ) -> dict[str, list[TopicPartition]]:
        """Each member's partitions; topics that are not there have none."""
        topics = {each.member_id: subscribed_topics(bytes(each.metadata)) for each in members}
        counts = await self._partition_counts({name for names in topics.values() for name in names})
        self._assigned_counts = counts
        return assign_ranges(topics, {name: count for name, count in counts.items() if count})

    async def _partition_counts(self, names: Collection[str]) -> dict[str, int]:
        """By topic; 0 for one that does not exist."""
        existing = {topic.name: len(topic.partitions) for topic in await self._client.topics()}
        return {name: existing.get(name, 0) for name in names}


def assign_ranges(
    topics: Mapping[str, set[str]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Give each member of a topic a range of its neighbouring partitions, in the order of their ids.

    Args:
        topics: what each member subscribes to.
        counts: the number of partitions of each topic.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in topics}
    for topic, count in sorted(counts.items()):
        members = sorted(member for member, names in topics.items() if topic in names)
        size, larger = divmod(count, len(members))
        first = 0
        for number, member in enumerate(members):
            end = first + size + (number < larger)
            assigned[member] += [(topic, index) for index in range(first, end)]
            first = end
    return assigned


def subscription(topics: list[str]) -> bytes:
    """A consumer's metadata in JoinGroup, version 0 of ConsumerProtocolSubscription."""
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def subscribed_topics(metadata: bytes) -> set[str]:
    """The topics of a consumer's metadata, of any version; none where it cannot be read."""
    topics = set()
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        position = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            topics.add(metadata[position + 2 : position + 2 + length].decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return set()
    return topics


def assignment(partitions: list[TopicPartition]) -> bytes:
    """A member's partitions in SyncGroup, version 0 of ConsumerProtocolAssignment."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    parts = [struct.pack(">hi", 0, len(by_topic))]
    for topic, indexes in by_topic.items():
        name = topic.encode()
        parts.append(struct.pack(f">h{len(name)}si{len(indexes)}i", len(name), name, len(indexes), *indexes))
    return b"".join([*parts, struct.pack(">i", -1)])
