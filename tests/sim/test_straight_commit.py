"""The straight commit of a lone member leaves what the replica's general loop leaves, whatever happens.

Each script of events runs in two worlds, with and without it: appends of clients and within waiters, failing
and short writes, failing and slow flushes, full disks, crashes, checkpoints, new segments, and members that
come, lead and go. All that is seen must be equal at equal times: the trace (each turn's term, role, commit
and last index, each message), the results, the applied state, and each byte of each file.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lockstep.protocol.records.batch import read_header
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.replica import Replica
from lockstep.storage.types import (
    CONTROL_PARTITION,
    Buffer,
    DirectoryEntry,
    Frame,
    StorageError,
    StorageFull,
    WriteFailed,
)
from tests.sim.checks import standard_checks
from tests.sim.faces import Machines, Unanswered, Violation, Workload
from tests.sim.node import Node, State
from tests.sim.options import Options
from tests.sim.run import run_seed
from tests.sim.world import World, buried
from tests.storage.cluster import batch

Event = tuple[Any, ...]

TOPIC = bytes(range(16))
OTHER_TOPIC = bytes(range(1, 17))
APPENDED = "appended"
REFUSALS = (StorageError, Unanswered, OSError, ConfigurationRejected)
OPTIONS = Options(
    clients=1,
    faults=(),
    safety_s=120,
    heartbeat_ms=200,
    segment_bytes=64 << 10,
    spare_segments=1,
    pool_segments=0,
    tail_cache_bytes=4 << 10,
    kept_entries=8,
    flush_us=200,
)
SIZES = (10, 900, 9000)
LEADERLESS_LOOKS = 40
IDLE_S = 10
"""The log is left alone for so long when a script has ended."""


class Replayed:
    """A machine that counts what is replayed into it, in order."""

    def __init__(self) -> None:
        self.seen = b""

    def snapshot(self, time_ms: int) -> bytes:
        return self.seen

    def restore(self, data: bytes) -> None:
        self.seen = bytes(data)

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        self.seen += repr((entry.fields[:4], time_ms)).encode()


class Appended(Replayed):
    """The same of what is appended to topics: a leader notes its own batches as it appends them."""

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        if entry.partition != CONTROL_PARTITION:
            super().replay(entry, payload, time_ms)


class Script(Workload):
    """One client that does one event after the other."""

    name = "script"
    events: ClassVar[Sequence[Event]] = ()

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.seen: list[object] = []
        """Everything that anybody was told, and when."""
        self.refused = 0
        self.ended = asyncio.Event()

    def machines(self, node: Node) -> Machines:
        return Machines(commit={TOPIC: ("replayed", Replayed())}, tail={APPENDED: Appended()})

    def opened(self, node: Node) -> None:
        """Has the log refuse writes while `refused` says so, after the first frame of several or before."""
        group = node.group
        assert group is not None
        log: Any = group.log
        real = log.append

        def append(frames: Sequence[Frame]) -> None:
            if self.refused and frames:
                self.refused -= 1
                if len(frames) > 1:
                    real(frames[:1])
                    raise WriteFailed("refused")
                raise StorageFull("refused")
            real(frames)

        log.append = append

    async def client(self, number: int) -> None:
        for event in self.events:
            await self._do(*event)
            self._look()
        await asyncio.sleep(IDLE_S)
        self.ended.set()

    async def safety_phase(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.ended.wait(), self.world.options.safety_s)

    async def settle(self) -> None:
        while len({node.group.applied_index for node in self.world.running() if node.group}) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        self._look()

    async def _do(self, name: str, *arguments: Any) -> None:
        if name == "sleep":
            await asyncio.sleep(arguments[0] / 1000)
        elif name == "refuse":
            self.refused = arguments[0]
        elif name in FAULTS:
            for node in self.world.nodes.values():
                FAULTS[name](node, *arguments)
        elif name in CRASHES:
            node = self.world.nodes[min(arguments[0], len(self.world.nodes))]
            if node.state is State.OPEN:
                node.cut_how = name
                node.crash(name)
        else:
            await self._ask(name, arguments)

    async def _ask(self, name: str, arguments: Sequence[Any]) -> None:
        """Asks the leader, or without one for a while the first node."""
        for _ in range(LEADERLESS_LOOKS):
            if self.world.leader() is not None:
                break
            await asyncio.sleep(0.05)
        node = self.world.leader() or self.world.nodes[1]
        outcome: object
        try:
            outcome = await self.world.ask(node, lambda node: REQUESTS[name](self, node, *arguments), 1.0)
        except REFUSALS as error:
            outcome = type(error).__name__
        self.seen.append((self.world.now_us, name, outcome))

    def _look(self) -> None:
        """Notes the state of each open group."""
        for node in self.world.running():
            group = node.group
            assert group is not None
            raft, log, machines = group.raft, group.log, node.machines
            ends = [
                (each.local_id, each.next_offset, each.high_watermark, each.leader_epochs[-3:])
                for each in group.partitions.values()
            ]
            self.seen.append(
                (
                    (self.world.now_us, node.node_id, raft.term, raft.commit_index, raft.persisted_index),
                    (group.applied_index, group.checkpoint_index, group.is_leader, group.time_ms),
                    (log.last_index, log.next_lsn, log.chain, log.flushed_index, raft.last_index),
                    (group.flusher.flushes, group.flusher.threaded, group._replica.applier.in_flight_bytes),
                    (len(group._waiters._waiting), len(group._replica._work), ends),
                    (machines.commit[TOPIC][1].snapshot(0), machines.tail[APPENDED].snapshot(0)),
                )
            )


# -- what a node is asked -----------------------------------------------------------------------------------


def _partition(group: LogGroup, topic: bytes) -> PartitionLog | None:
    return next((each for each in group.partitions.values() if each.topic_id == topic), None)


def _add(node: Node, partition: PartitionLog, value: bytes) -> int:
    """Appends a batch, and has the tail machine note it."""
    group, data = node.group, batch(value)
    assert group is not None
    header = read_header(data)
    offset = group.append(partition, data, header)
    entry = DirectoryEntry(partition.local_id, offset, header.record_count, len(data), header.crc, 0, 0)
    node.machines.tail[APPENDED].replay(entry, data, group.append_time_ms)
    return offset


def _append(script: Script, node: Node, topic: bytes, size: int, then: int, name: str) -> int:
    """Appends a batch; once it is committed, so many more, one after the other, from within the waiter."""
    group = node.group
    assert group is not None
    partition = _partition(group, topic)
    if partition is None:
        return -1
    offset = _add(node, partition, name.encode() + bytes(size))

    def told(error: BaseException | None) -> None:
        script.seen.append((group._loop.time(), name, type(error).__name__, partition.high_watermark))
        if then and error is None:
            try:
                _append(script, node, topic, size, then - 1, f"{name}.{then}")
            except StorageError as refusal:
                script.seen.append(type(refusal).__name__)

    group.when_committed(told)
    return offset


async def _appends(script: Script, node: Node, batches: int, size: int, then: int) -> list[int]:
    group = node.group
    assert group is not None
    if _partition(group, OTHER_TOPIC) is None:
        await group.open_partitions([(TOPIC, 0), (OTHER_TOPIC, 0)])
    name = f"{script.world.now_us}"
    topics = [TOPIC if number % 3 else OTHER_TOPIC for number in range(batches)]
    offsets = [
        _append(script, node, topic, size, then, f"{name}/{number}") for number, topic in enumerate(topics)
    ]
    return offsets


async def _appends_and_waits(script: Script, node: Node, batches: int, size: int, then: int) -> list[int]:
    offsets = await _appends(script, node, batches, size, then)
    assert node.group is not None
    await node.group.committed()
    return offsets


def _within_a_waiter(script: Script, node: Node, what: str) -> None:
    """A request to the replica while it reports a commit."""
    group = node.group
    assert group is not None
    partition = _partition(group, TOPIC)
    if partition is None:
        return
    _add(node, partition, b"within")

    def told(error: BaseException | None) -> None:
        try:
            outcome: object = None if error is not None else INSIDE[what](script, node)
        except REFUSALS as refusal:
            outcome = type(refusal).__name__
        script.seen.append((what, type(error).__name__, outcome))

    group.when_committed(told)


def _members(script: Script, node: Node, voters: Sequence[int], learners: Sequence[int]) -> None:
    group, nodes = node.group, script.world.nodes
    assert group is not None
    group.change_members(
        [nodes[each].member_id for each in voters if each in nodes],
        [nodes[each].member_id for each in learners if each in nodes],
    )


def _transfer(script: Script, node: Node) -> None:
    group = node.group
    assert group is not None
    other = next((each for each in group.raft.configuration.voters if each != node.member_id), node.member_id)
    group.transfer(other)


def _checkpoint(script: Script, node: Node) -> bool:
    assert node.group is not None
    node.group._replica.checkpointer.requested = True
    return node.group._replica.checkpoint_now()


def _seal(script: Script, node: Node) -> None:
    assert node.group is not None
    node.group._replica.seal(node.group.log.last_index)


async def _close_partition(script: Script, node: Node) -> None:
    group = node.group
    assert group is not None
    partition = _partition(group, OTHER_TOPIC)
    if partition is not None:
        await group.close_partitions([partition.local_id])


REQUESTS: dict[str, Callable[..., Any]] = {
    "append": _appends,
    "append and wait": _appends_and_waits,
    "within": _within_a_waiter,
    "members": _members,
    "transfer": _transfer,
    "checkpoint": _checkpoint,
    "seal": _seal,
    "close partition": _close_partition,
}


def _append_and_transfer(script: Script, node: Node) -> None:
    """A transfer proposes what is pending; a lone member has nobody to transfer to."""
    assert node.group is not None
    partition = _partition(node.group, TOPIC)
    if partition is not None:
        _add(node, partition, b"before a transfer")
        _transfer(script, node)


INSIDE: dict[str, Callable[[Script, Node], Any]] = {
    "seal": _seal,
    "append and transfer": _append_and_transfer,
    "learner": lambda script, node: _members(script, node, [1], [2]),
    "voter": lambda script, node: _members(script, node, [1, 2], []),
    "alone": lambda script, node: _members(script, node, [1], []),
    "checkpoint": _checkpoint,
    "step": lambda script, node: node.group._replica.request(lambda: None) if node.group else None,
}
CRASHES = ("kill", "power loss")


def _fail(node: Node, operation: str, times: int) -> None:
    node.faults.failing[operation] = times


def _cut(node: Node, operations: int) -> None:
    """The node is killed in the middle of one of its next operations on its disk."""
    if node.state is State.OPEN:
        node.cut_how = "kill"
        node.faults.armed_cut = operations


def _set(node: Node, name: str, value: Any) -> None:
    setattr(node.faults, name, value)


FAULTS: dict[str, Callable[..., None]] = {
    "fail": _fail,
    "slow": lambda node, factor: _set(node, "slowness", factor),
    "stall": lambda node, milliseconds: _set(node, "stall_us", milliseconds * 1000),
    "short writes": lambda node, share: _set(node, "short_writes", share),
    "full": lambda node: _set(node, "free_bytes", 0),
    "cut": _cut,
    "pause": lambda node, milliseconds: node.pause(node.world.now_us + milliseconds * 1000),
    "heal": lambda node: node.faults.heal(),
}

APPENDS = st.tuples(
    st.sampled_from(("append", "append and wait")),
    st.integers(1, 4),
    st.sampled_from(SIZES),
    st.integers(0, 2),
)
EVENTS = st.one_of(
    APPENDS,
    APPENDS,
    APPENDS,
    st.tuples(st.just("sleep"), st.sampled_from((1, 20, 700, 2500))),
    st.tuples(st.just("within"), st.sampled_from(sorted(INSIDE))),
    st.tuples(st.sampled_from(("checkpoint", "seal", "close partition", "transfer", "heal", "full"))),
    st.tuples(st.just("members"), st.just((1,)), st.just(())),
    st.tuples(st.just("members"), st.just((1,)), st.just((2,))),
    st.tuples(st.just("members"), st.just((2,)), st.just(())),
    st.tuples(st.just("members"), st.just((1, 2)), st.just(())),
    st.tuples(st.just("fail"), st.sampled_from(("write", "flush", "create", "rename")), st.integers(1, 2)),
    st.tuples(st.just("refuse"), st.integers(1, 3)),
    st.tuples(st.just("slow"), st.sampled_from((1, 30))),
    st.tuples(st.just("stall"), st.sampled_from((5, 400))),
    st.tuples(st.just("pause"), st.sampled_from((5, 900))),
    st.tuples(st.just("short writes"), st.sampled_from((0.0, 0.5))),
    st.tuples(st.just("cut"), st.integers(1, 12)),
    st.tuples(st.sampled_from(CRASHES), st.integers(1, 2)),
)


def outcome(events: Sequence[Event], nodes: int, straight: bool) -> tuple[object, ...]:
    """All that is left of a world in which these events happened."""
    workload = type("Scripted", (Script,), {"events": tuple(events)})
    options = replace(OPTIONS, nodes=nodes, straight_commit=straight)
    with buried():
        world = World(7, options, workload, standard_checks)
        broken = ""
        try:
            world.run()
        except Violation as violation:  # a script may ask for what no world survives
            broken = str(violation)
        files = {
            (node.node_id, name): bytes(inode.cache)
            for node in world.nodes.values()
            for name, inode in sorted(node.disk._names.items())
        }
        assert isinstance(world.workload, Script)
        return broken, world.workload.seen, files, world.trace.hexdigest()


@given(st.lists(EVENTS, min_size=3, max_size=25), st.sampled_from((1, 1, 2)))
@example([("append and wait", 1, 10, 2), ("slow", 30), *[("append", 2, 9000, 1)] * 12, ("sleep", 700)], 1)
@example([("append and wait", 2, 900, 1), ("fail", "write", 1), ("append", 3, 10, 1), ("sleep", 2500)], 1)
@example([("append and wait", 2, 900, 1), ("full",), *[("append", 4, 9000, 1)] * 8, ("heal",)], 1)
@example([("append and wait", 2, 10, 0), ("refuse", 2), ("append", 1, 10, 1), ("append", 4, 9000, 1)], 1)
@example([("append and wait", 1, 10, 0), ("refuse", 1), ("append", 4, 9000, 1), ("sleep", 700)], 1)
@example([("append and wait", 1, 10, 0), ("fail", "flush", 1), ("append", 1, 10, 2), ("sleep", 2500)], 1)
@example([("members", (1,), ()), ("append and wait", 2, 10, 2), ("within", "voter"), ("sleep", 700)], 2)
@example([("members", (1,), ()), ("append and wait", 1, 10, 1), ("within", "learner"), ("sleep", 700)], 2)
@example([("append and wait", 1, 10, 0), ("within", "append and transfer"), ("append", 2, 10, 0)], 1)
@example([("append and wait", 1, 9000, 2)] * 9 + [("within", "seal"), ("within", "checkpoint")], 1)
@settings(max_examples=40)
def test_it_leaves_what_the_general_loop_leaves(events: list[Event], nodes: int) -> None:
    assert outcome(events, nodes, True) == outcome(events, nodes, False)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_same_history(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Counter[bool]()
    real = Replica._commits_alone

    def commits_alone(self: Replica) -> bool:
        found = real(self)
        taken[found] += 1
        return found

    monkeypatch.setattr(Replica, "_commits_alone", commits_alone)
    overrides = {"nodes": 1, "safety_s": 15, "think_ms": 50}
    with_it, without = (
        run_seed(seed, "appends", {**overrides, "straight_commit": on}) for on in (True, False)
    )
    assert not with_it.rule, with_it.violation
    assert with_it.trace_hash == without.trace_hash
    assert taken[True] > 10 * taken[False]
