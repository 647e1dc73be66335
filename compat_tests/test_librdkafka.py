"""What librdkafka does with its group's coordinator although it joins no group."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, TopicPartition

from compat_tests.conftest import NewTopic, unique_name
from compat_tests.raw import RawConnection, batch
from compat_tests.targets import Target


def test_a_consumer_that_assigned_itself_commits_and_closes_at_once(
    target: Target, new_topic: NewTopic, raw: RawConnection
) -> None:
    """With its default settings; without a coordinator its close() waited 45 s."""
    topic, group = new_topic(), unique_name()
    raw.produce(topic, batch([b"1", b"2", b"3"]))
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": group})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(3, timeout=15)
    began = time.monotonic()
    consumer.close()
    assert [each.value() for each in found] == [b"1", b"2", b"3"]
    assert time.monotonic() - began < 30
    answer = raw.call(
        "offset_fetch", 8, groups=[{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]
    )
    assert answer["groups"][0]["topics"][0]["partitions"][0]["committed_offset"] == 3
