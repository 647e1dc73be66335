"""The rebalances of a classic group: its timers, its members' sessions, the writes of its generations.

Owns: `GroupRebalancer`, around one `ClassicGroup`: the wait for all members to join, the wait for all to
sync, each member's session, the write of a generation. Invariants: every member has an armed session or a
pending response; every pending member id has an armed session; a member receives an assignment only after its
commit; the end of the rebalance, an error, or `resign` completes every pending response.
Does not: decide the rules of JoinGroup (`group_join.py`) or find groups (`group_coordinator.py`).
Source: Kafka's GroupMetadataManager (classicGroup...), KIP-134 for the first rebalance of a group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from lockstep.broker.groups.classic_group import ClassicGroup, Member, State, Waiter, assigned_bytes
from lockstep.broker.groups.group_context import GroupContext
from lockstep.broker.groups.group_records import group_record
from lockstep.broker.groups.group_responses import NO_MEMBER, join_error, sync_error
from lockstep.broker.groups.session_timer import SessionTimer
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS
from lockstep.broker.process.log_text import printable
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from lockstep.protocol.messages.sync_group import SyncGroupResponse
from lockstep.protocol.plural import pluralize

log = logging.getLogger("lockstep.groups")

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""A new member cannot send heartbeats while it waits for its first join: its session lasts this long."""
MIN_STATIC_REJOIN_WAIT_MS: Final = 1_000
"""The least wait for static members that do not rejoin: their rebalance timeout may be 0."""

_UNAVAILABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)


class GroupRebalancer:
    """One group's volatile state. Responses are sent an iteration of the loop after the change."""

    __slots__ = (
        "_context",
        "_counted_bytes",
        "_has_joined_meanwhile",
        "_is_initial",
        "_join_timer",
        "_on_empty_written",
        "_sessions",
        "_storing_generation",
        "_sync_timer",
        "group",
        "writes",
    )

    def __init__(self, group: ClassicGroup, context: GroupContext[GroupRebalancer]) -> None:
        self.group = group
        self._context = context
        self._is_initial = False
        """True in the first rebalance of a group that had no members: it waits for more members to join."""
        self._has_joined_meanwhile = False
        self._join_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._sessions: dict[str, SessionTimer] = {}
        """By member id, pending members included."""
        self._storing_generation = -1
        self.writes = 0
        """The number of uncommitted writes."""
        self._on_empty_written: list[Callable[[ErrorCode], None]] = []
        """Callbacks of the newest write of the group as empty."""
        self._counted_bytes = 0

    # --- state --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The group's id, for the log."""
        return printable(self.group.group_id)

    @property
    def is_idle(self) -> bool:
        """True where the committed state contains everything about the group."""
        group = self.group
        if group.state is not State.EMPTY or group.pending or self.writes:
            return False
        committed = self._context.store.state.group(group.group_id)
        return committed is None or not committed.members

    def update_memory_usage(self) -> None:
        """Adds the change of this group's memory to the coordinator's total."""
        memory_bytes = self.group.memory_bytes if self.group.state is not State.DEAD else 0
        self._context.memory_bytes += memory_bytes - self._counted_bytes
        self._counted_bytes = memory_bytes

    # --- sessions -----------------------------------------------------------------------------------------

    def refresh_session(self, member_id: str, timeout_ms: int) -> None:
        """Restarts the member's session, which expires after `timeout_ms`."""
        session = self._sessions.get(member_id)
        if session is None:
            session = SessionTimer(self._context.loop, self._on_session_timeout, member_id)
            self._sessions[member_id] = session
        session.refresh(timeout_ms)

    def end_session(self, member_id: str) -> None:
        """Cancels the member's session."""
        session = self._sessions.pop(member_id, None)
        if session is not None:
            session.cancel()

    def _on_session_timeout(self, member_id: str) -> None:
        group = self.group
        member = group.members.get(member_id)
        if member is not None:
            if member.is_waiting and not member.is_new:
                return  # it cannot send heartbeats; its session begins again with the response
            log.info(
                "group %s: member %s is removed, its session has expired", self.name, printable(member_id)
            )
        if self.drop(member_id):
            self.rebalance_after_removal()
        else:
            self.try_complete_join()
        self._context.on_group_changed(self)

    def drop(self, member_id: str) -> bool:
        """Removes a member, or a pending member id; returns whether it was a member. The caller continues."""
        self.end_session(member_id)
        member = self.group.remove(member_id)
        if member is None:
            return False
        response_queue = self._context.response_queue
        response_queue.put(member.join_waiter, join_error(ErrorCode.UNKNOWN_MEMBER_ID))
        response_queue.put(member.sync_waiter, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        member.join_waiter = member.sync_waiter = None
        return True

    def rebalance_after_removal(self) -> None:
        """Rebalances the remaining members, or completes a join that waited only for removed ones."""
        if self.group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance()
        else:
            self.try_complete_join()

    # --- joining ------------------------------------------------------------------------------------------

    def await_join(self, member: Member, waiter: Waiter) -> None:
        """The member waits for the end of the join. An earlier pending JoinGroup of it fails."""
        before = self.group.await_join(member, waiter)
        self._context.response_queue.put(
            before, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        )

    def respond_to_join(self, member: Member, response: JoinGroupResponse) -> None:
        """Completes the member's JoinGroup and begins its session."""
        self._context.response_queue.put(self.group.take_join_waiter(member), response)
        member.is_new = False
        self.refresh_session(member.member_id, member.session_timeout_ms)

    def generation_response(self, member: Member) -> JoinGroupResponse:
        """Returns the present generation for this member; the leader's response lists the members, too."""
        group = self.group
        return JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=group.leader or NO_MEMBER,
            member_id=member.member_id,
            members=self._members() if group.leader == member.member_id else [],
        )

    def _members(self) -> list[JoinGroupResponseMember]:
        protocol = self.group.protocol
        return [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(protocol),
            )
            for each in self.group.members.values()
        ]

    def member_added(self) -> None:
        """A member was added: the first rebalance may wait for another."""
        self._has_joined_meanwhile = self._has_joined_meanwhile or self._is_initial

    def prepare_rebalance_or_complete_join(self) -> None:
        """Begins a rebalance after a join, or completes one if all members have joined."""
        if self.group.can_rebalance:
            self.prepare_rebalance()
        else:
            self.try_complete_join()

    def prepare_rebalance(self) -> None:
        """Begins a rebalance: every member must rejoin."""
        group = self.group
        if group.state is State.COMPLETING_REBALANCE:
            self._fail_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._stop_sync_timer()
        was_empty = group.state is State.EMPTY
        group.transition(State.PREPARING_REBALANCE, self._context.store.time_ms())
        self._is_initial, self._has_joined_meanwhile = was_empty, False
        if was_empty:
            delay_ms = self._context.limits.initial_rebalance_delay_ms
            self._start_initial_delay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.all_joined:
            self._complete_join()
        else:
            self._start_join_timer(group.rebalance_timeout_ms, self._on_join_timeout)

    def try_complete_join(self) -> None:
        """Completes the join if all members have joined, unless it is the group's first."""
        if self.group.state is State.PREPARING_REBALANCE and not self._is_initial and self.group.all_joined:
            self._complete_join()

    def _start_initial_delay(self, delay_ms: int, left_ms: int) -> None:
        self._start_join_timer(delay_ms, self._on_initial_delay_over, delay_ms, left_ms)

    def _on_initial_delay_over(self, delay_ms: int, left_ms: int) -> None:
        self._join_timer = None
        if self._has_joined_meanwhile and left_ms:
            self._has_joined_meanwhile = False
            next_ms = min(self._context.limits.initial_rebalance_delay_ms, left_ms)
            self._start_initial_delay(next_ms, max(left_ms - delay_ms, 0))
        else:
            self._on_join_timeout()

    def _on_join_timeout(self) -> None:
        self._join_timer = None
        self._complete_join()
        self._context.on_group_changed(self)

    def _complete_join(self) -> None:
        """Ends the join; members that did not rejoin are removed, unless they are static."""
        group = self.group
        self._stop_join_timer()
        for member in list(group.not_rejoined()):
            log.info("group %s: member %s did not join again in time", self.name, printable(member.member_id))
            self.drop(member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only static members that did not rejoin: until their sessions end, or one joins.
            self._start_join_timer(
                max(group.rebalance_timeout_ms, MIN_STATIC_REJOIN_WAIT_MS), self._on_join_timeout
            )
            return
        self._is_initial = False
        group.next_generation(self._context.store.time_ms())
        if group.state is State.EMPTY:
            log.info("group %s is empty, generation %d", self.name, group.generation)
            self._write_empty_group()
            return
        log.info(
            "group %s: generation %d has %s, leader %s, protocol %s",
            self.name,
            group.generation,
            pluralize(len(group.members), "member"),
            printable(group.leader),
            printable(group.protocol),
        )
        group.pending_sync.update(group.members)
        for member in group.members.values():
            self.respond_to_join(member, self.generation_response(member))
        self._sync_timer = self._context.loop.call_later(
            group.rebalance_timeout_ms / 1000, self._on_sync_timeout, group.generation
        )

    # --- syncing ------------------------------------------------------------------------------------------

    def sync(self, member: Member, assignments: Mapping[str, bytes], waiter: Waiter) -> None:
        """Handles SyncGroup of a member of this generation; the leader's has all assignments."""
        group = self.group
        response_queue = self._context.response_queue
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._stop_sync_timer()
        if group.state is State.STABLE:
            response_queue.put(waiter, self._assignment_response(member))
            return
        before, member.sync_waiter = member.sync_waiter, waiter
        response_queue.put(before, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        generation = group.generation
        if member.member_id == group.leader and self._storing_generation != generation:
            self._storing_generation = generation
            group.assignment_bytes = assigned_bytes(assignments.values())
            known = {each: assignments.get(each, b"") for each in group.members}
            self._write(known, lambda error: self._on_stored(generation, known, error))

    def _on_stored(self, generation: int, assignments: Mapping[str, bytes], error: ErrorCode) -> None:
        group = self.group
        if self._storing_generation == generation:
            self._storing_generation = -1
        if group.state is not State.COMPLETING_REBALANCE or group.generation != generation:
            return  # membership changed meanwhile: the rebalance under way continues
        if error is not ErrorCode.NONE:
            log.warning("group %s: generation %d was not written: %s", self.name, generation, error.name)
            self._fail_syncs(error)
            self.prepare_rebalance()
            return
        group.transition(State.STABLE, self._context.store.time_ms())
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            if member.sync_waiter is not None:
                self._respond_to_sync(member, self._assignment_response(member))

    def _assignment_response(self, member: Member) -> SyncGroupResponse:
        group = self.group
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
        )

    def _fail_syncs(self, error: ErrorCode) -> None:
        """Fails the pending SyncGroups: this generation gets no assignment."""
        for member in self.group.members.values():
            member.assignment = b""
            if member.sync_waiter is not None:
                self._respond_to_sync(member, sync_error(error))

    def _respond_to_sync(self, member: Member, response: SyncGroupResponse) -> None:
        waiter, member.sync_waiter = member.sync_waiter, None
        self._context.response_queue.put(waiter, response)
        self.refresh_session(member.member_id, member.session_timeout_ms)

    def _on_sync_timeout(self, generation: int) -> None:
        """Removes members that joined and never sent SyncGroup (KAFKA-13419)."""
        self._sync_timer = None
        group = self.group
        assert generation == group.generation, "a new generation stops this timer"
        late = [each for each in group.members if each in group.pending_sync]
        for member_id in late:
            log.info("group %s: member %s did not sync in time", self.name, printable(member_id))
            self.drop(member_id)
        if late:
            self.prepare_rebalance()
        self._context.on_group_changed(self)

    # --- the log ------------------------------------------------------------------------------------------

    def _write(self, assignments: Mapping[str, bytes], then: Callable[[ErrorCode], None]) -> None:
        """Write the present generation; `then` is called with the outcome of the commit."""
        group, context = self.group, self._context
        key, value = group_record(group.group_id, group.to_record(assignments))
        self.writes += 1

        def done(error: ErrorCode) -> None:
            self.writes -= 1
            dead = group.state is State.DEAD
            then(ErrorCode.NOT_COORDINATOR if dead else _response_error(error))
            context.on_group_changed(self)

        size, limit = len(key) + len(value or b""), context.limits.max_record_bytes
        if size > limit:
            text = "group %s: a generation of %d members takes %d bytes, more than max.message.bytes=%d of %s"
            log.warning(text, self.name, len(group.members), size, limit, CONSUMER_OFFSETS)
            context.loop.call_soon(done, ErrorCode.RECORD_LIST_TOO_LARGE)
        else:
            context.store.append(group.group_id, [(key, value)], done)

    def write_members(self, then: Callable[[ErrorCode], None]) -> None:
        """Write a Stable group again: a static member has a new id."""
        self._write({each.member_id: each.assignment for each in self.group.members.values()}, then)

    def _write_empty_group(self) -> None:
        callbacks: list[Callable[[ErrorCode], None]] = []
        self._on_empty_written = callbacks

        def on_written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                # After a restart the generation before is current again; its members' sessions will expire.
                log.warning("group %s: the empty group was not written: %s", self.name, error.name)
            for each in callbacks:
                each(error)

        self._write({}, on_written)

    def when_empty_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Calls `callback` with the outcome of the newest write of the group as empty."""
        self._on_empty_written.append(callback)

    # --- the end ------------------------------------------------------------------------------------------

    def resign(self) -> None:
        """Completes all pending requests and stops all timers, when this node stops coordinating the
        group."""
        group = self.group
        group.transition(State.DEAD, self._context.store.time_ms())
        self._stop_join_timer()
        self._stop_sync_timer()
        for member_id in [*group.members, *group.pending]:
            self.end_session(member_id)
        error = ErrorCode.NOT_COORDINATOR
        for member in group.members.values():
            waiter, member.sync_waiter = member.sync_waiter, None
            self._context.response_queue.put(waiter, sync_error(error))
            self._context.response_queue.put(
                group.take_join_waiter(member), join_error(error, member.member_id)
            )

    # --- timers -------------------------------------------------------------------------------------------

    def _start_join_timer(self, timeout_ms: int, over: Callable[..., None], *args: int) -> None:
        self._stop_join_timer()
        self._join_timer = self._context.loop.call_later(timeout_ms / 1000, over, *args)

    def _stop_join_timer(self) -> None:
        if self._join_timer is not None:
            self._join_timer.cancel()
            self._join_timer = None

    def _stop_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._sync_timer.cancel()
            self._sync_timer = None


def _response_error(error: ErrorCode) -> ErrorCode:
    """The error of the response for a failed write, as in Kafka's coordinator."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    if error in _TOO_LARGE:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return error
