"""The `locking` workload: conditional appends to one partition, judged by the log that comes of them.

Owns the rules. Every committed record must have met its condition, which the log alone tells: no batch that
raises one of its locks ends above its mark. What was acknowledged is where it was said to be. A refusal that
claims to be exact names a batch that raises that lock. Tables are small, so that estimates, snapshots and
rebuilt tails are in use; marks are as old as a client that reads now and then has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import unquote_to_bytes

from lockstep.broker.locks.lock_check import LockChecks, hash_of
from lockstep.broker.locks.lock_headers import lock_requests
from lockstep.broker.locks.lock_table import SECTION, LockTable
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.record import BatchBuilder, Headers
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import StorageError
from tests.sim.checks.history import Batch, History, group_of
from tests.sim.faces import Machines, Unanswered, Workload
from tests.sim.workloads.asking import (
    BACKOFF_S,
    Elsewhere,
    Finder,
    InDoubt,
    at_rest,
    commit,
    must_lead,
    on_node,
    run_commands,
    until,
)
from tests.sim.workloads.producing import PRODUCE_VERSION, TRANSIENT, Limits

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

TOPIC_ID: Final = bytes(15) + b"l"
LOCKS: Final = 30
RECENT, CELLS = 8, 64
PRODUCERS_SECTION: Final = "producers"
EXPIRATION_MS: Final = 86_400_000


class LockLimits(Limits):
    """What the topic's configuration says."""

    lockstep_locks = "true"


LIMITS: Final = LockLimits()


def _partition(node: Node) -> PartitionLog | None:
    return next((each for each in group_of(node).partitions.values() if each.topic_id == TOPIC_ID), None)


async def _open(node: Node) -> int:
    """The committed end of the partition, which is opened where there is none."""
    must_lead(node)
    found = _partition(node)
    if found is None:
        group = group_of(node)
        (found,) = await run_commands(node, lambda: group.open_partitions([(TOPIC_ID, 0)]))
    return int(found.last_stable_offset)


async def _append(node: Node, data: bytes) -> int:
    """As broker/produce/api/produce.py: a refusal by a lock, too, is said once what it rests on is
    committed."""
    must_lead(node)
    partition = _partition(node)
    if partition is None:
        raise Elsewhere(-1)
    try:
        appended = node.memory["appender"].append(partition, data, LIMITS, PRODUCE_VERSION)
    except RequestError as refused:
        if refused.error is ErrorCode.POLICY_VIOLATION:
            await commit(node)
        raise
    await commit(node)
    return int(appended.base_offset)


class Locking(Workload):
    """See the module."""

    name = "locking"
    overrides: ClassVar[Mapping[str, object]] = {"think_ms": 30, "segment_bytes": 32768}

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._active = 0
        self._acknowledged: dict[int, bytes] = {}
        self._claims: list[tuple[int, bytes]] = []
        """(offset, lock) of exact refusals."""
        self.refused = self.estimated = 0

    def machines(self, node: Node) -> Machines:
        return Machines(
            tail={PRODUCERS_SECTION: ProducerState(EXPIRATION_MS), SECTION: LockTable(RECENT, CELLS)}
        )

    def opened(self, node: Node) -> None:
        producers, table = node.machines.tail[PRODUCERS_SECTION], node.machines.tail[SECTION]
        assert isinstance(producers, ProducerState) and isinstance(table, LockTable)
        cluster: Any = SimpleNamespace(metadata_index=0, topic_by_id=lambda _: SimpleNamespace(name="t"))
        appender = Appender(group_of(node), producers, node.clock_ms)
        appender.locks = LockChecks(table, group_of(node), cast(MetadataCache, cluster))
        node.memory["appender"] = appender

    # -- clients ----------------------------------------------------------------------------------------

    async def client(self, number: int) -> None:
        self._active += 1
        random = self.world.random(f"client {number}")
        finder = Finder(self.world, f"leader for {number}")
        count, applied = 0, -1
        while self.world.working:
            await asyncio.sleep(random.expovariate(1.0) * self.world.options.think_ms / 1000)
            count += 1
            if random.random() < 0.7:
                try:
                    applied = await finder.ask(on_node(_open)) - 1
                except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
                    await asyncio.sleep(BACKOFF_S)
                    continue
            records = [self._asks(random, applied) for _ in range(random.choice((1, 1, 1, 2)))]
            await self._write(finder, b"%d.%d" % (number, count), records)
        self._active -= 1

    @staticmethod
    def _asks(random: Any, applied: int) -> Headers:
        """Headers of one record."""
        headers: Headers = [("lockstep-hwm", b"%d" % applied)]
        for kind, share in (("write", 0.8), ("read", 0.3), ("append", 0.1)):
            if random.random() < share:
                lock = int(LOCKS * random.random() ** 2)
                headers.append((f"lockstep-{kind}-lock", b"%d" % lock))
        if random.random() < 0.1:
            headers.append(("lockstep-expected-offset", b"%d" % (applied + 1)))
        return headers

    async def _write(self, finder: Finder, value: bytes, records: Sequence[Headers]) -> bool:
        """Whether it was acknowledged."""
        builder = BatchBuilder()
        for headers in records:
            builder.append(value, headers=headers, timestamp_ms=1)
        try:
            offset = await finder.ask(on_node(_append, builder.build()))
        except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
            await asyncio.sleep(BACKOFF_S)
            return False
        except RequestError as refused:
            self._hear(refused)
            return False
        self._acknowledged[offset] = value
        return True

    def _hear(self, refused: RequestError) -> None:
        if refused.error in TRANSIENT:
            return
        words = dict(each.split("=", 1) for each in refused.message.split() if "=" in each)
        if refused.error is not ErrorCode.POLICY_VIOLATION:
            # Expected offsets may lie beyond an end that a new leader does not have.
            if words.get("reason") not in ("EXPECTED_OFFSET", "AHEAD"):
                self.world.violate("a good batch is taken", refused.message)
            return
        self.refused += 1
        if refused.message.endswith("estimate"):
            self.estimated += 1
        elif words["reason"] == "LOCK" and words["record"] == "0":
            self._claims.append((int(words["conflict_offset"]), unquote_to_bytes(words["lock"])))

    async def write_on(self) -> None:
        await self._write(Finder(self.world, "on"), b"on", [[("lockstep-append-lock", b"on")]])

    # -- the rules --------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Every node has everything and knows the same locks; then the log is judged."""
        await until(lambda: self._active == 0)
        await until(lambda: self._last())
        await at_rest(self.world)
        leader = self.world.leader()
        assert leader is not None
        known = self._table(leader)
        for node in self.world.members():
            self._history.changed(node)
            if self._table(node) != known:
                self.world.violate("equal tables of locks", f"{node} and {leader}")
        partition = _partition(leader)
        assert partition is not None
        self._judge(self._history.batches.get(partition.local_id, []))

    async def _last(self) -> bool:
        finder = Finder(self.world, "last")
        try:
            await finder.ask(on_node(_open))
        except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
            return False
        return await self._write(finder, b"last", [[("lockstep-append-lock", b"last")]])

    @staticmethod
    def _table(node: Node) -> list[tuple[int, bool]]:
        table, partition = node.machines.tail[SECTION], _partition(node)
        assert isinstance(table, LockTable) and partition is not None
        return [
            table.partitions[partition.local_id].of(hash_of(TOPIC_ID, b"%d" % lock)) for lock in range(LOCKS)
        ]

    def _judge(self, batches: Sequence[Batch]) -> None:
        marks: dict[bytes, int] = {}
        raised_at: dict[int, set[bytes]] = {}
        values: dict[int, bytes] = {}
        for batch in batches:
            last = batch.next_offset - 1
            raised: set[bytes] = set()
            requests = lock_requests(batch.data, batch.header)
            for each in requests:
                assert each.hwm is not None or each.appends
                own = batch.base_offset + each.record
                if each.expected_offset not in (None, own):
                    self._broken(batch, f"expected at {each.expected_offset}, it is at {own}")
                for lock in (*each.writes, *each.reads):
                    mark = last if lock in raised else marks.get(lock, -1)
                    if mark > (each.hwm if each.hwm is not None else -1):
                        self._broken(batch, f"{lock!r} was raised by {mark}, its mark is {each.hwm}")
                raised.update(each.writes, each.appends)
            marks.update(dict.fromkeys(raised, last))
            raised_at[last] = raised
            values[batch.base_offset] = batch.data
        for offset, value in self._acknowledged.items():
            if value not in values.get(offset, b""):
                text = f"{value!r} was acknowledged at {offset}"
                self.world.violate("what is acknowledged is there", text)
        for offset, lock in self._claims:
            if lock not in raised_at.get(offset, set()):
                text = f"the batch that ends at {offset} was said to raise {lock!r}"
                self.world.violate("a refusal names who raised the lock", text)

    def _broken(self, batch: Batch, text: str) -> None:
        self.world.violate("no conditional append against its condition", f"{batch.base_offset}: {text}")
