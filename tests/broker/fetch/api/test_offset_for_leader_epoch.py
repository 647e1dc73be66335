"""OffsetForLeaderEpoch without a broker; `test_list_offsets.py` has it over a real log."""

from __future__ import annotations

from typing import cast

from lockstep.broker.fetch.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.fake_partitions import FakeCluster, header_of
from tests.broker.wire import batch


def ask(cluster: FakeCluster, *wanted: tuple[str, int, int, int]) -> list[tuple[int, int, int]]:
    """(error, leader epoch, end) for each (topic, partition, leader epoch, current leader epoch)."""
    topics = [
        OffsetForLeaderTopic(
            topic=name,
            partitions=[
                OffsetForLeaderPartition(
                    partition=index, leader_epoch=leader_epoch, current_leader_epoch=current
                )
            ],
        )
        for name, index, leader_epoch, current in wanted
    ]
    handler = OffsetForLeaderEpoch(cluster())
    response = handler.handle(
        cast(ClientContext, None),
        header_of(handler.api_key, 4),
        OffsetForLeaderEpochRequest(topics=topics),
    )
    assert [each.topic for each in response.topics] == [name for name, _, _, _ in wanted]
    return [
        (each.error_code, each.leader_epoch, each.end_offset)
        for topic in response.topics
        for each in topic.partitions
    ]


def test_the_ends_of_leader_epochs() -> None:
    cluster = FakeCluster()
    cluster.add("t")
    log = cluster.write("t", batch(b"a", b"b"), batch(b"c")).log
    log.leader_epochs = [(1, 0), (3, 2)]
    assert ask(cluster, ("t", 0, 3, -1), ("t", 0, 2, 3), ("t", 0, 0, -1), ("t", 0, 4, -1)) == [
        (0, 3, 3),
        (0, 1, 2),
        (0, 0, 0),
        (0, -1, -1),
    ]


def test_partitions_that_have_no_answer_here() -> None:
    cluster = FakeCluster()
    cluster.add("t")
    assert ask(cluster, ("no", 0, 1, -1), ("t", 1, 1, -1), ("t", 0, 1, 2), ("t", 0, 1, 4)) == [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
        (ErrorCode.FENCED_LEADER_EPOCH, -1, -1),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1),
    ]
    cluster.group.is_leader = False
    assert ask(cluster, ("t", 0, 3, -1)) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)]
