"""Random histories of one group: clients join, sync, leave, die and come back; commits are late, or fail; the
coordinator restarts. What must hold: in a generation all are told the same protocol and leader; an assignment
is what the leader of that generation gave; no partition has two owners in one generation; in the end
everybody is answered, and nothing is left.
"""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from lockstep.broker.groups.classic_group import State
from lockstep.broker.groups.group_rebalancer import GroupRebalancer
from lockstep.protocol.errors import ErrorCode
from tests.broker.groups.fakes import World

GROUP = "g"
PARTITIONS = 6
PROTOCOLS = ({"range": b"1"}, {"range": b"1", "sticky": b"2"}, {"sticky": b"2", "range": b"3"})
INSTANCES = ("i0", "i1")
FAILURES = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.MESSAGE_TOO_LARGE)
END_OF_ALL_MS = 20 * 60 * 1000

CLIENTS = ((None, 9), (None, 9), (None, 3), ("i0", 9), ("i0", 9), ("i1", 9))
"""Instance ids and versions: two processes claim the same instance."""


def of(name: str, *arguments: Any) -> list[tuple[str, Any]]:
    """One action of the history, with each of its arguments; each client's number by default."""
    return [(name, argument) for argument in arguments or range(len(CLIENTS))]


SELDOM = [
    of("join", *((n, p, s) for n in range(len(CLIENTS)) for p in PROTOCOLS for s in (6_000, 30_000))),
    of("sync"),
    of("leave"),
    of("start_client"),
    of("fail_to_commit", *FAILURES),
    of("remove_static", *INSTANCES),
    of("delete", 0),
    of("restart", True, False),
    of("pass_time", 7_000, 21_000),
]
OFTEN = [
    *[of("step")] * 24,
    *[of("pass_time", 10, 1_000, 3_000)] * 8,
    *[of("commit", 1, 3)] * 6,
]
ACTION = st.sampled_from([*OFTEN, *SELDOM]).flatmap(st.sampled_from)


class Client:
    """One client: what it was told last, and what it waits for."""

    def __init__(self, number: int, instance: str | None, version: int) -> None:
        self.name = f"client{number}"
        self.instance = instance
        self.version = version
        self.member_id = ""
        self.joined: Any = None
        self.waits = 0
        self.synced = False
        self.fenced = False

    def told_off(self, error: int) -> None:
        """It was refused; a fenced process ends."""
        self.joined = None
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
        self.fenced = self.fenced or error == ErrorCode.FENCED_INSTANCE_ID

    @property
    def identity(self) -> str:
        """What stays of it when a static member's id changes."""
        return self.instance or self.member_id


def identity(member_id: str) -> str:
    """Of a member: the instance id, or the id."""
    return member_id[:2] if member_id.startswith(INSTANCES) else member_id


class GroupHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[int, Client] = {}
        self.asked: list[tuple[str, Client, Any, int, GroupRebalancer | None]] = []
        self.on_status: dict[tuple[int, int], tuple[str, str]] = {}
        self.owners: dict[tuple[int, int, int], str] = {}
        self.lives: list[GroupRebalancer] = []
        self.given: set[bytes] = set()
        self.epoch = 0
        self.serial = 0

    @initialize(
        delay=st.sampled_from(["0", "3000"]),
        at_once=st.booleans(),
        size=st.sampled_from(["3", "9", "9", "9"]),
    )
    def begin(self, delay: str, at_once: bool, size: str) -> None:
        self.world = World(group_initial_rebalance_delay_ms=delay, group_max_size=size)
        self.world.store.at_once = at_once
        for number in range(len(CLIENTS)):
            self.start_client(number)

    @rule(actions=st.lists(ACTION, min_size=10, max_size=40))
    def go_on(self, actions: list[tuple[str, Any]]) -> None:
        """A piece of the history."""
        for name, argument in actions:
            getattr(self, name)(argument)
            self.group_is_whole()

    # --- what clients do ----------------------------------------------------------------------------------

    def start_client(self, number: int) -> None:
        """A process starts; what it was before, if it was, is forgotten: it died."""
        self.clients[number] = Client(number, *CLIENTS[number])

    def step(self, number: int) -> None:
        """A client does what comes next."""
        client = self.clients[number]
        if client.waits or client.fenced:
            return
        if client.joined is None:
            self.join((number, PROTOCOLS[1], 30_000))
        elif not client.synced:
            self.sync(number)
        else:
            self.heartbeat(number)

    def join(self, how: tuple[int, dict[str, bytes], int]) -> None:
        number, protocols, session = how
        client = self.clients[number]
        answer = self.world.ask_join(
            GROUP,
            client.member_id,
            protocols=protocols,
            session_ms=session,
            rebalance_ms=20_000,
            instance=client.instance,
            version=client.version,
            client=client.name,
        )
        self._ask("join", client, answer, 0)

    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.joined is None:
            return
        joined = client.joined
        parts: dict[str, bytes] = {}
        if joined.members and not joined.skip_assignment:
            self.serial += 1
            members = [each.member_id for each in joined.members]
            for place, member_id in enumerate(members):
                part = {
                    "by": client.identity,
                    "generation": joined.generation_id,
                    "serial": self.serial,
                    "for": identity(member_id),
                    "partitions": list(range(place, PARTITIONS, len(members))),
                }
                parts[member_id] = json.dumps(part).encode()
        self.given.update(parts.values())
        answer = self.world.sync(joined, parts, GROUP, instance=client.instance)
        self._ask("sync", client, answer, joined.generation_id)

    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if client.joined is None:
            return
        error = self.world.heartbeat(client.joined, GROUP, client.instance)
        if error != ErrorCode.NONE:
            client.told_off(error)
        self._listen()

    def leave(self, number: int) -> None:
        client = self.clients[number]
        if not client.member_id:
            return
        answer = self.world.leave(client.member_id, group=GROUP)
        if hasattr(answer, "done"):
            self._ask("leave", client, answer, 0)
        client.member_id, client.joined = "", None
        self._listen()

    def remove_static(self, instance: str) -> None:
        answer = self.world.leave(instances=[instance], group=GROUP)
        if hasattr(answer, "done"):
            self._ask("leave", Client(9, None, 9), answer, 0)
        self._listen()

    def delete(self, _: int) -> None:
        told: list[ErrorCode] = []
        empty = self.world.coordinator.is_empty(GROUP)
        self.world.coordinator.delete(GROUP, told.append)
        if empty:
            self.epoch += 1
        self.world.loop.turn()
        self._listen()

    # --- what the world does ------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        self.world.loop.advance(ms)
        self._listen()

    def commit(self, count: int) -> None:
        for _ in range(count):
            self.world.store.commit()
        self.world.loop.turn()
        self._listen()

    def fail_to_commit(self, error: ErrorCode) -> None:
        self.world.store.commit(error)
        self.world.loop.turn()
        self._listen()

    def restart(self, written: bool) -> None:
        self.world.coordinator.resign()
        self._settle_store(ErrorCode.NONE if written else ErrorCode.NOT_COORDINATOR)
        self._listen()
        assert all(each[2].done for each in self.asked), "left waiting by a coordinator that resigned"
        assert self.world.loop.armed == 0
        self.world.start()

    # --- what must hold -----------------------------------------------------------------------------------

    def _ask(self, kind: str, client: Client, answer: Any, generation: int) -> None:
        rebalancer = self._rebalancers()
        client.waits += 1
        self.asked.append((kind, client, answer, generation, rebalancer))
        self._listen()

    def _rebalancers(self) -> GroupRebalancer | None:
        rebalancer = self.world.coordinator._rebalancers.get(GROUP)
        if rebalancer is not None and rebalancer not in self.lives:
            self.lives.append(rebalancer)  # kept, so that no two have the same id
        return rebalancer

    def _listen(self) -> None:
        waiting = []
        for kind, client, answer, generation, rebalancer in self.asked:
            if not answer.done:
                waiting.append((kind, client, answer, generation, rebalancer))
                continue
            client.waits -= 1
            if kind == "join":
                self._joined(client, answer.response, rebalancer)
            elif kind == "sync":
                self._synced(client, answer.response, generation)
        self.asked = waiting

    def _joined(self, client: Client, joined: Any, rebalancer: GroupRebalancer | None) -> None:
        error = joined.error_code
        if error == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = joined.member_id
            return
        if error != ErrorCode.NONE:
            client.told_off(error)
            return
        client.member_id, client.joined, client.synced = joined.member_id, joined, False
        assert rebalancer is not None
        said = (joined.protocol_name, identity(joined.leader))
        assert self.on_status.setdefault((id(rebalancer), joined.generation_id), said) == said
        assert bool(joined.members) == (joined.leader == joined.member_id)

    def _synced(self, client: Client, synced: Any, generation: int) -> None:
        if synced.error_code != ErrorCode.NONE:
            client.told_off(synced.error_code)
            return
        client.synced = True
        if not synced.assignment:
            return
        assert synced.assignment in self.given, "nobody gave this"
        part = json.loads(synced.assignment)
        assert part["generation"] == generation, "of another generation"
        for partition in part["partitions"]:
            owner = self.owners.setdefault((self.epoch, generation, partition), part["for"])
            assert owner == part["for"], "two owners"

    def group_is_whole(self) -> None:
        rebalancer = self._rebalancers() if hasattr(self, "world") else None
        if rebalancer is None:
            return
        group = rebalancer.group
        for member in group.members.values():
            session = rebalancer._sessions.get(member.member_id)
            assert member.is_waiting or (session is not None and session.is_armed), "would never be missed"
        for member_id in group.pending:
            assert rebalancer._sessions[member_id].is_armed
        assert set(rebalancer._sessions) == set(group.members) | group.pending
        assert (group.leader in group.members) == bool(group.members)
        assert group.awaiting_join == sum(each.join_waiter is not None for each in group.members.values())
        assert set(group.static_ids.values()) == {
            each.member_id for each in group.members.values() if each.instance_id is not None
        }
        if group.members:
            assert group.select_protocol()
        if group.state is State.EMPTY:
            assert not group.members
        if group.state is not State.COMPLETING_REBALANCE:
            assert all(each.sync_waiter is None for each in group.members.values())
        assert (rebalancer._join_timer is not None) == (group.state is State.PREPARING_REBALANCE)
        assert (rebalancer._sync_timer is not None) == bool(group.pending_sync)
        if group.state is State.COMPLETING_REBALANCE:
            assert group.pending_sync or rebalancer.writes, "nobody would end this"
        assert self.world.coordinator._context.memory_bytes == group.memory_bytes

    def _settle_store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        self.world.loop.turn()
        while self.world.store.waiting:
            self.world.store.commit(error)
            self.world.loop.turn()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.store.at_once = True
        for _ in range(2):  # a write that failed may bring back members; they are missed like others
            self._settle_store()
            for _ in range(20):
                world.loop.advance(END_OF_ALL_MS / 20)
                self._listen()
                self.group_is_whole()
            assert self.asked == [], "never answered"
            assert world.loop.armed == 0
            assert world.coordinator.is_empty(GROUP)
            world.coordinator.resign()
            world.start()
        assert world.coordinator._rebalancers == {}
        assert world.coordinator._context.memory_bytes == 0


TestGroupHistory = GroupHistory.TestCase
TestGroupHistory.settings = settings(
    max_examples=200, stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)
