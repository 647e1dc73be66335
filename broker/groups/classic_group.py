"""A classic consumer group: its members, their common protocols, its leader and generation.

Owns: the table of states, membership (dynamic and static, KIP-345), pending member ids
(KIP-394), the vote for a protocol, the pending JoinGroups and SyncGroups. Protocol types, metadata and
assignments are opaque bytes. Invariants: states change only along `TRANSITIONS`; all members have one
protocol type and at least one protocol in common; a group with members has a leader among them; an instance
id has one member. Does not: know clocks, timers, the log or sockets (`group_rebalancer.py`). Source: Kafka's
ClassicGroup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, Protocol

from lockstep.broker.groups.group_records import GroupMetadata, RecordedMember
from lockstep.protocol.errors import ErrorCode

MAX_GENERATION: Final = 2**31 - 1
MEMBER_BYTES: Final = 3 << 10
"""The estimated memory of a member without metadata: itself, its timer, and its part of the committed
state."""
PENDING_BYTES: Final = 1 << 10
"""The estimated memory of a pending member id, without its text."""
GROUP_BYTES: Final = 1 << 10
"""The estimated memory of a group without members, without its id."""
PROTOCOL_BYTES: Final = 160
"""The estimated memory of a protocol besides its name and metadata, which may be empty."""

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol name and the member's metadata for it, in the order of preference."""


class State(Enum):
    """A group's state; values are Kafka's names on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}
"""The states that may follow each state. Empty: no members. PreparingRebalance: members join.
CompletingRebalance: the leader's assignment is awaited and committed. Stable: every member has its
assignment. Dead: moved to another coordinator, or deleted."""


class InvalidTransition(Exception):
    """The table of states does not allow it: a bug of this broker."""


class Waiter(Protocol):
    """A pending response."""

    def complete(self, response: object | None) -> None: ...


class Member:
    """One member. `join_waiter` and `sync_waiter` are set while it has a pending request."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        """True until its first join has completed: it cannot have sent a heartbeat yet."""
        self.join_waiter: Waiter | None = None
        self.sync_waiter: Waiter | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for this protocol; empty for an unknown one."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    @property
    def protocol_bytes(self) -> int:
        """The size of the protocols of its last join."""
        return bytes_of(self.protocols)

    @property
    def name_bytes(self) -> int:
        """About the memory of its names: here, in the committed state, and in that state's record."""
        return 3 * sum(map(text_bytes, (self.member_id, self.instance_id or "", self.client_id)))

    @property
    def is_waiting(self) -> bool:
        """True while it has a pending request: it cannot send heartbeats, and counts as alive."""
        return self.join_waiter is not None or self.sync_waiter is not None


class ClassicGroup:
    """One group. Methods raise InvalidTransition or KeyError only for bugs of this broker."""

    __slots__ = (
        "_supported",
        "assignment_bytes",
        "awaiting_join",
        "generation",
        "group_id",
        "leader",
        "members",
        "name_bytes",
        "pending",
        "pending_sync",
        "protocol",
        "protocol_bytes",
        "protocol_type",
        "state",
        "state_time_ms",
        "static_ids",
    )

    def __init__(self, group_id: str, time_ms: int) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_time_ms = time_ms
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        """Instance id -> member id."""
        self.pending: set[str] = set()
        """Member ids returned with MEMBER_ID_REQUIRED that have not joined yet (KIP-394)."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup."""
        self.awaiting_join = 0
        self.protocol_bytes = 0
        self.name_bytes = 0
        self.assignment_bytes = 0
        """Memory of the newest assignments."""
        self._supported: dict[str, int] = {}
        """Protocol name -> the number of members that support it."""

    @classmethod
    def restore(cls, group_id: str, metadata: GroupMetadata) -> ClassicGroup:
        """The group as its last committed record left it: Empty or Stable."""
        group = cls(group_id, metadata.state_time_ms)
        for each in metadata.members:
            timeout_ms = each.rebalance_timeout_ms
            member = Member(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout_ms,
                each.session_timeout_ms if timeout_ms == -1 else timeout_ms,
                ((metadata.protocol or "", each.subscription),),
                each.assignment,
            )
            group.add(member, metadata.protocol_type)
        group.assignment_bytes = assigned_bytes(each.assignment for each in metadata.members)
        group.state = State.STABLE if group.members else State.EMPTY
        group.generation = metadata.generation
        group.protocol_type = metadata.protocol_type
        group.protocol = metadata.protocol
        if metadata.leader in group.members:
            group.leader = metadata.leader
        return group

    def to_record(self, assignments: Mapping[str, bytes]) -> GroupMetadata:
        """Returns the record of this generation, with these assignments."""
        protocol = self.protocol
        return GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            state_time_ms=self.state_time_ms,
            members=tuple(
                RecordedMember(
                    member_id=each.member_id,
                    instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout_ms=each.rebalance_timeout_ms,
                    session_timeout_ms=each.session_timeout_ms,
                    subscription=each.metadata(protocol),
                    assignment=assignments.get(each.member_id, b""),
                )
                for each in self.members.values()
            ),
        )

    # --- states -------------------------------------------------------------------------------------------

    def transition(self, state: State, time_ms: int) -> None:
        """Changes the state. Raises InvalidTransition."""
        if state not in TRANSITIONS[self.state]:
            raise InvalidTransition(f"group {self.group_id}: {self.state.value} to {state.value}")
        self.state = state
        self.state_time_ms = time_ms

    @property
    def can_rebalance(self) -> bool:
        """Returns whether PreparingRebalance may follow the present state."""
        return State.PREPARING_REBALANCE in TRANSITIONS[self.state]

    def next_generation(self, time_ms: int) -> None:
        """Ends the join: chooses the protocol and begins the next generation; without members the group
        becomes Empty."""
        self.generation = self.generation + 1 if self.generation < MAX_GENERATION else 1
        self.pending_sync.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.transition(State.COMPLETING_REBALANCE, time_ms)
        else:
            self.protocol = None
            self.assignment_bytes = 0
            self.transition(State.EMPTY, time_ms)

    # --- members ------------------------------------------------------------------------------------------

    def add_pending_member(self, member_id: str) -> None:
        """Adds an id with which a new member has to join again."""
        self.pending.add(member_id)
        self.name_bytes += text_bytes(member_id)

    def _mark_used(self, member_id: str) -> None:
        if member_id in self.pending:
            self.pending.remove(member_id)
            self.name_bytes -= text_bytes(member_id)

    def add(self, member: Member, protocol_type: str) -> None:
        """Adds a member whose protocols the group `supports`."""
        if member.member_id in self.members:
            raise KeyError(member.member_id)
        if member.instance_id is not None:
            if member.instance_id in self.static_ids:
                raise KeyError(member.instance_id)
            self.static_ids[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._mark_used(member.member_id)
        self.name_bytes += member.name_bytes
        self._count(member, 1)

    def update(
        self, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        """Updates a member that joins again, perhaps with other metadata."""
        self._count(member, -1)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._count(member, 1)

    def remove(self, member_id: str) -> Member | None:
        """Removes a member, or a pending member id. The caller completes the member's pending responses."""
        self._mark_used(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self.name_bytes -= member.name_bytes
        self._count(member, -1)
        if member.join_waiter is not None:
            self.awaiting_join -= 1
        if member.instance_id is not None:
            del self.static_ids[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Gives a static member another id; it keeps its assignment and, as the leader, its leadership."""
        old = member.member_id
        del self.members[old]
        self.members[member_id] = member
        self.name_bytes -= member.name_bytes
        member.member_id = member_id
        self.name_bytes += member.name_bytes
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        if old in self.pending_sync:
            self.pending_sync.remove(old)
            self.pending_sync.add(member_id)

    def find_replaced(self, member_id: str, instance_id: str | None) -> Member | None:
        """Returns the member that a join replaces: the same member, or a static one that has returned without
        its id. None for a further member."""
        if not member_id and instance_id is not None:
            member_id = self.static_ids.get(instance_id, "")
        return self.members.get(member_id)

    def validate(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Validates a request's member id and instance id. Returns NONE or the error."""
        if instance_id is not None:
            owner = self.static_ids.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def elect_joined_leader(self) -> bool:
        """Makes a joined member the leader, unless the present leader has joined. Returns False if no member
        has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_waiter is None:
            joined = next((each for each in self.members.values() if each.join_waiter is not None), None)
            if joined is None:
                return False
            self.leader = joined.member_id
        return True

    def not_rejoined(self) -> Iterator[Member]:
        """Yields the dynamic members that have not rejoined."""
        return (
            each for each in self.members.values() if each.join_waiter is None and each.instance_id is None
        )

    @property
    def all_joined(self) -> bool:
        """Returns whether all members have joined, and no member id is pending."""
        return len(self.members) == self.awaiting_join and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def memory_bytes(self) -> int:
        """The estimated memory of the group."""
        counted = MEMBER_BYTES * len(self.members) + PENDING_BYTES * len(self.pending)
        counted += group_bytes(self.group_id)
        return counted + self.protocol_bytes + self.name_bytes + self.assignment_bytes

    # --- pending responses --------------------------------------------------------------------------------

    def await_join(self, member: Member, waiter: Waiter) -> Waiter | None:
        """Makes the member wait for the end of the join; returns its earlier pending response."""
        before, member.join_waiter = member.join_waiter, waiter
        if before is None:
            self.awaiting_join += 1
        return before

    def take_join_waiter(self, member: Member) -> Waiter | None:
        """Removes and returns the pending response of a member's JoinGroup."""
        waiter, member.join_waiter = member.join_waiter, None
        if waiter is not None:
            self.awaiting_join -= 1
        return waiter

    # --- protocols ----------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols, replaced: Member | None = None) -> bool:
        """Returns whether a member with these protocols could join: it must share one with all members other
        than the one that it replaces."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        others = len(self.members) - (replaced is not None)
        own = frozenset(name for name, _ in replaced.protocols) if replaced is not None else frozenset()
        return any(self._supported.get(name, 0) - (name in own) == others for name, _ in protocols)

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes: each member votes for the first in its list that all
        support. A tie goes to the older vote."""
        member_count = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self._supported[name] == member_count:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def _count(self, member: Member, change: int) -> None:
        self.protocol_bytes += change * member.protocol_bytes
        supported = self._supported
        for name, _ in member.protocols:
            count = supported.get(name, 0) + change
            if count:
                supported[name] = count
            else:
                del supported[name]


def group_bytes(group_id: str) -> int:
    """About the memory that a group without members takes."""
    return GROUP_BYTES + text_bytes(group_id)


def bytes_of(protocols: Iterable[tuple[str, bytes]]) -> int:
    """About the memory that protocols take."""
    return sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


def assigned_bytes(assignments: Iterable[bytes | bytearray | memoryview]) -> int:
    """About the memory of assignments: here, in the committed state, and in that state's record."""
    return 3 * sum(map(len, assignments))


def text_bytes(text: str) -> int:
    """About the memory of a text's characters; one emoji makes all of them wide."""
    return len(text) if text.isascii() else 4 * len(text)


def protocols_of(offered: Iterable[tuple[str, bytes]]) -> Protocols:
    """Returns protocols in a member's order; of one named twice, the first."""
    first: dict[str, bytes] = {}
    for name, metadata in offered:
        first.setdefault(name, metadata)
    return tuple(first.items())
