"""What ListOffsets says of several partitions, whom it is asked of, and what is asked again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from lockstep.protocol.records.record import BatchBuilder
from spark_connector.connection import BrokerError, ClusterClient, list_offsets
from spark_connector.options import EARLIEST, LATEST
from tests.spark_connector.conftest import NewTopic, produce
from tests.support.cases import each_case


class Leader:
    """Says of each partition that its offset is `base` and its index; keeps what it was asked."""

    def __init__(self, base: int, error_code: int = 0) -> None:
        self.base = base
        self.error_code = error_code
        self.asked: list[ListOffsetsRequest] = []

    def call(self, request: ListOffsetsRequest, answer: type[ListOffsetsResponse]) -> ListOffsetsResponse:
        self.asked.append(request)
        return answer(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            error_code=self.error_code,
                            offset=self.base + each.partition_index,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class Led:
    """A cluster of which only the leaders are known."""

    def __init__(self, leaders: dict[tuple[str, int], Leader]) -> None:
        self._leaders = leaders
        self.retriable: list[ErrorCode] = []

    def leader(self, topic: str, partition: int) -> Leader:
        return self._leaders[topic, partition]

    def retry(self, ask: Callable[[], Any], *, retriable: Iterable[ErrorCode] = ()) -> Any:
        self.retriable += retriable
        return ask()


@each_case("committed", [False, True])
def test_each_leader_gets_one_request(committed: bool) -> None:
    one, two = Leader(100), Leader(200)
    led: Any = Led({("a", 0): one, ("a", 1): two, ("a", 2): one, ("b", 0): one})
    wanted = {("a", 0): LATEST, ("a", 1): EARLIEST, ("a", 2): 5, ("b", 0): LATEST}
    found = list_offsets(led, wanted, committed=committed)
    assert found == {("a", 0): 100, ("a", 1): 201, ("a", 2): 102, ("b", 0): 100}
    asked = [
        [(t.name, p.partition_index, p.timestamp) for t in each.topics for p in t.partitions]
        for each in one.asked + two.asked
    ]
    assert asked == [[("a", 0, LATEST), ("a", 2, 5), ("b", 0, LATEST)], [("a", 1, EARLIEST)]]
    assert {each.isolation_level for each in one.asked + two.asked} == {int(committed)}
    assert led.retriable == []


def test_no_request_for_no_partitions() -> None:
    assert list_offsets(Led({}), {}) == {}  # type: ignore[arg-type]


def test_a_refusal_fails_all_and_names_its_partition() -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    led: Any = Led({("a", 0): Leader(0), ("a", 1): Leader(0, code)})
    with pytest.raises(BrokerError, match="a, partition 1") as caught:
        list_offsets(led, {("a", 0): LATEST, ("a", 1): LATEST})
    assert caught.value.code == code


def test_of_a_broker(cluster: ClusterClient, new_topic: NewTopic) -> None:
    one, two = new_topic(2), new_topic()
    builder = BatchBuilder()
    for n in range(5):
        builder.append(b"v", timestamp_ms=1000 * n)
    produce(cluster, one, builder.build(), 1)
    assert list_offsets(cluster, {(one, 0): LATEST, (one, 1): LATEST, (two, 0): EARLIEST}) == {
        (one, 0): 0,
        (one, 1): 5,
        (two, 0): 0,
    }
    assert list_offsets(cluster, {(one, 0): 1500, (one, 1): 1500}) == {(one, 0): -1, (one, 1): 2}


def test_a_topic_that_gets_its_leaders_is_requested_again(
    cluster: ClusterClient, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, leader, unsettled = new_topic(), cluster.leader, [1, 1]

    def settling(name: str, partition: int) -> Any:
        if unsettled:
            unsettled.pop()
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        return leader(name, partition)

    monkeypatch.setattr(cluster, "leader", settling)
    with pytest.raises(BrokerError, match=topic):
        list_offsets(cluster, {(topic, 0): LATEST})
    retriable = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    assert list_offsets(cluster, {(topic, 0): LATEST}, retriable=retriable) == {(topic, 0): 0}
    assert not unsettled
