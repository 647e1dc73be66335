"""Commands reach the leader of a group on whatever node, do only what is missing, and say why they cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from lockstep.broker.controller.partition_commands import Forget, PartitionCommands
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import NotLeader, StorageError
from tests.broker.fakes import forget_nothing

TOPIC = bytes(15) + b"\x07"


class Log:
    topic_id = TOPIC

    def __init__(self, number: int) -> None:
        self.local_id = number
        self.index = number - 100


class Group:
    """Opens partitions slowly, so that two who ask at once would both find them missing."""

    def __init__(self) -> None:
        self.is_leader = True
        self.logs: dict[int, Log] = {}
        self.asked: list[tuple[str, list[int]]] = []

    @property
    def partitions(self) -> dict[int, Log]:
        return {log.local_id: log for log in self.logs.values()}

    async def open_partitions(self, wanted: list[tuple[bytes, int]]) -> None:
        self.asked.append(("open", [index for _, index in wanted]))
        await asyncio.sleep(0)
        self.logs |= {index: Log(100 + index) for _, index in wanted}

    async def close_partitions(self, numbers: list[int]) -> None:
        self.asked.append(("close", sorted(numbers)))
        self.logs = {index: log for index, log in self.logs.items() if log.local_id not in numbers}

    def free_deleted_segments(self) -> None:
        self.asked.append(("free", []))


class Here:
    """A node's groups, as `MetadataCache` shows them."""

    def __init__(self, **groups: Group) -> None:
        self.groups = {int(name.removeprefix("g")): group for name, group in groups.items()}

    def open_partitions(self, topic_id: bytes, number: int) -> dict[int, Log]:
        assert topic_id == TOPIC
        return self.groups[number].logs


class Way:
    """A `PeerRpc` whose leader of everything is another node."""

    def __init__(self) -> None:
        self.handlers: dict[RequestKind, Callable[[int, bytes], Awaitable[bytes]]] = {}
        self.other: Way | None = None

    async def request_from_leader(self, group: int, kind: RequestKind, body: bytes, *seconds: float) -> bytes:
        assert self.other is not None and json.loads(body)["group"] == group
        return await self.other.handlers[kind](1, body)


def commands(here: Here, way: Way | None, forget: Forget = forget_nothing) -> PartitionCommands:
    return PartitionCommands(cast(MetadataCache, here), cast(PeerRpc | None, way), forget)


def asking(there: Way) -> PartitionCommands:
    """Of a node that has no part in any group."""
    way = Way()
    way.other = there
    return commands(Here(), way)


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def there(group: Group) -> Way:
    """The way to the node that leads group 2."""
    way = Way()

    async def forget(number: int, name: str) -> bool:
        if name == "busy":
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not yet")
        group.asked.append((name, [number]))
        return name == "many"

    commands(Here(g2=group), way, forget)
    return way


@pytest.mark.parametrize("where", ["here", "elsewhere"])
async def test_only_what_is_missing_is_done(group: Group, there: Way, where: str) -> None:
    asked = asking(there) if where == "elsewhere" else commands(Here(g2=group), None)
    await asyncio.gather(asked.open(2, TOPIC, [0, 1]), asked.open(2, TOPIC, [0, 1, 2]))
    await asked.open(2, TOPIC, [1])
    await asked.close(2, TOPIC, 1)
    await asked.close(2, TOPIC, 1)
    assert group.asked == [("open", [0, 1]), ("open", [2]), ("close", [101, 102]), ("free", [])]
    assert list(group.logs) == [0]


async def test_a_late_command_of_a_deposed_controller_is_not_done(group: Group, there: Way) -> None:
    deposed, leads = asking(there), asking(there)
    deposed.term, leads.term = 4, 5
    await deposed.open(2, TOPIC, [0])
    await leads.open(2, TOPIC, [1])
    for late in (deposed.open(2, TOPIC, [2]), deposed.close(2, TOPIC), deposed.end(2, TOPIC, [0])):
        with pytest.raises(NotLeader, match="of a controller that was deposed"):
            await late
    assert group.asked == [("open", [0]), ("open", [1])]
    await leads.end(2, TOPIC, [0, 3])
    assert list(group.logs) == [1]


async def test_offsets_are_forgotten_by_the_leader(group: Group, there: Way) -> None:
    assert not await asking(there).forget(2, "gone")
    assert await asking(there).forget(2, "many")
    assert group.asked == [("gone", [2]), ("many", [2])]
    with pytest.raises(NotLeader, match="not yet"):
        await asking(there).forget(2, "busy")


async def test_a_node_that_does_not_lead_reports_that(group: Group, there: Way) -> None:
    group.is_leader = False
    body = json.dumps({"group": 2, "do": "close", "topic": TOPIC.hex(), "first": 0}).encode()
    with pytest.raises(NotLeaderHere):
        await there.handlers[RequestKind.GROUP](1, body)
    assert group.asked == []


@pytest.mark.parametrize("command", [{"do": "split"}, {"do": "open", "topic": 7, "indexes": []}, {}])
async def test_an_unknown_command_is_not_sent_again(there: Way, command: dict[str, Any]) -> None:
    with pytest.raises(PeerError, match="malformed") as refused:
        await there.handlers[RequestKind.GROUP](1, json.dumps({"group": 2, **command}).encode())
    assert not isinstance(refused.value, NotLeaderHere)


async def test_a_refusal_elsewhere_is_a_failure_of_the_store() -> None:
    there = Way()

    async def refuse(node_id: int, body: bytes) -> bytes:
        raise PeerError("no room")

    there.handlers[RequestKind.GROUP] = refuse
    with pytest.raises(StorageError, match="no room"):
        await asking(there).open(2, TOPIC, [0])


async def test_a_node_alone_has_all_groups_there_are() -> None:
    with pytest.raises(StorageError, match="there is no log group 9"):
        await commands(Here(), None).close(9, TOPIC)
