"""Commits and fetches of offsets as tests write them: {(topic, partition): offset}."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lockstep.broker.groups.group_records import CommittedOffset, offset_record
from lockstep.broker.groups.group_store import OffsetTransaction
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest
from lockstep.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from lockstep.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.broker.wire import Client

TopicIds = dict[str, bytes]
TopicPartition = tuple[str, int]


async def ready(client: Client) -> TopicIds:
    """A topic `t` with three partitions, and a coordinator."""
    await client.call(FindCoordinatorRequest(key="g", key_type=0), 1)
    return {"t": await client.create("t", 3)}


def topic_of(
    version: int, name: str, ids: TopicIds, partitions: list[OffsetCommitRequestPartition]
) -> OffsetCommitRequestTopic:
    if version >= 10:
        return OffsetCommitRequestTopic(topic_id=ids[name], partitions=partitions)
    return OffsetCommitRequestTopic(name=name, partitions=partitions)


def request(
    version: int, offsets: Mapping[TopicPartition, int], ids: TopicIds, group_id: str = "g"
) -> OffsetCommitRequest:
    """A commit from outside the group."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (name, index), offset in offsets.items():
        by_topic.setdefault(name, []).append(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=""
            )
        )
    topics = [topic_of(version, name, ids, partitions) for name, partitions in by_topic.items()]
    return OffsetCommitRequest(group_id=group_id, topics=topics)


async def commit(
    client: Client, version: int, offsets: Mapping[TopicPartition, int], ids: TopicIds, group_id: str = "g"
) -> dict[TopicPartition, int]:
    """The error of each partition."""
    response = await client.call(request(version, offsets, ids, group_id), version)
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        (names[topic.topic_id] if version >= 10 else topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }


async def committed(client: Client, group_id: str = "g") -> dict[TopicPartition, int]:
    """All offsets of a group."""
    found = await fetch(client, group_id, None)
    return {place: offset for place, (offset, _, _) in found.items()}


async def commit_within(
    broker: Broker, producer_id: int, offsets: Mapping[TopicPartition, int], group_id: str = "g"
) -> None:
    """Commit within a transaction whose coordinator knows of it."""
    store = broker.assembly.consumer_groups.store(group_id)
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    records = []
    for (name, index), offset in offsets.items():
        topic = broker.assembly.cluster.topic(name)
        topic_id = bytes(16) if topic is None else topic.topic_id
        committed = CommittedOffset(offset, commit_time_ms=store.time_ms(), topic_id=topic_id)
        records.append(offset_record(group_id, name, index, committed))
    store.append_within(OffsetTransaction(producer_id, 0, verified=True), group_id, records, done.set_result)
    assert await done is ErrorCode.NONE


async def end(broker: Broker, producer_id: int, *, commits: bool = True, group_id: str = "g") -> None:
    """The transaction ends in the group's partition."""
    store = broker.assembly.consumer_groups.store(group_id)
    partition = store.partition(group_id)
    assert partition is not None
    appender = broker.assembly.appenders[store.group.group_id]
    appender.end_transactions([partition], TxnMarkerEntry(producer_id, 0, 0, commits, 0))
    await store.group.committed()


async def fetch(
    client: Client, group_id: str, wanted: Mapping[str, list[int]] | None
) -> dict[TopicPartition, tuple[int, int, str]]:
    """(offset, leader epoch, metadata) of each partition; there must be no error."""
    topics = None
    if wanted is not None:
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in wanted.items()
        ]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)])
    (group,) = (await client.call(asked, 8)).groups
    assert (group.group_id, group.error_code) == (group_id, 0)
    found = {}
    for topic in group.topics:
        for each in topic.partitions:
            assert each.error_code == 0
            found[topic.name, each.partition_index] = (
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata,
            )
    return found
