"""The coordinator of the consumer groups of one data log group: requests in, responses out.

Owns: which groups have a `GroupRebalancer` (those with members, pending member ids, or writes under way),
`load` and `resign`, the state of groups for other APIs. Invariants: a group without one is Empty and equals
its committed records; a coordinator that does not serve rejects all requests and keeps no state; memory is
bounded by `GroupLimits`. Does not: know partitions of `__consumer_offsets` (`broker/coordination/`), the
rules of a join (`group_join.py`) or of a rebalance (`group_rebalancer.py`). Source: Kafka's
GroupCoordinatorService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from lockstep.broker.groups.classic_group import (
    ClassicGroup,
    State,
    assigned_bytes,
    bytes_of,
    group_bytes,
    protocols_of,
)
from lockstep.broker.groups.classic_requests import (
    BATCHED_LEAVE_MIN_VERSION,
    PendingConsumerLeave,
    PendingLeaveResponse,
    described,
    leave_response,
    remove_leaving,
    sync_request_error,
)
from lockstep.broker.groups.consumer.cluster_context import ClusterContext, context_of_settings
from lockstep.broker.groups.consumer.consumer_group import subscribed_names
from lockstep.broker.groups.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from lockstep.broker.groups.consumer.offset_checks import commit_error
from lockstep.broker.groups.group_context import (
    MEMBERS_SHARE,
    GroupContext,
    GroupLimits,
    GroupRecordStore,
)
from lockstep.broker.groups.group_deletion import GroupDeletions
from lockstep.broker.groups.group_join import JoinRequest, join
from lockstep.broker.groups.group_rebalancer import GroupRebalancer
from lockstep.broker.groups.group_records import Record, group_record
from lockstep.broker.groups.group_responses import (
    PendingJoinResponse,
    PendingSyncResponse,
    join_error,
    sync_error,
)
from lockstep.broker.groups.subscription import CONSUMER, topics_of
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.broker.settings.config import Settings
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_groups import DescribedGroup
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest
from lockstep.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from lockstep.protocol.messages.list_groups import ListedGroup
from lockstep.protocol.messages.sync_group import SyncGroupRequest
from lockstep.protocol.plural import pluralize

log = logging.getLogger("lockstep.groups")

OWN_REBALANCE_TIMEOUT_MIN_VERSION: Final = 1
CLASSIC: Final = "classic"


class GroupCoordinator:
    """Args: store: where its groups are written; settings: the broker's; batch_bytes: the largest batch;
    cluster_context: the cluster around consumer groups; None where there is none."""

    def __init__(
        self,
        store: GroupRecordStore,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        batch_bytes: Callable[[], int],
        cluster_context: ClusterContext | None = None,
    ) -> None:
        self._store = store
        self._limits = GroupLimits(
            min_session_timeout_ms=settings.group_min_session_timeout_ms,
            max_session_timeout_ms=settings.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
            max_total_bytes=settings.lockstep_groups_max_bytes,
            batch_bytes=batch_bytes,
        )
        self._context = GroupContext(store, self._limits, loop, self._on_group_changed)
        self._rebalancers: dict[str, GroupRebalancer] = {}
        self.consumer = ConsumerGroupCoordinator(
            store,
            lambda: store.state.consumer_groups,
            cluster_context or context_of_settings(settings),
            self,
            loop,
            self._limits.max_total_bytes,
        )
        """The groups of the consumer protocol."""
        self._not_serving_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """The error of all responses while this coordinator does not serve; NONE while it does."""
        self._deletions = GroupDeletions(store, self.consumer, self._on_deletion_written)

    # --- lifecycle
    # ---------------------------------------------------------------------------------------------

    @property
    def not_serving_error(self) -> ErrorCode:
        """The error of all responses; NONE while it serves."""
        return self._not_serving_error

    def prepare_load(self) -> None:
        """This node leads again; `load` follows once all earlier entries are replayed."""
        self._not_serving_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def load(self) -> None:
        """Loads every committed group that has members, and begins their sessions."""
        self._not_serving_error = ErrorCode.NONE
        state = self._store.state
        for group_id in list(state.group_ids()):
            metadata = state.group(group_id)
            if metadata is None or not metadata.members:
                continue
            rebalancer = GroupRebalancer(ClassicGroup.restore(group_id, metadata), self._context)
            self._rebalancers[group_id] = rebalancer
            members = rebalancer.group.members
            for member in members.values():
                rebalancer.refresh_session(member.member_id, member.session_timeout_ms)
            if len(members) > self._limits.max_size:
                rebalancer.prepare_rebalance()
            self._on_group_changed(rebalancer)
        if self._rebalancers:
            log.info("took over %s with members", pluralize(len(self._rebalancers), "consumer group"))
        self.consumer.load()

    def resign(self) -> None:
        """Fails all pending requests with NOT_COORDINATOR, and forgets uncommitted state."""
        self._not_serving_error = ErrorCode.NOT_COORDINATOR
        self.consumer.resign()
        self._deletions.clear()
        rebalancer, self._rebalancers = self._rebalancers, {}
        for each in rebalancer.values():
            each.resign()
            each.update_memory_usage()
        self._context.response_queue.send()

    def _rebalancer_of(self, group_id: str) -> GroupRebalancer:
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is None:
            metadata = self._store.state.group(group_id)
            group = ClassicGroup(group_id, self._store.time_ms())
            if metadata is not None:
                group = ClassicGroup.restore(group_id, replace(metadata, members=()))
            rebalancer = self._rebalancers[group_id] = GroupRebalancer(group, self._context)
        return rebalancer

    def _on_deletion_written(self, group_id: str) -> None:
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is not None:
            self._on_group_changed(rebalancer)

    def _on_group_changed(self, rebalancer: GroupRebalancer) -> None:
        """A group changed: counts its memory, and unloads it if it is idle."""
        rebalancer.update_memory_usage()
        if self._rebalancers.get(rebalancer.group.group_id) is rebalancer and rebalancer.is_idle:
            self._unload(rebalancer)

    # --- members' requests --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, api_version: int, client_id: str, client_host: str
    ) -> PendingJoinResponse:
        """JoinGroup. What is kept of the request is copied."""
        response = PendingJoinResponse(api_version)
        member_id = request.member_id
        error = self._request_error(request.group_id)
        if error is ErrorCode.NONE and not (
            self._limits.min_session_timeout_ms
            <= request.session_timeout_ms
            <= self._limits.max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and member_id and not self.exists(request.group_id):
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            response.complete(join_error(error, member_id))
            return response
        protocols = protocols_of((each.name, bytes(each.metadata)) for each in request.protocols)
        if not self._has_memory(request, bytes_of(protocols)):
            response.complete(join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
            return response
        timeout_ms = request.session_timeout_ms
        if api_version >= OWN_REBALANCE_TIMEOUT_MIN_VERSION:
            timeout_ms = max(request.rebalance_timeout_ms, 0)
        join_request = JoinRequest(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
            api_version=api_version,
            response=response,
        )
        group_id = request.group_id
        if self.consumer.has(group_id):
            self._end_and_join(group_id, join_request)
        else:
            self._join(group_id, join_request)
        return response

    def _join(self, group_id: str, join_request: JoinRequest) -> None:
        rebalancer = self._rebalancer_of(group_id)
        join(rebalancer, join_request, self._limits, self._context.response_queue)
        self._on_group_changed(rebalancer)

    def _end_and_join(self, group_id: str, join_request: JoinRequest) -> None:
        """A consumer group without members becomes a classic one; one with members rejects a classic member:
        groups with members of both protocols are not served."""

        def on_end(_: object, rejection: RequestError | None) -> None:
            if rejection is None:
                self._join(group_id, join_request)
                return
            error = rejection.error
            if error is ErrorCode.NON_EMPTY_GROUP:
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            join_request.response.complete(join_error(error, join_request.member_id))

        self.consumer.end(group_id, tuple, on_end)

    def sync(self, request: SyncGroupRequest) -> PendingSyncResponse:
        """SyncGroup. What is kept of the request is copied."""
        response = PendingSyncResponse()
        error = self._request_error(request.group_id)
        rebalancer = self._rebalancers.get(request.group_id)
        if error is ErrorCode.NONE:
            error = sync_request_error(rebalancer, request)
        if (
            error is ErrorCode.NONE
            and rebalancer is not None
            and not self._has_memory_for_assignments(rebalancer, request)
        ):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            response.complete(sync_error(error))
            return response
        assert rebalancer is not None
        assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
        rebalancer.sync(rebalancer.group.members[request.member_id], assignments, response)
        self._on_group_changed(rebalancer)
        return response

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat; returns the error of the response."""
        error = self._request_error(request.group_id)
        if error is not ErrorCode.NONE:
            # A group that is being loaded keeps its members: the heartbeat succeeds, as in Kafka.
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        rebalancer = self._rebalancers.get(request.group_id)
        if rebalancer is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group = rebalancer.group
        error = group.validate(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        rebalancer.refresh_session(request.member_id, group.members[request.member_id].session_timeout_ms)
        if group.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, request: LeaveGroupRequest, api_version: int) -> LeaveGroupResponse | PendingResponse:
        """LeaveGroup; the response of the last members waits for the commit of the empty group."""
        error = self._request_error(request.group_id)
        if error is not ErrorCode.NONE:
            return LeaveGroupResponse(error_code=error)
        leaving = request.members
        if api_version < BATCHED_LEAVE_MIN_VERSION:
            leaving = [MemberIdentity(member_id=request.member_id)]
        if self.consumer.group(request.group_id) is not None:
            response_of_members = PendingConsumerLeave(api_version)
            self.consumer.leave_classic(request.group_id, leaving, response_of_members.finish)
            return response_of_members
        rebalancer = self._rebalancers.get(request.group_id)
        member_count = 0 if rebalancer is None else len(rebalancer.group.members)
        members = [remove_leaving(rebalancer, each) for each in leaving]
        response = leave_response(members, api_version)
        if rebalancer is None or all(each.error_code for each in members):
            return response
        writes = rebalancer.writes
        if len(rebalancer.group.members) < member_count:
            rebalancer.rebalance_after_removal()
        else:
            rebalancer.try_complete_join()
        pending: PendingResponse | None = None
        if rebalancer.group.state is State.EMPTY and rebalancer.writes > writes:
            pending = PendingLeaveResponse(response, rebalancer)
        self._on_group_changed(rebalancer)
        return response if pending is None else pending

    def _has_memory(self, request: JoinGroupRequest, offered_bytes: int) -> bool:
        """Returns whether memory suffices for this join; present members may use more of it than new ones."""
        memory_bytes, max_bytes = self.memory_bytes, self._limits.max_total_bytes
        rebalancer = self._rebalancers.get(request.group_id)
        if rebalancer is None:
            member = None
            offered_bytes += group_bytes(request.group_id)
        else:
            member = rebalancer.group.find_replaced(request.member_id, request.group_instance_id)
        if member is None:
            return memory_bytes + offered_bytes <= max_bytes
        added_bytes = offered_bytes - member.protocol_bytes
        return added_bytes <= 0 or memory_bytes + added_bytes <= MEMBERS_SHARE * max_bytes

    def _has_memory_for_assignments(self, rebalancer: GroupRebalancer, request: SyncGroupRequest) -> bool:
        added_bytes = assigned_bytes(each.assignment for each in request.assignments)
        added_bytes -= rebalancer.group.assignment_bytes
        max_bytes = MEMBERS_SHARE * self._limits.max_total_bytes
        return added_bytes <= 0 or self.memory_bytes + added_bytes <= max_bytes

    def _request_error(self, group_id: str) -> ErrorCode:
        return self._not_serving_error if group_id else ErrorCode.INVALID_GROUP_ID

    @property
    def memory_bytes(self) -> int:
        """The estimated memory of all groups of both protocols."""
        return self._context.memory_bytes + self._store.state.consumer_groups.memory_bytes

    # --- groups that change their protocol ------------------------------------------------------------------

    def release(self, group_id: str) -> list[Record]:
        """A group of the classic protocol without members becomes a consumer group: the records of that.

        Raises RequestError where it has members, as a Kafka whose migration policy allows no upgrade.
        """
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is not None and rebalancer.group.state is not State.EMPTY:
            raise RequestError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is "
                "disabled.",
            )
        if (rebalancer is not None and rebalancer.writes) or group_id in self._deletions:
            text = "a write of the group is not committed yet"
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
        if rebalancer is not None:
            for member_id in list(rebalancer.group.pending):
                rebalancer.drop(member_id)
            self._on_group_changed(rebalancer)
        return [] if self._store.state.group(group_id) is None else [group_record(group_id, None)]

    # --- offsets ------------------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
        api_version: int = 0,
        partitions: Iterable[tuple[bytes, int]] = (),
    ) -> ErrorCode:
        """Returns the error of an offset commit by this member, or (generation -1, no ids) by a non-member.
        In a consumer group it depends on version and partitions, by topic id.

        NONE also refreshes the member's session. Within a transaction it does not, a non-member may
        commit for a group with members (older producers send none), and a member before its generation is
        Stable (KIP-447). Source: Kafka's ClassicGroup.validateOffsetCommit.
        """
        if self._not_serving_error is not ErrorCode.NONE:
            return self._not_serving_error
        consumer_group = self.consumer.group(group_id)
        if consumer_group is None:
            error = self._commit_error(group_id, member_id, instance_id, generation, transactional)
        else:
            error = commit_error(
                consumer_group,
                member_id,
                instance_id,
                generation,
                partitions,
                api_version,
                transactional=transactional,
            )
        if error is ErrorCode.NONE:
            self._deletions.on_commit(group_id)
        return error

    def _commit_error(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, transactional: bool
    ) -> ErrorCode:
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is None or rebalancer.group.state is State.EMPTY:
            if generation < 0:
                return ErrorCode.NONE
            return ErrorCode.UNKNOWN_MEMBER_ID if self.exists(group_id) else ErrorCode.ILLEGAL_GENERATION
        group = rebalancer.group
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = group.validate(member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if transactional:
            return ErrorCode.NONE
        if group.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        rebalancer.refresh_session(member_id, group.members[member_id].session_timeout_ms)
        return ErrorCode.NONE

    def subscribed_topics(self, group_id: str) -> set[str] | None:
        """Topics the members of a `consumer` group subscribe to; None: unknown, count it as all."""
        consumer_group = self.consumer.group(group_id)
        if consumer_group is not None:
            return subscribed_names(
                consumer_group.topic_members, consumer_group.regex_members, consumer_group.regexes
            )
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is None or not rebalancer.group.members:
            return set()
        group = rebalancer.group
        if group.protocol_type != CONSUMER:
            return None
        subscribed: set[str] = set()
        for member in group.members.values():
            protocol = group.protocol
            if all(name != protocol for name, _ in member.protocols):
                protocol = member.protocols[0][0]
            topics = topics_of(member.metadata(protocol))
            if topics is None:
                return None
            subscribed |= topics
        return subscribed

    def protocol_type(self, group_id: str) -> str:
        """Its protocol type; "" where it has none."""
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is not None:
            return rebalancer.group.protocol_type
        if self.consumer.group(group_id) is not None:
            return CONSUMER
        metadata = self._store.state.group(group_id)
        return "" if metadata is None else metadata.protocol_type

    def is_empty(self, group_id: str) -> bool:
        """Returns whether the group has no members; also True of a group that does not exist."""
        consumer_group = self.consumer.group(group_id)
        if consumer_group is not None:
            return not consumer_group.members
        rebalancer = self._rebalancers.get(group_id)
        return rebalancer is None or rebalancer.group.state is State.EMPTY

    def is_rebalanced(self, group_id: str) -> bool:
        """Returns whether the subscriptions of a group with members are those that it consumes by."""
        rebalancer = self._rebalancers.get(group_id)
        return rebalancer is None or rebalancer.group.state is State.STABLE

    def empty_since_ms(self, group_id: str) -> int | None:
        """The time since when it is Empty; None if it has members, or never had any."""
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is not None:
            group = rebalancer.group
            since = group.state is State.EMPTY and group.protocol_type
            return group.state_time_ms if since else None
        metadata = self._store.state.group(group_id)
        if metadata is None or not metadata.protocol_type:
            return None
        return metadata.state_time_ms

    def exists(self, group_id: str) -> bool:
        """Returns whether the group exists."""
        return group_id in self._rebalancers or group_id in self._store.state

    def forget(self, group_id: str) -> None:
        """The group's last record was deleted; an Empty group is unloaded."""
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is not None and rebalancer.group.state is State.EMPTY and not rebalancer.group.pending:
            self._unload(rebalancer)

    def _unload(self, rebalancer: GroupRebalancer) -> None:
        del self._rebalancers[rebalancer.group.group_id]
        rebalancer.resign()
        rebalancer.update_memory_usage()

    # --- describing and deleting groups -------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup | None:
        """DescribeGroups: one group, or None if there is none of the classic protocol."""
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is None:
            if group_id not in self._store.state or self.consumer.group(group_id) is not None:
                return None
            return DescribedGroup(
                group_id=group_id, group_state=State.EMPTY.value, protocol_type=self.protocol_type(group_id)
            )
        return described(rebalancer.group)

    def listed(self) -> list[ListedGroup]:
        """ListGroups: every group."""
        ids = dict.fromkeys([*self._rebalancers, *self._store.state.group_ids()])
        classic = [self._listed(each) for each in ids if self.consumer.group(each) is None]
        return [*classic, *self.consumer.list_groups()]

    def _listed(self, group_id: str) -> ListedGroup:
        rebalancer = self._rebalancers.get(group_id)
        return ListedGroup(
            group_id=group_id,
            protocol_type=self.protocol_type(group_id),
            group_state=(State.EMPTY if rebalancer is None else rebalancer.group.state).value,
            group_type=CLASSIC,
        )

    def delete(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        """DeleteGroups: end an Empty group and its offsets. `done` is called once, perhaps at once."""
        error = self._not_serving_error
        if error is ErrorCode.NONE and not self.is_empty(group_id):
            error = ErrorCode.NON_EMPTY_GROUP
        if error is ErrorCode.NONE and not self.exists(group_id):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if error is not ErrorCode.NONE:
            done(error)
            return
        rebalancer = self._rebalancers.get(group_id)
        if rebalancer is not None:
            for member_id in list(rebalancer.group.pending):
                rebalancer.drop(member_id)
            self._on_group_changed(rebalancer)
        self._deletions.delete(group_id, done)
