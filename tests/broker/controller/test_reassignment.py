"""Partitions that clients move: what is refused, what is told on the way, and where it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.broker.controller.reassignment import MAX_NAMED, note_arrivals
from lockstep.broker.metadata.metadata_image import finish_reassignment_command
from lockstep.kafka_client import cluster as admin
from lockstep.kafka_client.client import Client as AdminClient
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from lockstep.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from lockstep.storage.log_group import LogGroup
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.controller.test_cluster_admin import hosted, placed, read, well, write
from tests.broker.wire import Client
from tests.support.cases import each_case

REFUSED = ErrorCode.INVALID_REPLICA_ASSIGNMENT
Where = Sequence[int] | None


async def alter(
    client: Client, *wanted: tuple[str, int, Where], may_resize: bool = True
) -> list[tuple[int, str | None]]:
    """The outcome of each."""
    request = AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_resize,
        topics=[
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(
                        partition_index=index, replicas=None if where is None else list(where)
                    )
                ],
            )
            for name, index, where in wanted
        ],
    )
    answer = await client.call(request, 1)
    assert answer.error_code == 0, answer.error_message
    return [(part.error_code, part.error_message) for each in answer.responses for part in each.partitions]


async def under_way(
    client: Client, topics: Any = None
) -> list[tuple[str, int, set[int], list[int], list[int]]]:
    """What is listed."""
    answer = await client.call(ListPartitionReassignmentsRequest(topics=topics), 0)
    assert answer.error_code == 0
    return [
        (each.name, part.partition_index, set(part.replicas), part.adding_replicas, part.removing_replicas)
        for each in answer.topics
        for part in each.partitions
    ]


async def told(client: Client, name: str, index: int) -> Any:
    """A partition as Metadata tells it."""
    answer = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    return answer.topics[0].partitions[index]


async def four(start_cluster: StartCluster, **texts: str) -> BrokerCluster:
    """Nodes 1 to 3 hold what there is: topic t with three partitions in two groups; node 4 is registered."""
    cluster = await start_cluster(3, **{"lockstep_data_groups": "2", **texts})
    await cluster.settled()
    await write(cluster, [b"one", b"two"])
    await cluster.start(4)
    await cluster.settled()
    await well(cluster)
    return cluster


def group_of(cluster: BrokerCluster, index: int) -> int:
    """The log group of a partition of t."""
    partition = cluster.controller.assembly.cluster.partition("t", index)
    assert partition is not None
    return partition.group.group_id


async def test_a_group_moves_and_its_partitions_report_that(start_cluster: StartCluster) -> None:
    cluster = await four(start_cluster)
    first, other = group_of(cluster, 0), group_of(cluster, 1)
    assert group_of(cluster, 2) == first
    before = cluster.controller.assembly.cluster.nodes_of(first)
    client = await cluster.client(2)
    gone, *stay = before
    target = [4, *stay]
    assert await alter(client, ("t", 0, target), ("t", 2, [*stay, 4])) == [(0, None)] * 2
    listed = await under_way(client)
    assert listed == [("t", index, {1, 2, 3, 4}, [4], [gone]) for index in (0, 2)]
    asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[2, 9]) for name in ("t", "no")]
    assert await under_way(client, asked) == listed[1:]
    part = await told(client, "t", 0)
    assert part.replica_nodes == [*target, gone]
    assert 4 not in part.isr_nodes
    assert (await told(client, "t", 1)).replica_nodes == list(
        cluster.controller.assembly.cluster.nodes_of(other)
    )

    async def is_there() -> bool:
        return await under_way(client) == []

    await cluster.until(is_there, "end of the move")
    part = await told(client, "t", 2)
    assert (part.replica_nodes, sorted(part.isr_nodes)) == (target, sorted(target))
    await cluster.until(lambda: cluster.leader_of(first) == 4, "preferred leader")
    await cluster.until(lambda: hosted(cluster) == placed(cluster), "end of the former copy")
    await cluster.stop(gone)
    assert await read(cluster) == [b"one", b"two"] * 3


async def test_what_breaks_the_rule_is_refused_and_changes_nothing(start_cluster: StartCluster) -> None:
    cluster = await four(start_cluster)
    first, other = group_of(cluster, 0), group_of(cluster, 1)
    now = list(cluster.controller.assembly.cluster.nodes_of(first))
    target = [4, *now[1:]]
    client = await cluster.client(3)
    ((error, text),) = await alter(client, ("t", 0, target))
    assert error == REFUSED
    assert text is not None and f"Name the other partitions of log group {first}, too: t-2." in text
    outcomes = await alter(client, ("t", 0, target), ("t", 2, now))
    assert [error for error, _ in outcomes] == [REFUSED, 0]
    assert "sent to different brokers" in str(outcomes[0])
    outcomes = await alter(client, ("t", 0, target), ("t", 2, [1, 2, 5]), ("t", 1, [1, 4]), ("t", 1, [4]))
    size = ErrorCode.INVALID_REPLICATION_FACTOR
    assert [error for error, _ in outcomes] == [REFUSED, REFUSED, size, size]
    assert "cannot become 2: with 4 brokers it is 3" in str(outcomes[2])
    outcomes = await alter(client, ("t", 0, None), ("t", 0, [*now, 4]), may_resize=False)
    assert [error for error, _ in outcomes] == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, size]
    turned = now[1:] + now[:1]
    assert [error for error, _ in await alter(client, ("t", 0, turned))] == [0]
    image = cluster.controller.assembly.cluster.image
    assert (list(image.placement[first]), image.moving) == (now, {})
    assert [error for error, _ in await alter(client, ("t", 0, turned), ("t", 2, now))] == [0, 0]
    assert (list(image.placement[first]), image.moving) == (turned, {})
    assert image.placement[other] == tuple(cluster.controller.assembly.cluster.nodes_of(other))


async def test_a_move_to_a_node_that_is_down_waits_and_can_be_cancelled(start_cluster: StartCluster) -> None:
    cluster = await four(start_cluster, lockstep_data_groups="1")
    before = cluster.controller.assembly.cluster.nodes_of(1)
    client = await cluster.client(1)
    await cluster.stop(4)
    named = [("t", index, [4, *before[1:]]) for index in range(3)]
    assert await alter(client, *named) == [(0, None)] * 3
    assert len(await under_way(client)) == 3
    # The controller changes: the next one goes on.
    heir = next(each for each in (2, 3) if cluster.leader_of(0) != each)
    async with AdminClient(cluster.bootstrap_servers) as asking:
        await admin.transfer(asking, 0, heir, 20)
    assert [each[3:] for each in await under_way(client)] == [([4], [before[0]])] * 3
    ((error, text),) = await alter(client, ("t", 0, None))
    assert (error, "t-1, t-2" in str(text)) == (REFUSED, True)
    assert await alter(client, *(("t", index, None) for index in range(3))) == [(0, None)] * 3
    assert await under_way(client) == []
    assert (await told(client, "t", 0)).replica_nodes == list(before)
    outcomes = await alter(client, ("t", 0, None))
    assert outcomes[0][0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_a_move_is_changed_on_its_way_and_sent_back(start_cluster: StartCluster) -> None:
    cluster = await four(start_cluster, lockstep_data_groups="1")
    before = list(cluster.controller.assembly.cluster.nodes_of(1))
    client = await cluster.client(1)
    await cluster.stop(4)

    async def send(where: Where) -> None:
        assert await alter(client, *(("t", index, where) for index in range(3))) == [(0, None)] * 3

    await send([4, *before[1:]])
    await send([before[0], 4, before[2]])
    assert [each[3:] for each in await under_way(client)] == [([4], [before[1]])] * 3
    await send(before[::-1])
    assert await under_way(client) == []
    assert (await told(client, "t", 0)).replica_nodes == before[::-1]


async def test_without_a_controller_it_is_retriable(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    await write(cluster, [b"one"], 1)
    await cluster.stop(2, 3)
    client = await cluster.client(1)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="t", partitions=[ReassignablePartition(replicas=[1, 2, 3])])]
    )

    async def is_refused() -> bool:  # a lease lasts for a moment
        answer = await client.call(request, 1)
        return bool(answer.error_code == ErrorCode.NOT_CONTROLLER and answer.responses == [])

    await cluster.until(is_refused, "refusal")


async def test_a_refusal_lists_no_end_of_partitions(start_cluster: StartCluster) -> None:
    cluster = await four(start_cluster, lockstep_data_groups="1")
    client = await cluster.client(1)
    await client.create("many", partitions=MAX_NAMED + 5)
    outcomes = await alter(client, ("many", 0, [2, 3, 4]), ("many", 1, [2, 3, 4]))
    assert "many-102" not in str(outcomes) and " and 6 more" in str(outcomes[0])
    assert [len(text or "") < limit for (_, text), limit in zip(outcomes, (3000, 200), strict=True)] == [
        True
    ] * 2


@each_case(("behind", "arrived"), [((), [1]), ((2, 3), [1]), ((4,), [])])
async def test_a_move_ends_when_the_new_replica_is_in_sync(
    behind: tuple[int, ...], arrived: list[int]
) -> None:
    """Those that were there before may lag at any time."""
    voters = [{"node": each} for each in (2, 3, 4)]

    async def reports(numbers: Sequence[int]) -> dict[int, Any]:
        return {number: {"changing": False, "learners": [], "voters": voters} for number in numbers}

    recorded: list[Any] = []

    async def record(commands: list[Any]) -> None:
        recorded.extend(commands)

    cluster: Any = SimpleNamespace(
        image=SimpleNamespace(moving={1: (1, 2, 3)}), nodes_of={1: (4, 2, 3)}.__getitem__
    )
    nodes: Any = SimpleNamespace(out_of_sync=lambda number: behind)
    topics: Any = SimpleNamespace(record=record)
    asked: Any = SimpleNamespace(of_all=reports)
    await note_arrivals(cluster, nodes, topics, asked)
    assert recorded == [finish_reassignment_command(arrived)] * len(arrived)


@pytest.mark.parametrize("since", ["nothing", "placed here again", "a member again"])
async def test_what_came_back_while_others_were_given_up_is_kept(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    cluster = await start_cluster(3, auto_leader_rebalance_enable="false")
    await cluster.settled()
    led = {number: cluster.leader_of(number) for number in (1, 2, 3)}
    here = next(each for each in (1, 2, 3) if list(led.values()).count(each) <= 1)
    first, other = [number for number, leader in led.items() if leader != here][:2]
    node = cluster.brokers[here].assembly.node
    assert node is not None
    rested = asyncio.Event()

    async def rest() -> None:
        rested.set()

    monkeypatch.setattr(node, "_follow", rest)  # what is done here is done by nobody else
    node._wake.set()
    await rested.wait()
    image = cluster.brokers[here].assembly.cluster.image
    before = image.placement
    away = [each for each in (1, 2, 3) if each != here]
    monkeypatch.setattr(image, "placement", {**before, first: away, other: away})
    given_up: list[int] = []
    members: set[int] = set()

    async def give_up(number: int, *_: object) -> None:
        given_up.append(number)
        if since == "placed here again":
            monkeypatch.setattr(image, "placement", {**before, first: away})
        elif since == "a member again":
            members.add(other)

    async def is_out(group: LogGroup) -> bool:
        return group.group_id not in members

    monkeypatch.setattr(node._local_groups, "remove", give_up)
    monkeypatch.setattr(node, "_is_removed_from", is_out)
    await node._delete_former_groups()
    assert given_up == ([first, other] if since == "nothing" else [first])
