"""The `metadata` workload: commands of group 0 into `MetadataImage`, and producer ids that nobody has twice.

The broker's own parts: `MetadataImage` is replayed, `ProducerIds` takes blocks of ids. `Topics` needs a whole
server (settings, other log groups), so `change` does on the node what it does with group 0: append commands,
wait for their commit, look at the image.

Some nodes are of an earlier Lockstep (`metadata_versions.py`), and are upgraded at one of their starts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, METADATA_TOPIC_ID
from lockstep.broker.metadata.metadata_image import (
    BROKER_CONFIGS,
    METADATA_SECTION,
    Command,
    MetadataImage,
    TopicEntry,
    TopicState,
    cluster_command,
    configs_command,
    create_command,
    delete_command,
    deleted_command,
    grow_command,
    grown_command,
    place_command,
    ready_command,
    topic_configs_command,
)
from lockstep.broker.metadata.quota_commands import quota_command
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions.producer_id_blocks import ProducerIds
from lockstep.protocol.records.record import iter_records
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NotLeader, StorageError
from tests.sim.checks.history import Entry, History, group_of
from tests.sim.faces import Check, Machines, Unanswered, Workload
from tests.sim.workloads.administering import delete_records, free, open_missing
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
from tests.sim.workloads.metadata_versions import OlderNodes, control_of, recorded_too_early

if TYPE_CHECKING:
    from tests.sim.node import Node
    from tests.sim.world import World

IDS_AT_ONCE: Final = 400
"""So many that a block of 1,000 lasts for two or three requests."""


class Commands(Check):
    """Acknowledged commands are in the history; ids are handed out once; leaders know what clients know."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._history.listeners.append(self._committed)
        self._known: dict[str, int] = {}
        """By a command's text: the index of its last entry."""
        self._ids: set[int] = set()
        self._floor = self._metadata_version = 0

    def _committed(self, entry: Entry) -> None:
        for batch in entry.batches:
            if self._history.topic_ids.get(batch.partition) == METADATA_TOPIC_ID:
                for record in iter_records(batch.data):
                    text = bytes(record.value or b"").decode()
                    self._known[text] = entry.frame.index
                    self._check_version(json.loads(text))

    def _check_version(self, command: Command) -> None:
        self._metadata_version, too_early = recorded_too_early(self._metadata_version, command)
        if too_early:
            self.world.violate("no command before its metadata version", f"command {command}")

    def acknowledged(self, command: Command) -> None:
        """A client has been told that a command is committed."""
        index = self._known.get(json.dumps(command))
        if index is None:
            self.world.violate("acknowledged, not committed", f"command {command}")
            return
        self._floor = max(self._floor, index)

    def handed_out(self, producer_id: int) -> None:
        """A client has got a producer id."""
        if producer_id in self._ids:
            self.world.violate("a producer id is given twice", f"{producer_id}")
        self._ids.add(producer_id)

    def told(self, node: Node) -> int:
        """A leader describes the cluster under its lease; returns the entry that the answer is from."""
        self._history.changed(node)
        applied = group_of(node).applied_index
        if applied < self._floor:
            text = f"{node} answers as of entry {applied}, a client knew of {self._floor}"
            self.world.violate("stale read under a lease", text)
        return applied

    def heard(self, index: int) -> None:
        self._floor = max(self._floor, index)


def records_of(node: Node) -> PartitionLog:
    """The metadata partition. Raises Elsewhere where it is not open yet."""
    for partition in group_of(node).partitions.values():
        if partition.topic_id == METADATA_TOPIC_ID:
            return partition
    raise Elsewhere(-1)


async def append(node: Node, commands: Sequence[Command]) -> None:
    """As `Topics._append`."""
    values = [json.dumps(command).encode() for command in commands]
    await group_of(node).append_values(records_of(node), values)


async def change(node: Node, command: Command) -> None:
    """As `Topics.record`: one command, committed and applied. Raises RequestError where a node is too old."""
    must_lead(node)
    try:
        await control_of(node, partial(append, node)).require([command])
        await append(node, [command])
    except NotLeader as error:
        raise InDoubt(str(error)) from None
    History.of(node.world).changed(node)


async def take_ids(node: Node) -> list[int]:
    """As broker/transactions/api/init_producer_id.py, for many clients at once."""
    must_lead(node)
    ids = node.memory.get("ids")
    if ids is None:
        image = node.machines.commit[METADATA_TOPIC_ID][1]
        assert isinstance(image, MetadataImage)

        ids = node.memory["ids"] = ProducerIds(partial(append, node), lambda: True, image)
    try:
        return [int(await ids.take()) for _ in range(IDS_AT_ONCE)]
    except NotLeader as error:
        raise InDoubt(str(error)) from None


def describe(node: Node, check: Commands) -> tuple[int, dict[bytes, str]]:
    """As broker/metadata/api/metadata.py asked of the leader: the topics there are."""
    must_lead_alone(node)
    image = node.machines.commit[METADATA_TOPIC_ID][1]
    assert isinstance(image, MetadataImage)
    topics = {topic_id: entry.state.value for topic_id, entry in image.topics.items()}
    return check.told(node), topics


class Metadata(Workload):
    """See the module."""

    name = "metadata"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.commands = Commands(world)
        self._topics: dict[bytes, str] = {}
        """Topics that clients have made, and what comes next for each."""
        self._older = OlderNodes(world)
        self._numbers: set[int] = set()
        self._is_placed = False
        """Whether group 0 has a record of its nodes."""
        self._active = 0
        self._count = 0

    def machines(self, node: Node) -> Machines:
        return Machines(commit={METADATA_TOPIC_ID: (METADATA_SECTION, self._older.image(node))})

    def checks(self) -> Sequence[Check]:
        return (self.commands,)

    async def client(self, number: int) -> None:
        """Make topics and end them, set configurations, take producer ids, look at it all."""
        random = self.world.random(f"client {number}")
        finder = Finder(self.world, f"leader for {number}")
        self._active += 1
        if number == 0:
            await self._open(finder)
        while self.world.working:
            await asyncio.sleep(random.expovariate(1000 / self.world.options.think_ms))
            kind = random.random()
            try:
                if kind < 0.6:
                    await self._change(finder, self._next_command(random.random()))
                elif kind < 0.7:
                    ids = await finder.ask(take_ids)
                    for each in ids:
                        self.commands.handed_out(each)
                elif kind < 0.9:
                    index, _ = await finder.ask(on_node(describe, self.commands))
                    self.commands.heard(index)
                elif number == 0:
                    await self._administer(finder, random.random())
            except RequestError:
                pass  # a node is too old for the command: nothing was appended
            except (Elsewhere, InDoubt, Unanswered, StorageError, OSError, ValueError):
                finder.lost()
        self._active -= 1

    async def _open(self, finder: Finder) -> None:
        found = await finder.insist(on_node(open_missing, METADATA_TOPIC_ID, 1))
        self._numbers.update((found or {}).values())
        placed = place_command({METADATA_GROUP: sorted(self.world.nodes)})
        await finder.insist(on_node(change, placed))
        self._is_placed = True

    async def _change(self, finder: Finder, command: Command) -> None:
        await finder.ask(on_node(change, command))
        self.commands.acknowledged(command)

    def _next_command(self, kind: float) -> Command:
        """A new topic, the next step of one, or a configuration. Each says something no other says."""
        self._count += 1
        count = self._count
        if kind < 0.05:
            return cluster_command(f"cluster-{count}")
        if 0.15 < kind < 0.25 and self._is_placed:
            return quota_command((("user", f"{count % 3}"),), "producer_byte_rate", float(count))
        if kind < 0.25:
            return configs_command(BROKER_CONFIGS, f"{count % 3}", {"log.retention.ms": f"{count}"})
        if kind < 0.5 or not self._topics:
            topic_id = count.to_bytes(16, "big")
            self._topics[topic_id] = "ready"
            return create_command(
                TopicEntry(f"topic-{count % 7}", topic_id, [1, 2, 1], {}, TopicState.CREATING)
            )
        topic_id = sorted(self._topics)[count % len(self._topics)]
        step = self._topics[topic_id]
        following = {"ready": "configs", "configs": "grow", "grow": "grown", "grown": "delete"}
        self._topics[topic_id] = following.get(step, "deleted")
        match step:
            case "ready":
                return ready_command(topic_id)
            case "configs":
                return topic_configs_command(topic_id, {"retention.ms": f"{count}"})
            case "grow":
                return grow_command(topic_id, [count % 3 + 1])
            case "grown":
                return grown_command(topic_id)
            case "delete":
                return delete_command(topic_id)
        del self._topics[topic_id]
        return deleted_command(topic_id)

    async def _administer(self, finder: Finder, kind: float) -> None:
        if kind < 0.3:
            for number in sorted(self._numbers):
                await finder.ask(on_node(delete_records, number, 1.0))
        else:
            for node in self.world.running():
                await self.world.ask(node, free)

    async def write_on(self) -> None:
        """A command."""
        finder = Finder(self.world, "leader for the last")
        await self._open(finder)
        await until(lambda: self._settled(finder))

    async def settle(self) -> None:
        """Another command is taken, a leader describes the cluster, every node has everything."""
        await until(lambda: self._active == 0)
        finder = Finder(self.world, "leader for the last")
        await self._open(finder)
        await until(lambda: self._settled(finder))
        await at_rest(self.world)

    async def _settled(self, finder: Finder) -> bool:
        try:
            await self._change(finder, self._next_command(0.1))
            index, _ = await finder.ask(on_node(describe, self.commands))
        except (Elsewhere, InDoubt, Unanswered, StorageError, OSError):
            return False
        self.commands.heard(index)
        return True
