"""A cluster through the blocking client: metadata, leaders, coordinators, and what is asked again."""

from __future__ import annotations

import socket
import time
from typing import Any
from uuid import uuid4

import pytest

import lockstep.testing
from compat_tests.relay import Relay
from lockstep.kafka_client.blocking_connection import BlockingConnection
from lockstep.protocol.cluster_view import TRANSACTION
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataResponse
from lockstep.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from lockstep.protocol.records.record import BatchBuilder
from spark_connector.connection import BrokerError, ClientError, ClusterClient, ConnectionFailed
from spark_connector.connection import cluster as module
from tests.spark_connector.conftest import NewTopic, produce
from tests.support.cases import each_case


def end_of(cluster: ClusterClient, topic: str, partition: int) -> int:
    """The partition's end as its leader tells it."""
    asked = ListOffsetsTopic(
        name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=-1)]
    )
    request = ListOffsetsRequest(replica_id=-1, topics=[asked])
    (answer,) = cluster.leader(topic, partition).call(request, ListOffsetsResponse).topics
    (found,) = answer.partitions
    if found.error_code:
        raise BrokerError(found.error_code, topic)
    return found.offset


def test_topics_and_leaders(cluster: ClusterClient, new_topic: NewTopic) -> None:
    names = sorted([new_topic(3), new_topic()])
    found = cluster.topics(names)
    assert [topic.name for topic in found] == names
    three = next(topic for topic in found if len(topic.partitions) == 3)
    assert [each.index for each in three.partitions] == [0, 1, 2]
    assert {each.name for each in cluster.topics()} >= set(names)
    assert cluster.topic(three.name) == three
    assert cluster.cluster_id
    builder = BatchBuilder()
    builder.append(b"v", timestamp_ms=1)
    assert produce(cluster, three.name, builder.build(), 2) == 0
    assert [end_of(cluster, three.name, each) for each in range(3)] == [0, 0, 1]


def test_unknown(cluster: ClusterClient, new_topic: NewTopic) -> None:
    with pytest.raises(BrokerError, match="topic nowhere: there is no such topic") as caught:
        cluster.topic("nowhere")
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = new_topic()
    with pytest.raises(BrokerError, match=f"{topic}, partition 7: there is no such partition"):
        cluster.leader(topic, 7)


def test_a_missing_topic_is_created_where_the_caller_wants_it(cluster: ClusterClient) -> None:
    name = f"made-{uuid4().hex[:8]}"
    with pytest.raises(BrokerError, match="there is no such topic"):
        cluster.topic(name)
    made = cluster.topic(name, create=True)
    assert len(made.partitions) == 1
    assert cluster.topic(name) == made


def test_brokers_that_create_no_topics_are_named_as_the_reason() -> None:
    with (
        lockstep.testing.broker_in_thread(log_flush="os", auto_create_topics_enable=False) as broker,
        ClusterClient(broker.bootstrap_servers, timeout_s=10) as cluster,
        pytest.raises(BrokerError, match=r"auto\.create\.topics\.enable=false.*create it first") as caught,
    ):
        cluster.topic("nowhere", create=True)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_coordinators(cluster: ClusterClient) -> None:
    connection = cluster.coordinator("some-group")
    answer = connection.call(
        OffsetFetchRequest(group_id="some-group", topics=None), OffsetFetchResponse, newest=7
    )
    assert (answer.error_code, answer.topics) == (0, [])
    assert cluster.coordinator("some-id", TRANSACTION).is_open


@each_case("bootstrap", ["", "localhost:0", "localhost:x", ":9092", "a:1,,b:2"])
def test_addresses_that_cannot_be(bootstrap: str) -> None:
    with pytest.raises(ClientError, match=r"kafka\.bootstrap\.servers"):
        ClusterClient(bootstrap)


def test_security_that_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(ClientError, match=r"kafka\.security\.protocol: 'SASL' is none of"):
        ClusterClient("localhost:9092", properties={"security.protocol": "SASL"})


def test_the_first_address_that_answers_is_enough(running: lockstep.testing.RunningBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    with ClusterClient(f"127.0.0.1:{nobody},{running.bootstrap_servers}", timeout_s=5) as cluster:
        assert cluster.any().port == running.port
    with pytest.raises(ConnectionFailed, match="are closed"):
        cluster.any()


def test_nobody_answers_for_as_long_as_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    began = time.monotonic()
    with ClusterClient(f"127.0.0.1:{nobody}", timeout_s=0.3) as cluster:
        with pytest.raises(ConnectionFailed, match="connection refused"):
            cluster.topics()
        assert 0.2 <= time.monotonic() - began < 5


def test_moved_leaders_are_looked_up_again(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    asked: list[object] = []

    def ask() -> int:
        asked.append(cluster.topic(topic))
        if len(asked) < 3:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, topic)
        return end_of(cluster, topic, 0)

    assert cluster.retry(ask) == 0
    assert len({id(each) for each in asked}) == 3, "each time of fresh metadata"


def test_other_errors_are_not_retried(cluster: ClusterClient) -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "t")

    with pytest.raises(BrokerError):
        cluster.retry(ask)
    assert len(asked) == 1


def test_retried_until_the_timeout(running: lockstep.testing.RunningBroker) -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, "t")

    with ClusterClient(running.bootstrap_servers, timeout_s=0.2) as cluster, pytest.raises(BrokerError):
        cluster.retry(ask, retriable=(ErrorCode.OFFSET_OUT_OF_RANGE,))
    assert len(asked) > 1


def test_a_broker_without_a_leader_for_long_is_not_tried_again(
    running: lockstep.testing.RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be cut off from the others, and answer all the same."""
    monkeypatch.setattr(module, "_STALE_S", 0.2)
    with Relay(running.port) as relay:
        bootstrap = f"127.0.0.1:{relay.port},127.0.0.1:{running.port}"
        with ClusterClient(bootstrap, timeout_s=10) as cluster:
            asked: list[int] = []

            def asked_now() -> int:
                found = cluster.any()
                (port,) = [port for (_, port), each in cluster._connections.items() if each is found]
                return port

            def ask() -> int:
                asked.append(asked_now())
                if asked[-1] == relay.port:
                    raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, "t")
                return asked[-1]

            assert cluster.retry(ask) == running.port
            assert asked_now() == running.port, "and stays so"
            assert len(asked) > 3


def test_a_broker_that_closes_connections_for_long_is_not_tried_again(
    running: lockstep.testing.RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker does that does not know all topics yet; who does not answer at all is asked last."""
    monkeypatch.setattr(module, "_STALE_S", 0.2)
    silent = socket.socket()
    with Relay(running.port) as relay, silent:
        silent.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{relay.port},127.0.0.1:{running.port}"
        with ClusterClient(bootstrap, timeout_s=10) as cluster:
            asked = 0

            def ask() -> Any:
                nonlocal asked
                asked += 1
                connection = cluster.any()
                if connection is cluster._connections.get(("127.0.0.1", relay.port)):
                    connection.close()
                return connection.call(MetadataRequest(topics=None), MetadataResponse)

            assert cluster.retry(ask).brokers
            assert asked > 3 and cluster.any() is cluster._connections["127.0.0.1", running.port]


def test_topics_without_a_leader_yet_are_requested_again(
    cluster: ClusterClient, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, answers = new_topic(), 0
    call = BlockingConnection.call

    def late(connection: BlockingConnection, request: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal answers
        answer = call(connection, request, *arguments, **named)
        if isinstance(answer, MetadataResponse):
            answers += 1
            if answers < 3:
                answer.topics[0].error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return answer

    monkeypatch.setattr(BlockingConnection, "call", late)
    assert [each.name for each in cluster.topics([topic])] == [topic]
    assert answers == 3


def test_a_broken_connection_is_made_again(running: lockstep.testing.RunningBroker) -> None:
    with Relay(running.port) as relay, ClusterClient(f"127.0.0.1:{relay.port}", timeout_s=10) as cluster:
        first = cluster.any()
        first.close()
        assert cluster.retry(lambda: cluster.topics()) is not None
        assert cluster.any() is not first
