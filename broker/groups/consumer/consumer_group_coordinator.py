"""The coordinator of the consumer groups (KIP-848) of one data log group: requests in, responses out.

Owns: `ConsumerGroupCoordinator`, which runs heartbeats, leaves and expirations as operations on the committed
groups, one write of a group at a time, and what is lost with the leadership: sessions, rebalance timeouts,
when a group's metadata hash was compared last. Invariants: a member is removed only by an operation that
checks the group again; a heartbeat that changes nothing writes nothing; memory is bounded by `GroupLimits`.
Does not: know the rules (`heartbeat.py`, `membership.py`), or groups of the classic protocol
(`broker/groups/group_coordinator.py`). Source: Kafka's GroupCoordinatorService, GroupMetadataManager.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from lockstep.broker.coordination.coordinator_runtime import CoordinatorResult, CoordinatorRuntime
from lockstep.broker.groups.classic_group import MEMBER_BYTES
from lockstep.broker.groups.consumer.cluster_context import ClusterContext
from lockstep.broker.groups.consumer.consumer_group import (
    RECORD_COPIES,
    ConsumerGroup,
    subscription_bytes,
)
from lockstep.broker.groups.consumer.consumer_group_description import describe
from lockstep.broker.groups.consumer.consumer_groups_state import ConsumerGroupsState
from lockstep.broker.groups.consumer.heartbeat import (
    HeartbeatContext,
    HeartbeatResult,
    heartbeat,
    must_revoke,
)
from lockstep.broker.groups.consumer.member_timers import MemberTimers
from lockstep.broker.groups.consumer.membership import fence, leave, require_static, unknown_member
from lockstep.broker.groups.consumer.request_checks import JOIN_EPOCH
from lockstep.broker.groups.consumer.subscribed_regex import (
    is_refresh_due,
    match_in_steps,
    refresh,
)
from lockstep.broker.groups.consumer.target_assignment import preferred_assignor
from lockstep.broker.groups.group_context import MEMBERS_SHARE, GroupRecordStore
from lockstep.broker.groups.group_records import Record
from lockstep.broker.process.log_text import printable
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.ids import format_uuid
from lockstep.protocol.messages.consumer_group_describe import DescribedGroup
from lockstep.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from lockstep.protocol.messages.leave_group import MemberIdentity, MemberResponse
from lockstep.protocol.messages.list_groups import ListedGroup
from lockstep.protocol.plural import pluralize

log = logging.getLogger("lockstep.groups")

CONSUMER_TYPE: Final = "consumer"
LONG_AGO_MS: Final = -(1 << 62)
RETRY_MS: Final = 1_000
"""Between two tries to remove a member whose removal could not be written."""


class ClassicGroups(Protocol):
    """The groups of the classic protocol, as this module needs them."""

    @property
    def memory_bytes(self) -> int:
        """The estimated memory of all groups, those of this module included."""

    def release(self, group_id: str) -> list[Record]:
        """Removes a classic group without members, whose id a consumer group takes; returns its records.

        Raises RequestError where it has members.
        """


class _VolatileState:
    """The state of one group besides its records, which ends with the leadership."""

    __slots__ = ("is_refreshing", "refreshed_changes", "refreshed_ms", "seen_changes")

    def __init__(self) -> None:
        self.seen_changes = -1
        """The metadata's change count when the group's hash was compared last."""
        self.refreshed_changes = -1
        """The change count when its regular expressions were evaluated last."""
        self.refreshed_ms = LONG_AGO_MS
        self.is_refreshing = False


class ConsumerGroupCoordinator:
    """The consumer groups of one log group.

    Args: max_total_bytes: memory for the groups of both protocols.
    """

    def __init__(
        self,
        store: GroupRecordStore,
        state: Callable[[], ConsumerGroupsState],
        cluster: ClusterContext,
        classic: ClassicGroups,
        loop: asyncio.AbstractEventLoop,
        max_total_bytes: int,
    ) -> None:
        self._loop = loop
        self._store = store
        self._state = state
        self._cluster = cluster
        self._classic = classic
        self._max_total_bytes = max_total_bytes
        self._runtime: CoordinatorRuntime[Record] = CoordinatorRuntime(loop, store.append)
        self._timers = MemberTimers(loop, self._on_session_timeout, self._on_rebalance_timeout)
        self._volatile: dict[str, _VolatileState] = {}

    # --- lifecycle ------------------------------------------------------------------------------------------

    def load(self) -> None:
        """All earlier entries are replayed: begins the members' sessions."""
        members = 0
        for group in self._state():
            session_timeout_ms = self._cluster.session_timeout_ms(group.group_id)
            for member in group.members.values():
                members += 1
                self._timers.refresh_session(group.group_id, member.member_id, session_timeout_ms)
                current = group.current_of(member.member_id)
                if must_revoke(current):
                    self._timers.start_rebalance(
                        group.group_id, member.member_id, current.member_epoch, member.rebalance_timeout_ms
                    )
        if members:
            log.info("took over %s of consumer groups", pluralize(members, "member"))

    def resign(self) -> None:
        """The leadership is lost: rejects the queued operations, and drops the volatile state."""
        self._timers.clear()
        self._volatile.clear()
        self._runtime.close(_not_coordinator)

    # --- what is committed ----------------------------------------------------------------------------------

    def group(self, group_id: str) -> ConsumerGroup | None:
        """Returns a group; None if there is none of this kind."""
        return self._state().group(group_id)

    def has(self, group_id: str) -> bool:
        """Returns whether the group is of this kind, or is about to be."""
        return group_id in self._state() or self._runtime.is_busy(group_id)

    def is_busy(self, group_id: str) -> bool:
        """Returns whether a write of the group is in flight."""
        return self._runtime.is_busy(group_id)

    def describe(self, group: ConsumerGroup) -> DescribedGroup:
        """ConsumerGroupDescribe: one group."""
        assignor = preferred_assignor(group.assignors, self._cluster.assignors)
        return describe(group, self._cluster.topics, assignor)

    def list_groups(self) -> list[ListedGroup]:
        """ListGroups: every group of this kind."""
        return [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=CONSUMER_TYPE,
                group_state=group.state.value,
                group_type=CONSUMER_TYPE,
            )
            for group in self._state()
        ]

    # --- heartbeats -----------------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        may_describe: Callable[[str], bool],
    ) -> PendingHeartbeatResponse:
        """A checked heartbeat. Args: may_describe: whether the client may describe a topic."""
        response = PendingHeartbeatResponse()
        group_id = request.group_id
        if request.member_epoch < JOIN_EPOCH:

            def on_leave(
                result: ConsumerGroupHeartbeatResponse | None, rejection: RequestError | None
            ) -> None:
                self._cancel_timers(group_id, [request.member_id])
                response.finish(result, rejection)

            self._runtime.schedule(group_id, lambda: self._leave(request), on_leave)
            return response
        if not request.member_id:
            request.member_id = format_uuid(uuid.uuid4().bytes)

        def outcome(served: tuple[HeartbeatResult, int, bool] | None, rejection: RequestError | None) -> None:
            if served is None:
                response.finish(None, rejection)
                return
            result, changes, is_regex_due = served
            self._volatile_of(group_id).seen_changes = changes
            response.finish(result.response, None)
            if result.replaced_id is not None:
                self._cancel_timers(group_id, [result.replaced_id])
            if is_regex_due:
                self._refresh_regexes(group_id, may_describe)

        self._runtime.schedule(group_id, lambda: self._heartbeat(request, client_id, client_host), outcome)
        return response

    def _heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> CoordinatorResult:
        group_id = request.group_id
        group = self._state().group(group_id)
        records: list[Record] = []
        if group is None:
            if request.member_epoch != JOIN_EPOCH:
                raise _no_group(group_id)
            records = self._classic.release(group_id)
            group = ConsumerGroup(group_id)
        self._check_memory(group, request)
        cluster, volatile = self._cluster, self._volatile.get(group_id)
        changes = cluster.changes()
        result = heartbeat(
            group,
            request,
            HeartbeatContext(
                topics=cluster.topics,
                now_ms=self._store.time_ms(),
                client_id=client_id,
                client_host=client_host,
                heartbeat_interval_ms=cluster.heartbeat_interval_ms(group_id),
                assignment_interval_ms=cluster.assignment_interval_ms(group_id),
                max_size=cluster.max_size,
                assignors=cluster.assignors,
                is_metadata_new=volatile is None or volatile.seen_changes != changes,
            ),
        )
        self._set_timers(group, result)
        is_regex_due = self._is_refresh_due(group, result.has_new_regex)
        return CoordinatorResult([*records, *result.records], (result, changes, is_regex_due))

    def _set_timers(self, group: ConsumerGroup, result: HeartbeatResult) -> None:
        group_id, member, current = group.group_id, result.member, result.current
        if member.member_id not in group.members:
            log.info("group %s: member %s joins", printable(group_id), printable(member.member_id))
        timeout_ms = self._cluster.session_timeout_ms(group_id)
        self._timers.refresh_session(group_id, member.member_id, timeout_ms)
        if not result.is_moved:
            return
        if must_revoke(current):
            self._timers.start_rebalance(
                group_id, member.member_id, current.member_epoch, member.rebalance_timeout_ms
            )
        else:
            self._timers.cancel_rebalance(group_id, member.member_id)

    def _check_memory(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> None:
        """Present members may use more memory than new ones, as in groups of the classic protocol."""
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        present = group.members.get(request.member_id) or group.static_member(request.instance_id)
        if present is None:
            added_bytes = MEMBER_BYTES + RECORD_COPIES * len(request.member_id)
            added_bytes += subscription_bytes(names or (), regex or "")
            max_bytes: float = self._max_total_bytes
        elif names is None and regex is None:
            return
        else:
            added_bytes = subscription_bytes(
                present.topics if names is None else names, present.regex if regex is None else regex
            )
            added_bytes -= subscription_bytes(present.topics, present.regex)
            max_bytes = MEMBERS_SHARE * self._max_total_bytes
        if added_bytes > 0 and self._classic.memory_bytes + added_bytes > max_bytes:
            text = "the members of all groups take lockstep.groups.max.bytes"
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def _volatile_of(self, group_id: str) -> _VolatileState:
        volatile = self._volatile.get(group_id)
        if volatile is None:
            volatile = self._volatile[group_id] = _VolatileState()
        return volatile

    # --- regular expressions --------------------------------------------------------------------------------

    def _is_refresh_due(self, group: ConsumerGroup, has_new_regex: bool) -> bool:
        """Returns whether the expressions are to be evaluated, by the group before the heartbeat."""
        volatile = self._volatile.get(group.group_id)
        return is_refresh_due(
            group,
            self._store.time_ms(),
            LONG_AGO_MS if volatile is None else volatile.refreshed_ms,
            self._cluster.regex_refresh_interval_ms,
            has_new_regex=has_new_regex,
            has_new_topics=volatile is None or volatile.refreshed_changes != self._cluster.changes(),
        )

    def _refresh_regexes(self, group_id: str, may_describe: Callable[[str], bool]) -> None:
        volatile = self._volatile_of(group_id)
        if volatile.is_refreshing:
            return

        def operation() -> CoordinatorResult:
            # Queued behind the pending joins, so that their expressions are evaluated too.
            group = self._state().group(group_id)
            return CoordinatorResult((), () if group is None else tuple(group.regex_members))

        def begin(regexes: tuple[str, ...] | None, _: RequestError | None) -> None:
            if regexes:
                self._evaluate_regexes(group_id, volatile, regexes, may_describe)
            else:
                volatile.is_refreshing = False

        volatile.is_refreshing = True
        self._runtime.schedule(group_id, operation, begin)

    def _evaluate_regexes(
        self,
        group_id: str,
        volatile: _VolatileState,
        regexes: tuple[str, ...],
        may_describe: Callable[[str], bool],
    ) -> None:
        cluster = self._cluster
        now_ms, changes, version = self._store.time_ms(), cluster.changes(), cluster.version()
        steps = match_in_steps(regexes, [each.name for each in cluster.topics.topics()], may_describe)

        def step() -> None:
            if self._volatile.get(group_id) is not volatile:
                return  # the group has ended, or is not led here any more
            try:
                next(steps)
            except StopIteration as done:
                self._write_regexes(group_id, volatile, done.value, version, now_ms, changes)
            else:
                self._loop.call_soon(step)

        step()

    def _write_regexes(
        self,
        group_id: str,
        volatile: _VolatileState,
        matches: Mapping[str, tuple[str, ...]],
        version: int,
        now_ms: int,
        changes: int,
    ) -> None:
        """The expressions are evaluated. Args: changes: the metadata's change count before that."""

        def operation() -> CoordinatorResult:
            group = self._state().group(group_id)
            if group is None:
                return CoordinatorResult(())
            volatile.refreshed_ms, volatile.refreshed_changes = now_ms, changes
            return CoordinatorResult(refresh(group, self._cluster.topics, matches, version, now_ms))

        def outcome(_: object, rejection: RequestError | None) -> None:
            volatile.is_refreshing = False
            if rejection is not None:
                volatile.refreshed_ms = LONG_AGO_MS

        self._runtime.schedule(group_id, operation, outcome)

    # --- leaving --------------------------------------------------------------------------------------------

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> CoordinatorResult:
        group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
        group = self._state().group(group_id)
        if group is None:
            raise _no_group(group_id)
        records = leave(group, member_id, request.instance_id, epoch, self._cluster.topics)
        log.info("group %s: member %s leaves", printable(group_id), printable(member_id))
        return CoordinatorResult(
            records, ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch)
        )

    def leave_classic(
        self,
        group_id: str,
        leaving: Sequence[MemberIdentity],
        outcome: Callable[[list[MemberResponse] | None, RequestError | None], None],
    ) -> None:
        """LeaveGroup of the classic protocol, as an administrator sends it: removes members."""

        removed: dict[str, None] = {}

        def operation() -> CoordinatorResult:
            group = self._state().group(group_id)
            if group is None:
                raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "the group is not there any more")
            responses = []
            for each in leaving:
                response = MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id)
                responses.append(response)
                try:
                    removed[_leaving_id(group, each)] = None
                except RequestError as rejection:
                    response.error_code = rejection.error
            records = fence(group, removed, self._cluster.topics) if removed else ()
            return CoordinatorResult(records, responses)

        def on_leave(responses: list[MemberResponse] | None, rejection: RequestError | None) -> None:
            self._cancel_timers(group_id, removed)
            outcome(responses, rejection)

        self._runtime.schedule(group_id, operation, on_leave)

    def _on_session_timeout(self, group_id: str, member_id: str) -> None:
        def is_over(group: ConsumerGroup) -> bool:
            return not self._timers.has_session(group_id, member_id)

        def retry() -> None:
            self._timers.refresh_session(group_id, member_id, RETRY_MS)

        self._fence_if(group_id, member_id, is_over, retry, "its session has expired")

    def _on_rebalance_timeout(self, group_id: str, member_id: str, member_epoch: int) -> None:
        def is_over(group: ConsumerGroup) -> bool:
            current = group.current_of(member_id)
            return must_revoke(current) and current.member_epoch == member_epoch

        def retry() -> None:
            self._timers.start_rebalance(group_id, member_id, member_epoch, RETRY_MS)

        self._fence_if(
            group_id,
            member_id,
            is_over,
            retry,
            "it has not revoked its partitions within its rebalance timeout",
        )

    def _fence_if(
        self,
        group_id: str,
        member_id: str,
        is_over: Callable[[ConsumerGroup], bool],
        retry: Callable[[], None],
        reason: str,
    ) -> None:
        def operation() -> CoordinatorResult:
            group = self._state().group(group_id)
            if group is None or member_id not in group.members or not is_over(group):
                return CoordinatorResult(())
            log.info("group %s: member %s is removed, %s", printable(group_id), printable(member_id), reason)
            return CoordinatorResult(fence(group, [member_id], self._cluster.topics))

        def outcome(_: object, rejection: RequestError | None) -> None:
            self._cancel_timers(group_id, [member_id])
            if rejection is not None and rejection.error is not ErrorCode.NOT_COORDINATOR:
                log.warning("group %s: a member was not removed: %s", printable(group_id), rejection)
                retry()

        self._runtime.schedule(group_id, operation, outcome)

    def _cancel_timers(self, group_id: str, member_ids: Iterable[str]) -> None:
        """Cancels the timers of those that are no members any more."""
        group = self._state().group(group_id)
        for member_id in member_ids:
            if group is None or member_id not in group.members:
                self._timers.forget(group_id, member_id)

    # --- ending ---------------------------------------------------------------------------------------------

    def end(
        self,
        group_id: str,
        first_records: Callable[[], Iterable[Record]],
        outcome: Callable[[object, RequestError | None], None],
    ) -> None:
        """Deletes a group without members: writes the records of `first_records`, which the operation calls,
        then its tombstones."""

        def operation() -> CoordinatorResult:
            group = self._state().group(group_id)
            if group is not None and group.members:
                raise RequestError(ErrorCode.NON_EMPTY_GROUP, ErrorCode.NON_EMPTY_GROUP.message)
            self._volatile.pop(group_id, None)
            return CoordinatorResult([*first_records(), *(() if group is None else group.tombstones())])

        self._runtime.schedule(group_id, operation, outcome)


class PendingHeartbeatResponse(PendingResponse):
    """The response of a heartbeat, which may wait for a commit."""

    __slots__ = ()

    def finish(self, response: ConsumerGroupHeartbeatResponse | None, rejection: RequestError | None) -> None:
        """Completes with the response or the rejection."""
        if rejection is not None:
            response = heartbeat_error(rejection)
        self.complete(response)


def heartbeat_error(rejection: RequestError) -> ConsumerGroupHeartbeatResponse:
    """The response that rejects a heartbeat; a coordinator's own errors have no text, as in Kafka."""
    error = rejection.error
    return ConsumerGroupHeartbeatResponse(
        error_code=error, error_message=None if error in _WITHOUT_TEXT else rejection.message
    )


_WITHOUT_TEXT: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def _leaving_id(group: ConsumerGroup, identity: MemberIdentity) -> str:
    """The member that leaves. Raises RequestError."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if instance_id is not None:
        static = group.static_member(instance_id)
        return require_static(
            static, member_id or ("" if static is None else static.member_id), instance_id
        ).member_id
    if member_id not in group.members:
        raise unknown_member(group, member_id)
    return member_id


def _no_group(group_id: str) -> RequestError:
    return RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _not_coordinator() -> RequestError:
    return RequestError(ErrorCode.NOT_COORDINATOR, "the log group is not led here any more")
