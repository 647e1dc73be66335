"""A client's view of its cluster: who is tried first, who leads, what passes, how long is waited."""

from __future__ import annotations

import pytest

from lockstep.protocol.client_errors import BrokerError, ClientError
from lockstep.protocol.cluster_view import (
    LEADERSHIP_ERRORS,
    NEW_TOPIC_ERRORS,
    PAUSES_S,
    RETRIABLE_ERRORS,
    TRANSACTION,
    ClusterView,
    RetrySchedule,
    coordinator_request,
    topics_of,
)
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from lockstep.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

A, B, C = ("a", 9092), ("b", 1), ("c", 3)


def metadata(*topics: MetadataResponseTopic) -> MetadataResponse:
    brokers = [MetadataResponseBroker(node_id=1, host="a", port=9092)]
    brokers.append(MetadataResponseBroker(node_id=3, host="c", port=3))
    return MetadataResponse(brokers=brokers, cluster_id="x", controller_id=3, topics=list(topics))


def test_named_brokers_come_before_those_of_the_metadata_and_suspects_last() -> None:
    view = ClusterView("a,b:1")
    assert view.candidates() == [A, B] and view.cluster_id is None and view.controller_id == -1
    view.update(metadata())
    assert view.candidates() == [A, B, C] and view.cluster_id == "x" and view.controller_id == 3
    view.suspect(A)
    assert view.candidates() == [B, C, A] and view.is_suspect(A) and not view.is_suspect(B)
    view.suspect(B)
    assert view.candidates() == [C, A, B]
    view.suspect(C)
    view.suspect(A)
    assert view.candidates() == [B, C, A], "all are suspected: the one longest ago comes first"
    view.update(MetadataResponse())
    assert view.candidates() == [B, A], "what no metadata name any more is not tried"


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ClientError, match="not an address"):
        ClusterView("a:b:c,d:x")


def test_a_node_that_is_not_there_has_no_address() -> None:
    view = ClusterView("a")
    view.update(metadata())
    assert view.address_of(3) == C
    with pytest.raises(BrokerError, match=r"node 7: there is no such node, known are \[1, 3\]") as caught:
        view.address_of(7)
    assert caught.value.code == ErrorCode.LEADER_NOT_AVAILABLE
    with pytest.raises(BrokerError, match="node -1"):
        view.address_of(-1)


def test_topics_have_their_partitions_in_order_and_know_their_leaders() -> None:
    partitions = [MetadataResponsePartition(partition_index=each, leader_id=each + 5) for each in (1, 0)]
    (topic,) = topics_of(metadata(MetadataResponseTopic(name="t", partitions=partitions)), {})
    assert [each.index for each in topic.partitions] == [0, 1]
    assert (topic.leader_of(0), topic.leader_of(1)) == (5, 6)
    with pytest.raises(BrokerError, match="t, partition 2: there is no such partition") as caught:
        topic.leader_of(2)
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    gap = [MetadataResponsePartition(partition_index=each, leader_id=each) for each in (4, 2)]
    (topic,) = topics_of(metadata(MetadataResponseTopic(name="t", partitions=gap)), {})
    assert topic.leader_of(4) == 4 and topic.leader_of(2) == 2


def test_a_topic_with_an_error_is_an_error_in_the_clients_words() -> None:
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    response = metadata(MetadataResponseTopic(name="t", error_code=missing))
    with pytest.raises(BrokerError, match="topic t: nowhere to be found"):
        topics_of(response, {missing: "nowhere to be found"})
    with pytest.raises(BrokerError, match="topic t: "):
        topics_of(response, {})


def test_a_coordinator_in_the_old_and_the_new_form() -> None:
    view = ClusterView("a")
    assert coordinator_request("k", TRANSACTION, 3).key == "k"
    assert coordinator_request("k", TRANSACTION, 4).coordinator_keys == ["k"]
    assert coordinator_request("k", TRANSACTION, 3).key_type == TRANSACTION
    assert view.coordinator_of(FindCoordinatorResponse(node_id=8, host="h", port=8), "group g") == 8
    found = Coordinator(key="g", node_id=9, host="i", port=9)
    assert view.coordinator_of(FindCoordinatorResponse(coordinators=[found]), "group g") == 9
    assert view.addresses == {8: ("h", 8), 9: ("i", 9)}
    absent = FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, error_message="theirs")
    with pytest.raises(BrokerError, match="group g: theirs"):
        view.coordinator_of(absent, "group g")
    with pytest.raises(BrokerError, match="group g: ours"):
        view.coordinator_of(absent, "group g", {ErrorCode.COORDINATOR_NOT_AVAILABLE: "ours"})
    with pytest.raises(ClientError, match="2 results"):
        view.coordinator_of(FindCoordinatorResponse(coordinators=[found, found]), "group g")


def test_each_set_of_errors_is_within_the_next_and_of_those_that_kafka_retries_but_for_one() -> None:
    assert LEADERSHIP_ERRORS < NEW_TOPIC_ERRORS < RETRIABLE_ERRORS
    assert {each for each in RETRIABLE_ERRORS if not each.retriable} == {ErrorCode.BROKER_NOT_AVAILABLE}


def test_pauses_grow_up_to_a_bound_and_end_at_the_deadline() -> None:
    schedule = RetrySchedule(100.0)
    assert [schedule.pause_s(0.0) for _ in range(7)] == [*PAUSES_S, PAUSES_S[-1], PAUSES_S[-1]]
    assert schedule.pause_s(99.5) == PAUSES_S[-1]
    assert schedule.pause_s(99.6) is None and schedule.pause_s(200.0) is None
    assert schedule.remaining_s(40.0) == 60.0 and schedule.remaining_s(200.0) == 0.001


def test_metadata_are_stale_once_tries_have_failed_for_long() -> None:
    schedule = RetrySchedule(100.0, stale_s=3.0)
    assert not schedule.is_stale(50.0), "nothing has failed yet"
    schedule.pause_s(10.0)
    assert not schedule.is_stale(12.9)
    schedule.pause_s(12.0)
    assert schedule.is_stale(13.0), "counted from the first failure"
