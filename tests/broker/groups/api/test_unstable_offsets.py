"""What is asked of a group while a transaction has committed offsets of it and has not ended. As in Kafka."""

from __future__ import annotations

import pytest

from lockstep.broker.groups.offset_expiration import OffsetExpiration, expired
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.delete_groups import DeleteGroupsRequest
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest
from lockstep.protocol.messages.describe_groups import DescribeGroupsRequest
from lockstep.protocol.messages.list_groups import ListGroupsRequest
from lockstep.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from lockstep.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.broker.conftest import StartBroker
from tests.broker.groups.api.offsets import TopicIds, commit, commit_within, committed, end, ready
from tests.broker.wire import Client

E = ErrorCode
UNSTABLE = (E.UNSTABLE_OFFSET_COMMIT, -1, "")
PENDING = 70


@pytest.fixture
async def ids(client: Client) -> TopicIds:
    return await ready(client)


async def stable(
    client: Client, indexes: list[int] | None, *, must_be: bool = True
) -> dict[int, tuple[int, int, str]]:
    """(error, offset, metadata) of partitions of `t`, or (None) of all that are told."""
    topics = None if indexes is None else [OffsetFetchRequestTopics(name="t", partition_indexes=indexes)]
    groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
    (answer,) = (await client.call(OffsetFetchRequest(groups=groups, require_stable=must_be), 8)).groups
    assert answer.error_code == 0
    return {
        each.partition_index: (each.error_code, each.committed_offset, each.metadata)
        for topic in answer.topics
        for each in topic.partitions
    }


async def test_a_request_for_stable_offsets_is_to_be_retried(
    broker: Broker, client: Client, ids: TopicIds, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(client, 9, {("t", 0): 5, ("t", 1): 6}, ids)
    await commit_within(broker, PENDING, {("t", 0): 7, ("t", 2): 8})
    nothing = (0, -1, "")
    assert await stable(client, [0, 1, 2]) == {0: UNSTABLE, 1: (0, 6, ""), 2: UNSTABLE}
    store = broker.assembly.consumer_groups.store("g")
    with monkeypatch.context() as patched:  # a commit under way makes no difference
        patched.setattr(type(store), "is_under_way", lambda self, group_id: True)
        assert await stable(client, [0, 2], must_be=False) == {0: (0, 5, ""), 2: nothing}
        assert await stable(client, [0]) == {0: UNSTABLE}
    assert await stable(client, [0, 1, 2], must_be=False) == {0: (0, 5, ""), 1: (0, 6, ""), 2: nothing}
    assert await stable(client, None) == {0: UNSTABLE, 1: (0, 6, "")}, (
        "what has never been committed is not told"
    )
    assert await stable(client, None, must_be=False) == {0: (0, 5, ""), 1: (0, 6, "")}
    old = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await client.call(OffsetFetchRequest(group_id="g", topics=[old], require_stable=True), 7)
    (told,) = answer.topics[0].partitions
    assert (told.error_code, told.committed_offset, told.committed_leader_epoch) == (*UNSTABLE[:2], -1)
    await end(broker, PENDING)
    assert await stable(client, [0, 1, 2]) == {0: (0, 7, ""), 1: (0, 6, ""), 2: (0, 8, "")}


async def test_a_plain_commit_does_not_make_it_stable(broker: Broker, client: Client, ids: TopicIds) -> None:
    await commit_within(broker, PENDING, {("t", 0): 7})
    await commit(client, 9, {("t", 0): 3}, ids)
    assert await stable(client, [0]) == {0: UNSTABLE}
    await end(broker, PENDING)
    assert await stable(client, [0]) == {0: (0, 3, "")}


async def test_a_group_with_nothing_else_is_there_while_the_transaction_is(
    broker: Broker, client: Client, ids: TopicIds
) -> None:
    await commit_within(broker, PENDING, {("t", 0): 7})
    (described,) = (await client.call(DescribeGroupsRequest(groups=["g"]), 5)).groups
    assert described.group_state == "Empty"
    assert [each.group_id for each in (await client.call(ListGroupsRequest(), 4)).groups] == ["g"]
    await end(broker, PENDING, commits=False)
    assert await committed(client) == {} and "g" not in broker.assembly.consumer_groups.store("g").state


async def test_deleting_offsets_and_groups_takes_along_what_is_pending(
    broker: Broker, client: Client, ids: TopicIds
) -> None:
    await commit_within(broker, PENDING, {("t", 0): 7, ("t", 1): 8, ("t", 2): 9})
    await commit(client, 9, {("t", 1): 3}, ids)
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[partition])
    answer = await client.call(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert await stable(client, [0, 1, 2]) == {0: (0, -1, ""), 1: UNSTABLE, 2: UNSTABLE}
    (result,) = (await client.call(DeleteGroupsRequest(groups_names=["g"]), 2)).results
    assert result.error_code == 0 and "g" not in broker.assembly.consumer_groups.store("g").state
    await commit_within(broker, PENDING, {("t", 2): 10})
    await end(broker, PENDING)
    assert await committed(client) == {("t", 2): 10}


async def test_nothing_expires_that_a_transaction_may_change(broker: Broker, client: Client) -> None:
    await ready(client)
    store, coordinator = broker.assembly.consumer_groups.of("g")
    await commit_within(broker, PENDING, {("t", 0): 7, ("t", 1): 8})
    await end(broker, PENDING)
    await commit_within(broker, PENDING, {("t", 1): 9})
    later_ms = store.time_ms() + 1_000
    assert expired(store, coordinator, "g", later_ms, 500) == [("t", 0)]
    await commit_within(broker, PENDING, {("t", 2): 9}, "only")
    broker.assembly.consumer_groups._clock_ms = store._clock_ms = lambda: later_ms + 10 * 86_400_000
    await OffsetExpiration(broker.assembly.consumer_groups, broker.assembly.cluster).enforce()
    await store.group.committed()
    assert set(store.state.offsets("g")) == {("t", 1)} and "only" in store.state


async def test_a_topic_that_goes_takes_along_what_is_pending(
    broker: Broker, client: Client, ids: TopicIds
) -> None:
    await commit_within(broker, PENDING, {("t", 0): 7})
    await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5)
    store = broker.assembly.consumer_groups.store("g")
    assert store.state.topics() == {} and not store.state.pending("g")
    await end(broker, PENDING)
    assert store.state.offsets("g") == {}


async def test_what_is_pending_outlives_a_restart(
    start_broker: StartBroker, broker: Broker, client: Client
) -> None:
    ids = await ready(client)
    await commit(client, 9, {("t", 0): 5}, ids)
    await commit_within(broker, PENDING, {("t", 0): 7, ("t", 1): 8})
    for _ in range(2):  # replayed, then out of the checkpoint of the stop
        await broker.stop()
        broker = await start_broker()
        client = await Client.connect(broker.port)
        assert await stable(client, [0, 1]) == {0: UNSTABLE, 1: UNSTABLE}
        assert await committed(client) == {("t", 0): 5}
    await end(broker, PENDING)
    assert await committed(client) == {("t", 0): 7, ("t", 1): 8}
    await client.close()
