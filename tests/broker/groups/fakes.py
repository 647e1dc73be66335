"""A clock, a loop and a store that a test drives by hand."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_records import Record
from lockstep.broker.groups.group_state import GroupsState
from lockstep.broker.groups.group_store import OffsetTransaction
from lockstep.broker.produce.append_result import Unverified, VerificationRequired
from lockstep.broker.settings.settings_reader import from_texts
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.heartbeat import HeartbeatRequest
from lockstep.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from lockstep.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from lockstep.protocol.records.record import BatchBuilder
from lockstep.storage.types import NotLeader

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


class Handle:
    """A timer."""

    def __init__(self, at: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.at = at
        self.callback = callback
        self.args = args
        self.cancelled = False
        self.fired = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """An event loop whose time passes when told to."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self._numbers = itertools.count()
        self._timers: list[tuple[float, int, Handle]] = []
        self._soon: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle(when, callback, args)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle:
        return self.call_at(self.now + delay, callback, *args)

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Handle:
        handle = Handle(self.now, callback, args)
        self._soon.append(handle)
        return handle

    def turn(self) -> None:
        """Run what is due now, until nothing is."""
        while self._soon:
            handle = self._soon.pop(0)
            if not handle.cancelled:
                handle.callback(*handle.args)

    def advance(self, ms: float) -> None:
        """Let time pass, timers fire in order."""
        until = self.now + ms / 1000
        self.turn()
        while self._timers and self._timers[0][0] <= until + 1e-9:
            at, _, handle = heapq.heappop(self._timers)
            self.now = max(self.now, at)
            if not handle.cancelled:
                handle.fired = True
                handle.callback(*handle.args)
                self.turn()
        self.now = until

    @property
    def armed(self) -> int:
        """Timers that will fire."""
        return sum(not handle.cancelled for _, _, handle in self._timers)


class FakeStore:
    """Holds writes back until `commit` or `fail`; its state is the real one."""

    def __init__(self, loop: FakeLoop) -> None:
        self.state = GroupsState()
        self.waiting: list[tuple[str, list[Record], Callable[[ErrorCode], None]]] = []
        self.written: list[tuple[str, list[Record]]] = []
        self.at_once = True
        self.is_verified = True
        """False: the transaction's coordinator has to verify the partition first."""
        self.transactions: list[OffsetTransaction] = []
        """What was written within transactions."""
        self.group = SimpleNamespace(group_id=1)
        self._loop = loop

    def append(self, group_id: str, records: Sequence[Record], done: Callable[[ErrorCode], None]) -> None:
        self.waiting.append((group_id, list(records), done))
        if self.at_once:
            self._loop.call_soon(self.commit)

    def append_within(
        self,
        transaction: OffsetTransaction,
        group_id: str,
        records: Sequence[Record],
        done: Callable[[ErrorCode], None],
    ) -> Unverified | None:
        if not (self.is_verified or transaction.verified):
            return VerificationRequired(transaction.producer_id, transaction.producer_epoch, 5)
        self.transactions.append(transaction)
        self.append(group_id, records, done)
        return None

    def is_under_way(self, group_id: str) -> bool:
        return any(each == group_id for each, _, _ in self.waiting)

    async def committed(self) -> None:
        """All that waits is committed, or nothing will be."""
        if not self.at_once:
            raise NotLeader("lost")
        while self.waiting:
            self.commit()

    def time_ms(self) -> int:
        return int(self._loop.now * 1000)

    def commit(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Settle the oldest write that waits."""
        if not self.waiting:
            return
        group_id, records, done = self.waiting.pop(0)
        if error is ErrorCode.NONE:
            self.apply(records)
            self.written.append((group_id, records))
        done(error)

    def apply(self, records: Sequence[Record]) -> None:
        """Put committed records into the state."""
        builder = BatchBuilder()
        for key, value in records:
            builder.append(value, key, timestamp_ms=self.time_ms())
        if builder.record_count:
            self.state.replay(None, bytes(builder.build()), self.time_ms())  # type: ignore[arg-type]


class World:
    """One coordinator with everything it needs, and short ways to ask it."""

    def __init__(self, **settings: str) -> None:
        self.loop = FakeLoop()
        self.store = FakeStore(self.loop)
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        self.settings = from_texts(texts)
        self.coordinator = self.start()

    def start(self) -> GroupCoordinator:
        """A new coordinator on the same committed state, as after a restart."""
        self.coordinator = self.unloaded()
        self.coordinator.load()
        return self.coordinator

    def unloaded(self) -> GroupCoordinator:
        """One that knows nothing yet."""
        store: Any = self.store
        loop: Any = self.loop
        return GroupCoordinator(store, self.settings, loop, lambda: self.settings.message_max_bytes)

    def ask_join(self, group: str = "g", member: str = "", **more: Any) -> Any:
        """A JoinGroup, answered or not."""
        version = more.pop("version", 9)
        protocols = more.pop("protocols", {"range": b"meta"})
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=more.pop("session_ms", SESSION_MS),
            rebalance_timeout_ms=more.pop("rebalance_ms", REBALANCE_MS),
            member_id=member,
            group_instance_id=more.pop("instance", None),
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols.items()],
        )
        client = more.pop("client", "client")
        assert not more, more
        answer = self.coordinator.join(request, version, client, "/127.0.0.1")
        self.loop.turn()
        return answer

    def join(self, group: str = "g", member: str = "", **more: Any) -> Any:
        """As `ask_join`; a new member is given its id first, where its version wants that."""
        answer = self.ask_join(group, member, **more)
        if answer.done and answer.response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.ask_join(group, answer.response.member_id, **more)
        return answer

    def sync(
        self, joined: JoinGroupResponse, parts: dict[str, bytes] | None = None, group: str = "g", **more: Any
    ) -> Any:
        """A SyncGroup for the generation that a JoinGroup told; a leader hands in `parts`."""
        request = SyncGroupRequest(
            group_id=group,
            generation_id=more.pop("generation", joined.generation_id),
            member_id=more.pop("member", joined.member_id),
            group_instance_id=more.pop("instance", None),
            protocol_type=more.pop("protocol_type", joined.protocol_type),
            protocol_name=more.pop("protocol", joined.protocol_name),
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=part)
                for member, part in (parts or {}).items()
            ],
        )
        assert not more, more
        answer = self.coordinator.sync(request)
        self.loop.turn()
        return answer

    def heartbeat(
        self, joined: JoinGroupResponse, group: str = "g", instance: str | None = None, **more: Any
    ) -> ErrorCode:
        error = self.coordinator.heartbeat(
            HeartbeatRequest(
                group_id=group,
                generation_id=more.pop("generation", joined.generation_id),
                member_id=more.pop("member", joined.member_id),
                group_instance_id=instance,
            )
        )
        self.loop.turn()
        return error

    def leave(self, *members: str, group: str = "g", instances: Sequence[str] = (), version: int = 5) -> Any:
        """A LeaveGroup; the answer, or the PendingResponse of it."""
        leaving = [MemberIdentity(member_id=each) for each in members]
        leaving += [MemberIdentity(member_id="", group_instance_id=each) for each in instances]
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=members[0])
        else:
            request = LeaveGroupRequest(group_id=group, members=leaving)
        answer = self.coordinator.leave(request, version)
        self.loop.turn()
        return answer

    def state(self, group: str = "g") -> str:
        """The group's state as DescribeGroups tells it."""
        described = self.coordinator.describe(group)
        return "Dead" if described is None else described.group_state

    def stable(self, count: int = 2, group: str = "g", **more: Any) -> list[JoinGroupResponse]:
        """A group of that many members, each with its part; their JoinGroup answers, the leader's first."""
        waiting = [self.join(group, client=f"c{n}", **more) for n in range(count)]
        for _ in range(100):
            if all(each.done for each in waiting):
                break
            self.loop.advance(1_000)
        joined = [each.response for each in waiting]
        joined.sort(key=lambda each: each.leader != each.member_id)
        parts = {each.member_id: b"part of " + each.member_id.encode() for each in joined}
        synced = [self.sync(each, parts if each.leader == each.member_id else None, group) for each in joined]
        self.loop.turn()
        assert [each.response.error_code for each in synced] == [0] * count
        return joined


def response(answer: Any) -> JoinGroupResponse | SyncGroupResponse:
    """What a PendingResponse came to."""
    assert answer.done
    found: JoinGroupResponse | SyncGroupResponse = answer.response
    return found


def error_of(answer: Any) -> ErrorCode:
    """What a PendingResponse was answered with."""
    assert answer.done, "not answered"
    return ErrorCode(answer.response.error_code)


def rejoin(world: World, *members: Any, **more: Any) -> list[Any]:
    """Members join again; those the rebalance waits for are answered when all have."""
    return [world.ask_join(member=each.member_id, **more) for each in members]


def completing(world: World, count: int = 2, **more: Any) -> list[Any]:
    """A group that has joined and waits for its assignment; the leader first."""
    waiting = [world.join(client=f"c{n}", **more) for n in range(count)]
    world.loop.advance(2 * DELAY_MS)
    return [each.response for each in waiting]


def static_pair(world: World, **more: Any) -> tuple[Any, Any]:
    """A Stable group of a static leader "i0" and a static follower "i1"."""
    waiting = [world.ask_join(instance=f"i{n}", **more) for n in range(2)]
    world.loop.advance(2 * DELAY_MS)
    leader, follower = (each.response for each in waiting)
    world.sync(leader, {leader.member_id: b"0", follower.member_id: b"1"}, instance="i0")
    world.sync(follower, instance="i1")
    assert world.state() == "Stable"
    return leader, follower
