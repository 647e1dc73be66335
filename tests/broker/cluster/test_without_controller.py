"""Nobody leads group 0: what only a controller can say is refused so that clients ask again."""

from __future__ import annotations

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from lockstep.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.conftest import StartCluster


async def test_topics_are_neither_there_nor_unknown(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(3, lockstep_data_groups="1")
    await cluster.settled()
    client = await cluster.client(1)
    await client.create("t")
    await cluster.stop(2, 3)
    names = ("t", "no")

    async def answers() -> list[int]:
        deleted = await client.call(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=each) for each in names]), 6
        )
        grown = await client.call(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=each, count=1, assignments=None) for each in names]
            ),
            3,
        )
        made = await client.call(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=each, num_partitions=1, replication_factor=1) for each in names],
                validate_only=True,
            ),
            7,
        )
        return [each.error_code for each in (*deleted.responses, *grown.results, *made.topics)]

    async def is_refused() -> bool:  # a lease lasts for a moment
        return await answers() == [ErrorCode.NOT_CONTROLLER] * 6

    await cluster.until(is_refused, "refusal that passes", 40)
