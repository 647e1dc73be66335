"""Members of consumer groups as raw sockets: how fast a group settles, and what an idle member costs.

Owns: a member's loop (join, sync, heartbeat, join again when told) and two jobs of the load generator.
`rebalance`: one group; seconds until every member has the assignment of one generation, after all start,
after one more comes, after one leaves. `hold_members`: many small groups, each member on a connection of
its own, held until a byte arrives on stdin, so that the harness can look at the broker's memory. Invariant:
a settled generation has exactly the expected members and its partitions are each owned once. Does not do:
back-off, discovery beyond the one broker, decoding of others' metadata.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from bench.load.wire import NO_ERROR, UnexpectedResponse, string
from lockstep.kafka_client.connection import BrokerConnection
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lockstep.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from lockstep.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from lockstep.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

SESSION_MS = 30_000
HELD_SESSION_MS = 1_800_000
"""Kafka's largest session timeout: held members need no heartbeat."""
REBALANCE_MS = 60_000
SETTLE_TIMEOUT_S = 60.0
CONNECTS_AT_ONCE = 200
GROUPS_AT_ONCE = 8
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 22, 25, 27, 79
REJOIN = (REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION)

Result = dict[str, Any]


class Connection:
    """One request at a time, in the last versions without compact lengths."""

    def __init__(self, broker: BrokerConnection) -> None:
        self._broker = broker
        self.close = broker.close

    @classmethod
    async def open(cls, host: str, port: int) -> Connection:
        return cls(await BrokerConnection.open(host, port, client_id="bench", timeout_s=REBALANCE_MS / 1000))

    async def find_coordinator(self, group: str) -> tuple[int, int]:
        """(error code, the coordinator's port)."""
        request = FindCoordinatorRequest(key=group)
        response = await self._broker.call(request, FindCoordinatorResponse, newest=2)
        return response.error_code, response.port

    async def join(self, group: str, member_id: str, session_ms: int, metadata: bytes) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        return await self._broker.call(request, JoinGroupResponse, newest=5)

    async def sync(
        self, group: str, generation: int, member_id: str, assignments: dict[str, bytes]
    ) -> SyncGroupResponse:
        given = [SyncGroupRequestAssignment(member_id=each, assignment=a) for each, a in assignments.items()]
        request = SyncGroupRequest(
            group_id=group, generation_id=generation, member_id=member_id, assignments=given
        )
        return await self._broker.call(request, SyncGroupResponse, newest=3)

    async def heartbeat(self, group: str, generation: int, member_id: str) -> int:
        """The error code."""
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        return (await self._broker.call(request, HeartbeatResponse, newest=3)).error_code

    async def leave(self, group: str, member_id: str) -> int:
        """The error code."""
        request = LeaveGroupRequest(group_id=group, member_id=member_id)
        return (await self._broker.call(request, LeaveGroupResponse, newest=2)).error_code


def subscription(topic: str) -> bytes:
    """A consumer's metadata, version 0: one topic, no user data."""
    return struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", -1)


def assignment(topic: str, partitions: list[int]) -> bytes:
    """A consumer's assignment, version 0."""
    numbers = struct.pack(f">{len(partitions)}i", *partitions)
    head = struct.pack(">hi", 0, 1) + string(topic) + struct.pack(">i", len(partitions))
    return head + numbers + struct.pack(">i", -1)


class Group:
    """The common state of one group's members: the stable generation and its members."""

    def __init__(self, name: str, topic: str, partitions: int) -> None:
        self.name, self.topic, self.partitions = name, topic, partitions
        self.owned: dict[int, dict[str, bytes]] = {}
        """Generation -> member id -> assignment received."""
        self.sizes: dict[int, int] = {}
        """Generation -> how many members its leader saw."""
        self.changed = asyncio.Event()

    def assign(self, members: list[str]) -> dict[str, bytes]:
        """Partitions dealt out in turn."""
        return {
            member: assignment(self.topic, list(range(place, self.partitions, len(members))))
            for place, member in enumerate(members)
        }

    def synced(self, generation: int, member_id: str, assignment: bytes) -> None:
        self.owned.setdefault(generation, {})[member_id] = assignment
        self.changed.set()

    async def wait_until_stable(self, members: int) -> None:
        """Wait until one generation of so many members has been given out whole. UnexpectedResponse."""
        until = time.monotonic() + SETTLE_TIMEOUT_S
        while True:
            newest = max(self.owned, default=0)
            if self.sizes.get(newest) == members and len(self.owned.get(newest, {})) == members:
                self._check(newest)
                return
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), until - time.monotonic())
            except TimeoutError:
                seen = {number: len(found) for number, found in self.owned.items()}
                raise UnexpectedResponse(
                    f"{self.name}: never settled with {members} members: {seen}"
                ) from None

    def _check(self, generation: int) -> None:
        given = list(self.owned[generation].values())
        if len(set(given)) != len(given):
            raise UnexpectedResponse(f"{self.name}: an assignment given twice in generation {generation}")


class Member:
    """One member; `join` takes it through one rebalance, `live` keeps it until cancelled."""

    def __init__(self, group: Group, connection: Connection, session_ms: int) -> None:
        self.group, self.connection, self._session_ms = group, connection, session_ms
        self.member_id = ""
        self.generation = -1
        self._metadata = subscription(group.topic)

    async def join(self) -> None:
        """Join and sync until both succeed. UnexpectedResponse for an error that is no part of a
        rebalance."""
        while not await self._join_once():
            pass

    async def _join_once(self) -> bool:
        group, connection = self.group, self.connection
        joined = await connection.join(group.name, self.member_id, self._session_ms, self._metadata)
        if joined.error_code == MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
            return False
        if joined.error_code != NO_ERROR:
            raise UnexpectedResponse(f"join refused with error code {joined.error_code}")
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments = {}
        if joined.leader == joined.member_id:
            group.sizes[self.generation] = len(joined.members)
            assignments = group.assign([each.member_id for each in joined.members])
        synced = await connection.sync(group.name, self.generation, self.member_id, assignments)
        if synced.error_code in REJOIN:
            return False
        if synced.error_code != NO_ERROR:
            raise UnexpectedResponse(f"sync refused with error code {synced.error_code}")
        group.synced(self.generation, self.member_id, bytes(synced.assignment))
        return True

    async def live(self, heartbeat_s: float) -> None:
        """Join, then heartbeat for ever, joining again whenever the group rebalances."""
        await self.join()
        await asyncio.sleep(random.random() * heartbeat_s)
        while True:
            error = await self.connection.heartbeat(self.group.name, self.generation, self.member_id)
            if error in REJOIN:
                await self.join()
            elif error != NO_ERROR:
                raise UnexpectedResponse(f"heartbeat refused with error code {error}")
            await asyncio.sleep(heartbeat_s)

    async def leave(self) -> None:
        error = await self.connection.leave(self.group.name, self.member_id)
        if error != NO_ERROR:
            raise UnexpectedResponse(f"leave refused with error code {error}")
        self.connection.close()


async def await_coordinator(host: str, port: int, group: str) -> int:
    """Ask until the group's coordinator is there: at first use its topic is made. Its port.
    UnexpectedResponse."""
    until = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        error, at = await _ask_once(host, port, group)
        if error == UNKNOWN_MEMBER:  # it is served: the group is merely not there
            return at
        if time.monotonic() > until:
            raise UnexpectedResponse(f"no coordinator: error code {error}")
        await asyncio.sleep(0.05)


async def _ask_once(host: str, port: int, group: str) -> tuple[int, int]:
    """(the coordinator's error code for a stranger, or why it is not known; its port)."""
    asked = await Connection.open(host, port)
    error, at = await asked.find_coordinator(group)
    asked.close()
    if error != NO_ERROR:
        return error, at
    coordinator = await Connection.open(host, at)
    error = await coordinator.heartbeat(group, 0, "nobody")
    coordinator.close()
    return error, at


def rebalance(job: Result) -> Result:
    """`members` in one group, `rounds` times: start together, one more, one less; seconds of each."""
    return asyncio.run(_rebalance(job))


async def _rebalance(job: Result) -> Result:
    times: dict[str, list[float]] = {"start_s": [], "join_s": [], "leave_s": []}
    for number in range(job["rounds"]):
        name = f"{job['group']}-{number}"
        await await_coordinator(job["host"], job["port"], name)
        for key, seconds in zip(times, await _one_group(job, name), strict=True):
            times[key].append(seconds)
    return {key: sorted(values)[len(values) // 2] for key, values in times.items()}


async def _one_group(job: Result, name: str) -> tuple[float, float, float]:
    size, heartbeat_s = job["members"], job["heartbeat_s"]
    group = Group(name, job["topic"], size + 1)
    connections = [await Connection.open(job["host"], job["port"]) for _ in range(size + 1)]
    members = [Member(group, each, SESSION_MS) for each in connections]
    began = time.perf_counter()
    tasks = [asyncio.ensure_future(member.live(heartbeat_s)) for member in members[:-1]]
    try:
        await _first(group.wait_until_stable(size), tasks)
        start_s = time.perf_counter() - began
        await asyncio.sleep(2 * heartbeat_s)
        began = time.perf_counter()
        last = asyncio.ensure_future(members[-1].live(heartbeat_s))
        await _first(group.wait_until_stable(size + 1), [*tasks, last])
        join_s = time.perf_counter() - began
        await asyncio.sleep(2 * heartbeat_s)
        last.cancel()
        await asyncio.gather(last, return_exceptions=True)
        began = time.perf_counter()
        await members[-1].leave()
        await _first(group.wait_until_stable(size), tasks)
        return start_s, join_s, time.perf_counter() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for member in members[:-1]:
            await member.leave()


async def _first(stable: Coroutine[Any, Any, None], members: Sequence[asyncio.Task[None]]) -> None:
    """Wait for `stable`, unless a member, which never ends by itself, fails first."""
    task = asyncio.ensure_future(stable)
    done, _ = await asyncio.wait({task, *members}, return_when=asyncio.FIRST_COMPLETED)
    if task not in done:
        task.cancel()
    for each in done:
        each.result()


def hold_members(job: Result) -> Result:
    """`groups` groups of `members` members each; says "held" on stdout, ends at the end of stdin."""
    return asyncio.run(_hold_members(job))


async def _hold_members(job: Result) -> Result:
    host, port, size = job["host"], job["port"], job["members"]
    await await_coordinator(host, port, "held-0")
    gate = asyncio.Semaphore(CONNECTS_AT_ONCE)

    async def connect() -> Connection:
        async with gate:
            return await Connection.open(host, port)

    connections = await asyncio.gather(*(connect() for _ in range(job["groups"] * size)))
    print(json.dumps({"connected": len(connections)}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.perf_counter()
    at_once = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def settle(number: int) -> None:
        async with at_once:
            group = Group(f"held-{number}", job["topic"], size)
            mine = connections[number * size : (number + 1) * size]
            members = [Member(group, each, HELD_SESSION_MS) for each in mine]
            tasks = [asyncio.ensure_future(_join_until_stable(member, size)) for member in members]
            await asyncio.gather(*tasks)

    await asyncio.gather(*(settle(number) for number in range(job["groups"])))
    seconds = time.perf_counter() - began
    print(json.dumps({"held": len(connections), "seconds": seconds}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return {"held": len(connections), "seconds": seconds}


async def _join_until_stable(member: Member, size: int) -> None:
    """Join, and heartbeat often until the whole group is one generation."""
    live = asyncio.ensure_future(member.live(0.02))
    try:
        await _first(member.group.wait_until_stable(size), [live])
    finally:
        live.cancel()
