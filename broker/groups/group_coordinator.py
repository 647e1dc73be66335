"""The coordinator of the consumer groups of one data log group: requests in, answers out.

Owns: which groups are live (have members, handed out ids, or writes under way), `load` and `resign`, what
other APIs ask about groups. Invariants: a group that is not live is Empty and is what its committed records
say; a coordinator that does not serve answers everything with an error and holds nothing; memory is bounded
by `GroupLimits`. Does not: know partitions of `__consumer_offsets` (`broker/coordination/`), what a join
means (`join_rules.py`) or how a rebalance runs (`live_group.py`). Source: Kafka's GroupCoordinatorService.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
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
from lockstep.broker.groups.group_context import GroupContext, GroupLimits, GroupRecordStore
from lockstep.broker.groups.group_records import group_record, offset_record
from lockstep.broker.groups.group_responses import GroupAnswer, JoinAnswer, SyncAnswer, join_error, sync_error
from lockstep.broker.groups.join_rules import Joining, join
from lockstep.broker.groups.live_group import LiveGroup
from lockstep.broker.groups.subscription import CONSUMER, topics_of
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.broker.settings.config import Settings
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import JoinGroupRequest
from lockstep.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from lockstep.protocol.messages.list_groups import ListedGroup
from lockstep.protocol.messages.sync_group import SyncGroupRequest
from lockstep.protocol.plural import pluralize

log = logging.getLogger("lockstep.groups")

MEMBERS_SHARE: Final = 1.25
"""So much of `lockstep.groups.max.bytes` those that are members already may fill."""
OWN_REBALANCE_TIMEOUT_MIN_VERSION: Final = 1
BATCHED_LEAVE_MIN_VERSION: Final = 3
CLASSIC: Final = "classic"


class GroupCoordinator:
    """Args: store: where its groups are written; settings: the broker's; batch_bytes: the largest batch."""

    def __init__(
        self,
        store: GroupRecordStore,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        batch_bytes: Callable[[], int],
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
        self._context = GroupContext(store, self._limits, loop, self._on_loaded)
        self._live: dict[str, LiveGroup] = {}
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """What is answered while this coordinator does not serve; NONE while it does."""
        self._deleting: dict[str, bool] = {}
        """Groups whose end is being written -> whether somebody may commit offsets since."""

    # --- life ---------------------------------------------------------------------------------------------

    @property
    def refusal(self) -> ErrorCode:
        """The error of all responses; NONE while it serves."""
        return self._refusal

    def expect(self) -> None:
        """This node leads again, and will `load` as soon as all that was appended before is known."""
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def load(self) -> None:
        """Take over every group that is committed with members; they are given a session to be heard in."""
        self._refusal = ErrorCode.NONE
        state = self._store.state
        for group_id in list(state.group_ids()):
            metadata = state.group(group_id)
            if metadata is None or not metadata.members:
                continue
            live = LiveGroup(ClassicGroup.restore(group_id, metadata), self._context)
            self._live[group_id] = live
            members = live.group.members
            for member in members.values():
                live.refresh_session(member.member_id, member.session_timeout_ms)
            if len(members) > self._limits.max_size:
                live.prepare()
            self._on_loaded(live)
        if self._live:
            log.info("took over %s with members", pluralize(len(self._live), "consumer group"))

    def resign(self) -> None:
        """Answer everybody who waits with NOT_COORDINATOR, and forget what is not committed."""
        self._refusal = ErrorCode.NOT_COORDINATOR
        live, self._live, self._deleting = self._live, {}, {}
        for each in live.values():
            each.resign()
            each.update_memory_usage()
        self._context.outbox.send()

    def _live_group(self, group_id: str) -> LiveGroup:
        live = self._live.get(group_id)
        if live is None:
            metadata = self._store.state.group(group_id)
            group = ClassicGroup(group_id, self._store.time_ms())
            if metadata is not None:
                group = ClassicGroup.restore(group_id, replace(metadata, members=()))
            live = self._live[group_id] = LiveGroup(group, self._context)
        return live

    def _on_loaded(self, live: LiveGroup) -> None:
        """A group changed: count what it holds, and let it go if there is nothing to hold."""
        live.update_memory_usage()
        if self._live.get(live.group.group_id) is live and live.is_idle:
            self._let_go(live)

    # --- members' requests --------------------------------------------------------------------------------

    def join(
        self, request: JoinGroupRequest, api_version: int, client_id: str, client_host: str
    ) -> JoinAnswer:
        """JoinGroup. What is kept of the request is copied."""
        answer = JoinAnswer(api_version)
        member_id = request.member_id
        error = self._refused(request.group_id)
        if error is ErrorCode.NONE and not (
            self._limits.min_session_timeout_ms
            <= request.session_timeout_ms
            <= self._limits.max_session_timeout_ms
        ):
            error = ErrorCode.INVALID_SESSION_TIMEOUT
        if error is ErrorCode.NONE and member_id and not self.exists(request.group_id):
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is not ErrorCode.NONE:
            answer.complete(join_error(error, member_id))
            return answer
        protocols = protocols_of((each.name, bytes(each.metadata)) for each in request.protocols)
        if not self._has_memory(request, bytes_of(protocols)):
            answer.complete(join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id))
            return answer
        timeout_ms = request.session_timeout_ms
        if api_version >= OWN_REBALANCE_TIMEOUT_MIN_VERSION:
            timeout_ms = max(request.rebalance_timeout_ms, 0)
        joining = Joining(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
            api_version=api_version,
            answer=answer,
        )
        live = self._live_group(request.group_id)
        join(live, joining, self._limits, self._context.outbox)
        self._on_loaded(live)
        return answer

    def sync(self, request: SyncGroupRequest) -> SyncAnswer:
        """SyncGroup. What is kept of the request is copied."""
        answer = SyncAnswer()
        error = self._refused(request.group_id)
        live = self._live.get(request.group_id)
        if error is ErrorCode.NONE:
            error = _sync_refusal(live, request)
        if error is ErrorCode.NONE and live is not None and not self._has_memory_for_parts(live, request):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not ErrorCode.NONE:
            answer.complete(sync_error(error))
            return answer
        assert live is not None
        assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
        live.sync(live.group.members[request.member_id], assignments, answer)
        self._on_loaded(live)
        return answer

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat: what to answer."""
        error = self._refused(request.group_id)
        if error is not ErrorCode.NONE:
            # A group that is being loaded keeps its members: they need not know.
            return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error
        live = self._live.get(request.group_id)
        if live is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group = live.group
        error = group.validate(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        live.refresh_session(request.member_id, group.members[request.member_id].session_timeout_ms)
        if group.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, request: LeaveGroupRequest, api_version: int) -> LeaveGroupResponse | PendingResponse:
        """LeaveGroup; that nobody is left is answered when it is committed."""
        error = self._refused(request.group_id)
        if error is not ErrorCode.NONE:
            return LeaveGroupResponse(error_code=error)
        leaving = request.members
        if api_version < BATCHED_LEAVE_MIN_VERSION:
            leaving = [MemberIdentity(member_id=request.member_id)]
        live = self._live.get(request.group_id)
        member_count = 0 if live is None else len(live.group.members)
        members = [_leave(live, each) for each in leaving]
        if api_version < BATCHED_LEAVE_MIN_VERSION:
            response = LeaveGroupResponse(error_code=members[0].error_code)
        else:
            response = LeaveGroupResponse(members=members)
        if live is None or all(each.error_code for each in members):
            return response
        writes = live.writes
        if len(live.group.members) < member_count:
            live.membership_changed()
        else:
            live.complete_join_if_all_there()
        answer: LeaveGroupResponse | PendingResponse = response
        if live.group.state is State.EMPTY and live.writes > writes:
            answer = _LeaveAnswer(response, live)
        self._on_loaded(live)
        return answer

    def _has_memory(self, request: JoinGroupRequest, offered_bytes: int) -> bool:
        """May this join take memory? A member may go on, and say more while others may not come any more."""
        memory_bytes, most = self._context.memory_bytes, self._limits.max_total_bytes
        live = self._live.get(request.group_id)
        if live is None:
            member = None
            offered_bytes += group_bytes(request.group_id)
        else:
            member = live.group.replaced_by(request.member_id, request.group_instance_id)
        if member is None:
            return memory_bytes + offered_bytes <= most
        added_bytes = offered_bytes - member.protocol_bytes
        return added_bytes <= 0 or memory_bytes + added_bytes <= MEMBERS_SHARE * most

    def _has_memory_for_parts(self, live: LiveGroup, request: SyncGroupRequest) -> bool:
        added_bytes = assigned_bytes(each.assignment for each in request.assignments)
        added_bytes -= live.group.assignment_bytes
        most = MEMBERS_SHARE * self._limits.max_total_bytes
        return added_bytes <= 0 or self._context.memory_bytes + added_bytes <= most

    def _refused(self, group_id: str) -> ErrorCode:
        return self._refusal if group_id else ErrorCode.INVALID_GROUP_ID

    # --- offsets ------------------------------------------------------------------------------------------

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool = False,
    ) -> ErrorCode:
        """May offsets be committed by this member, or (generation -1, no ids) by somebody from outside?

        NONE also counts as a sign of life of the member. Within a transaction it does not, an outsider may
        commit for a group with members (older producers know of none), and a member before its generation is
        Stable (KIP-447). Source: Kafka's ClassicGroup.validateOffsetCommit.
        """
        if self._refusal is not ErrorCode.NONE:
            return self._refusal
        error = self._commit_refusal(group_id, member_id, instance_id, generation, transactional)
        if error is ErrorCode.NONE and group_id in self._deleting:
            self._deleting[group_id] = True
        return error

    def _commit_refusal(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, transactional: bool
    ) -> ErrorCode:
        live = self._live.get(group_id)
        if live is None or live.group.state is State.EMPTY:
            if generation < 0:
                return ErrorCode.NONE
            return ErrorCode.UNKNOWN_MEMBER_ID if self.exists(group_id) else ErrorCode.ILLEGAL_GENERATION
        group = live.group
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
        live.refresh_session(member_id, group.members[member_id].session_timeout_ms)
        return ErrorCode.NONE

    def subscribed_topics(self, group_id: str) -> set[str] | None:
        """Topics the members of a `consumer` group subscribe to; None: not known, take it for all."""
        live = self._live.get(group_id)
        if live is None or not live.group.members:
            return set()
        group = live.group
        if group.protocol_type != CONSUMER:
            return None
        subscribed: set[str] = set()
        for member in group.members.values():
            wanted = group.protocol
            if all(name != wanted for name, _ in member.protocols):
                wanted = member.protocols[0][0]
            topics = topics_of(member.metadata(wanted))
            if topics is None:
                return None
            subscribed |= topics
        return subscribed

    def protocol_type(self, group_id: str) -> str:
        """Its protocol type; "" where it has none."""
        live = self._live.get(group_id)
        if live is not None:
            return live.group.protocol_type
        metadata = self._store.state.group(group_id)
        return "" if metadata is None else metadata.protocol_type

    def is_empty(self, group_id: str) -> bool:
        """Has it no members? Also true of a group that there is not."""
        live = self._live.get(group_id)
        return live is None or live.group.state is State.EMPTY

    def empty_since_ms(self, group_id: str) -> int | None:
        """Since when; None if it has members, or never had any."""
        live = self._live.get(group_id)
        if live is not None:
            group = live.group
            since = group.state is State.EMPTY and group.protocol_type
            return group.state_time_ms if since else None
        metadata = self._store.state.group(group_id)
        if metadata is None or not metadata.protocol_type:
            return None
        return metadata.state_time_ms

    def exists(self, group_id: str) -> bool:
        """Is there such a group?"""
        return group_id in self._live or group_id in self._store.state

    def forget(self, group_id: str) -> None:
        """The group's last record is gone; what is left of an Empty one goes, too."""
        live = self._live.get(group_id)
        if live is not None and live.group.state is State.EMPTY and not live.group.pending:
            self._let_go(live)

    def _let_go(self, live: LiveGroup) -> None:
        del self._live[live.group.group_id]
        live.resign()
        live.update_memory_usage()

    # --- looking at groups, deleting them -----------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedGroup | None:
        """DescribeGroups: one group, or None if there is none."""
        live = self._live.get(group_id)
        if live is None:
            if group_id not in self._store.state:
                return None
            return DescribedGroup(
                group_id=group_id, group_state=State.EMPTY.value, protocol_type=self.protocol_type(group_id)
            )
        return described(live.group)

    def listed(self) -> list[ListedGroup]:
        """ListGroups: every group."""
        ids = dict.fromkeys([*self._live, *self._store.state.group_ids()])
        return [self._listed(group_id) for group_id in ids]

    def _listed(self, group_id: str) -> ListedGroup:
        live = self._live.get(group_id)
        return ListedGroup(
            group_id=group_id,
            protocol_type=self.protocol_type(group_id),
            group_state=(State.EMPTY if live is None else live.group.state).value,
            group_type=CLASSIC,
        )

    def delete(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        """DeleteGroups: end an Empty group and its offsets. `done` is called once, perhaps at once."""
        error = self._refusal
        if error is ErrorCode.NONE and not self.is_empty(group_id):
            error = ErrorCode.NON_EMPTY_GROUP
        if error is ErrorCode.NONE and not self.exists(group_id):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        if error is not ErrorCode.NONE:
            done(error)
            return
        live = self._live.get(group_id)
        if live is not None:
            for member_id in list(live.group.pending):
                live.drop(member_id)
            self._on_loaded(live)
        self._deleting.setdefault(group_id, False)
        self._write_end(group_id, done)

    def _write_end(self, group_id: str, done: Callable[[ErrorCode], None]) -> None:
        records = [offset_record(group_id, *place, None) for place in self._store.state.places(group_id)]
        records.append(group_record(group_id, None))

        def written(error: ErrorCode) -> None:
            left = self._store.state.places(group_id)
            if error is ErrorCode.NONE and left and not self._deleting.get(group_id, True):
                # Commits that were under way before: they were not to be seen yet.
                self._write_end(group_id, done)
                return
            self._deleting.pop(group_id, None)
            if error is ErrorCode.NONE:
                log.info(
                    "group %s: deleted with %s", printable(group_id), pluralize(len(records) - 1, "offset")
                )
            live = self._live.get(group_id)
            if live is not None:
                self._on_loaded(live)
            done(error)

        self._store.append(group_id, records, written)


class _LeaveAnswer(GroupAnswer):
    """A LeaveGroup of the last members, which waits for the commit."""

    __slots__ = ("_waiting_response",)

    def __init__(self, response: LeaveGroupResponse, live: LiveGroup) -> None:
        super().__init__()
        self._waiting_response = response
        live.when_emptied(self._on_emptied)

    def _on_emptied(self, error: ErrorCode) -> None:
        response = self._waiting_response
        self.complete(response if error is ErrorCode.NONE else LeaveGroupResponse(error_code=error))


def described(group: ClassicGroup) -> DescribedGroup:
    """A group with members. What they said on joining is told while it is Stable, as in Kafka."""
    protocol = group.protocol if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=b"" if protocol is None else each.metadata(protocol),
                member_assignment=each.assignment,
            )
            for each in group.members.values()
        ],
    )


def _sync_refusal(live: LiveGroup | None, request: SyncGroupRequest) -> ErrorCode:
    if live is None or live.group.state is State.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    group = live.group
    error = group.validate(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.protocol is not None and request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _leave(live: LiveGroup | None, leaving: MemberIdentity) -> MemberResponse:
    """One member goes; the group is told when all of a request have gone."""
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    error = ErrorCode.UNKNOWN_MEMBER_ID
    if live is not None:
        group = live.group
        gone: str | None = None
        if not member_id:
            gone = None if instance_id is None else group.static_ids.get(instance_id)
            error = ErrorCode.UNKNOWN_MEMBER_ID if gone is None else ErrorCode.NONE
        elif member_id in group.pending:
            gone, error = member_id, ErrorCode.NONE
        else:
            error = group.validate(member_id, instance_id)
            gone = member_id if error is ErrorCode.NONE else None
        if gone is not None:
            log.debug("group %s: member %s leaves", live.name, printable(gone))
            live.drop(gone)
    return MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)
