"""The `groups` workload: offsets of consumer groups, committed, fetched, deleted, expired.

The broker's own parts: `GroupsState` is replayed, `GroupStore` appends to it, the rules of
`groups/offset_expiration.py` say what is old. Its coordinator needs clients' heartbeats and a server around
it, so `_NoMembers` stands where it would: groups that only commit. Each client owns some keys, so that what
it reads is known; an old request that arrives late may win all the same, as in Kafka, hence the history
decides.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from zlib import crc32

from lockstep.broker.groups.group_coordinator import GroupCoordinator
from lockstep.broker.groups.group_records import (
    CommittedOffset,
    Record,
    committed_offset,
    offset_key,
    offset_record,
)
from lockstep.broker.groups.group_state import SECTION, GroupsState
from lockstep.broker.groups.group_store import GroupStore
from lockstep.broker.groups.offset_expiration import expired
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS_TOPIC_ID
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.record import key_values
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import StorageError
from tests.sim.checks.history import Batch, Entry, History, group_of
from tests.sim.faces import Check, Machines, Unanswered, Workload
from tests.sim.workloads.administering import delete_records, free, open_missing
from tests.sim.workloads.appends import PRODUCER_EXPIRATION_MS, PRODUCERS_SECTION
from tests.sim.workloads.asking import (
    Elsewhere,
    Finder,
    InDoubt,
    at_rest,
    must_lead,
    must_lead_alone,
    on_node,
    until,
)

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

OFFSETS_PARTITIONS: Final = 2
GROUPS_PER_CLIENT: Final = 2
PLACES: Final = (("orders", 0), ("orders", 1), ("payments", 0))
TOPIC_ID: Final = bytes(range(1, 17))
RETENTION_MS: Final = 20_000
"""So short that offsets expire within a run. Clock jumps make some expire at once, as they do in Kafka."""

Key = tuple[str, str, int]


class Offsets(Check):
    """Acknowledged commits are in the history; what is read under a lease is never older than those."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._history.listeners.append(self._committed)
        self.values: dict[Key, list[tuple[int, CommittedOffset | None]]] = {}
        """By key: (index of the entry, value) of every commit and tombstone of the history."""
        self._places: dict[bytes, int] = {}
        """By a commit's own mark (its metadata): index of its entry."""
        self.floor: dict[Key, int] = {}
        """By key: the newest entry that a client knows of."""
        self._latest_ms = 0
        """The latest time that a store's clock has told or a committed frame has."""

    def _committed(self, entry: Entry) -> None:
        self._latest_ms = max(self._latest_ms, entry.frame.time_ms)
        for batch in entry.batches:
            if self._history.topic_ids.get(batch.partition) != CONSUMER_OFFSETS_TOPIC_ID:
                continue
            self._stamped(batch, entry)
            for key, value in key_values(batch.data):
                assert key is not None
                read = offset_key(key)
                told = committed_offset(value) if value is not None else None
                place = read.group, read.topic, read.partition
                if told is None:
                    self._may_go(place, batch.header.max_timestamp)
                else:
                    self._places[told.metadata.encode()] = entry.frame.index
                self.values.setdefault(place, []).append((entry.frame.index, told))

    def clock_of(self, node: Node) -> Callable[[], int]:
        """A node's wall clock for its store, remembering what it has told."""

        def clock_ms() -> int:
            now_ms = node.clock_ms()
            self._latest_ms = max(self._latest_ms, now_ms)
            return now_ms

        return clock_ms

    def _stamped(self, batch: Batch, entry: Entry) -> None:
        """The time in a batch is that of its making: no clock and no frame before it may lag behind."""
        if batch.header.max_timestamp > self._latest_ms:
            text = f"entry {entry.frame.index}: {batch.header.max_timestamp}, clocks said {self._latest_ms}"
            self.world.violate("a time no clock has told", text)

    def _may_go(self, place: Key, now_ms: int) -> None:
        """A tombstone of a group that nobody deletes from is expiry's: only what is old may go.

        Old when it was decided, which is the time in the tombstone's own batch, made in the same turn. The
        frame's time may lie seconds before: it is that of the frame's first batch, and while a flush stalls
        the frame stays open.
        """
        known = self.values.get(place)
        last = known[-1][1] if known else None
        if last is None or place[0].startswith("deletes"):
            return
        if last.commit_time_ms > now_ms - RETENTION_MS:
            text = f"{place}: committed at {last.commit_time_ms}, gone at {now_ms}"
            self.world.violate("a young offset expires", text)

    def acknowledged(self, place: Key, mark: str) -> None:
        """A client has been told that its commit is stored."""
        index = self._places.get(mark.encode())
        if index is None:
            self.world.violate("acknowledged, not committed", f"offset commit {mark} of {place}")
            return
        self.heard(place, index)

    def heard(self, place: Key, index: int) -> None:
        self.floor[place] = max(self.floor.get(place, 0), index)

    def read(self, node: Node, place: Key, found: CommittedOffset | None) -> int:
        """A leader answers under its lease; returns the index of the entry that the answer is from."""
        self._history.changed(node)
        values = self.values.get(place, [])
        applied = group_of(node).applied_index
        at = bisect_left(values, applied + 1, key=lambda pair: pair[0])
        index, expected = values[at - 1] if at else (0, None)
        if found != expected:
            self.world.violate(
                "machines", f"{node}, offset of {place}: {found}, the history gives {expected}"
            )
        if index < self.floor.get(place, 0):
            text = f"{node}, offset of {place}: from entry {index}, a client knew of {self.floor[place]}"
            self.world.violate("stale read under a lease", text)
        return index


class _NoMembers(GroupCoordinator):
    """A coordinator of groups without members: all that expiry asks of one."""

    def __init__(self) -> None:
        return

    def empty_since_ms(self, group_id: str) -> int | None:
        return None

    def is_empty(self, group_id: str) -> bool:
        return True


NO_MEMBERS = _NoMembers()


async def _store_records(node: Node, group_id: str, records: list[Record]) -> None:
    """As broker/groups/api/offset_commit.py: through the store, answered when the state has them."""
    must_lead(node)
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    history = History.of(node.world)

    def stored(error: ErrorCode) -> None:
        if not done.done():
            history.changed(node)
            done.set_result(error)

    before = group_of(node).log.last_index
    node.memory["store"].append(group_id, records, stored)
    error = await done
    if error is not ErrorCode.NONE:
        raise InDoubt(f"{error.name} after entry {before}")


async def commit_offset(node: Node, place: Key, offset: int, mark: str) -> None:
    """Commit one offset of one group."""
    must_lead(node)
    group_id, topic, index = place
    store: GroupStore = node.memory["store"]
    value = CommittedOffset(offset, 0, mark, store.time_ms(), topic_id=TOPIC_ID)
    await _store_records(node, group_id, [offset_record(group_id, topic, index, value)])
    if (topic, index) not in store.state.offsets(group_id):
        return  # deleted or expired since: the history knows


async def delete_offset(node: Node, place: Key) -> None:
    """As broker/groups/api/offset_delete.py."""
    await _store_records(node, place[0], [offset_record(*place, None)])


def fetch_offset(node: Node, check: Offsets, place: Key) -> int:
    """As broker/groups/api/offset_fetch.py: what is committed, from the leader's state, under its lease."""
    must_lead_alone(node)
    group_id, topic, index = place
    found = node.memory["store"].state.offsets(group_id).get((topic, index))
    return check.read(node, place, found)


def expire(node: Node) -> int:
    """As `Expiration._expire` over all groups."""
    must_lead(node)
    store: GroupStore = node.memory["store"]
    gone = 0
    for group_id in sorted(store.state.group_ids()):
        if store.is_under_way(group_id):
            continue
        places = expired(store, NO_MEMBERS, group_id, store.clock_ms(), RETENTION_MS)
        if places:
            records = [offset_record(group_id, topic, index, None) for topic, index in places]
            store.append(group_id, records, lambda error: None)
            gone += len(places)
    return gone


class Groups(Workload):
    """See the module."""

    name = "groups"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.offsets = Offsets(world)
        self._numbers: set[int] = set()
        self._active = 0
        self._count = 0

    def machines(self, node: Node) -> Machines:
        return Machines(
            commit={CONSUMER_OFFSETS_TOPIC_ID: (SECTION, GroupsState())},
            tail={PRODUCERS_SECTION: ProducerState(PRODUCER_EXPIRATION_MS)},
        )

    def opened(self, node: Node) -> None:
        group = group_of(node)
        state = node.machines.commit[CONSUMER_OFFSETS_TOPIC_ID][1]
        assert isinstance(state, GroupsState)

        def partition_of(group_id: str) -> PartitionLog | None:
            index = crc32(group_id.encode()) % OFFSETS_PARTITIONS
            for partition in group.partitions.values():
                if (partition.topic_id, partition.index) == (CONSUMER_OFFSETS_TOPIC_ID, index):
                    return partition
            return None

        node.memory["store"] = GroupStore(group, state, partition_of, self.offsets.clock_of(node))

    def checks(self) -> Sequence[Check]:
        return (self.offsets,)

    async def client(self, number: int) -> None:
        """Commit, fetch, delete; the first client also opens the partitions and lets offsets expire."""
        random = self.world.random(f"client {number}")
        finder = Finder(self.world, f"leader for {number}")
        self._active += 1
        if number == 0:
            await self._open(finder)
        while self.world.working:
            await asyncio.sleep(random.expovariate(1000 / self.world.options.think_ms))
            kind = random.random()
            name = "deletes" if random.random() < 0.3 else "commits"
            place = (f"{name}-{number}-{random.randrange(GROUPS_PER_CLIENT)}", *random.choice(PLACES))
            try:
                if kind < 0.55:
                    await self._commit(finder, place)
                elif kind < 0.85:
                    index = await finder.ask(on_node(fetch_offset, self.offsets, place))
                    self.offsets.heard(place, index)
                elif kind < 0.92 and name == "deletes":
                    await finder.ask(on_node(delete_offset, place))
                elif number == 0:
                    await self._administer(finder, random.random())
            except (Elsewhere, InDoubt, Unanswered, StorageError, OSError, ValueError):
                finder.lost()
        self._active -= 1

    async def _open(self, finder: Finder) -> None:
        found = await finder.insist(on_node(open_missing, CONSUMER_OFFSETS_TOPIC_ID, OFFSETS_PARTITIONS))
        self._numbers.update((found or {}).values())

    async def _commit(self, finder: Finder, place: Key) -> None:
        self._count += 1
        mark = f"m{self._count}"
        await finder.ask(on_node(commit_offset, place, self._count, mark))
        self.offsets.acknowledged(place, mark)

    async def _administer(self, finder: Finder, kind: float) -> None:
        if kind < 0.4 or not self._numbers:
            await finder.ask(expire)
        elif kind < 0.6:
            for number in sorted(self._numbers):
                await finder.ask(on_node(delete_records, number, 1.0))
        else:
            for node in self.world.running():
                await self.world.ask(node, free)

    async def write_on(self) -> None:
        """A commit."""
        finder = Finder(self.world, "leader for the last")
        await self._open(finder)
        await until(partial(self._settled, finder, ("commits-last-0", "orders", 0)))

    async def settle(self) -> None:
        """A commit of every client's is taken and read back; every node has everything."""
        await until(lambda: self._active == 0)
        finder = Finder(self.world, "leader for the last")
        await self._open(finder)
        for number in range(3):
            place = (f"commits-last-{number}", "orders", 0)
            await until(partial(self._settled, finder, place))
        await at_rest(self.world)

    async def _settled(self, finder: Finder, place: Key) -> bool:
        try:
            await self._commit(finder, place)
            return bool(await finder.ask(on_node(fetch_offset, self.offsets, place)))
        except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
            return False
