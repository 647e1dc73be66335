"""What a topic may be like: each rule at its border, and the error that it answers with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockstep.broker.metadata import topic_validation
from lockstep.broker.metadata.metadata_cache import (
    CONSUMER_OFFSETS,
    CONSUMER_OFFSETS_TOPIC_ID,
    TRANSACTION_STATE,
    Topic,
)
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.topic_config import topic_config
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

SETTINGS = Settings(num_partitions=4, offsets_topic_num_partitions=7, transaction_state_log_num_partitions=9)


def refusal(call: Callable[[], object], error: ErrorCode) -> str:
    """The words in which it is refused."""
    with pytest.raises(RequestError) as refused:
        call()
    assert refused.value.error == error
    return refused.value.message


def test_names_of_kafka_s_own_topics_are_not_made_here() -> None:
    for name, why in topic_validation.RESERVED.items():
        said = refusal(lambda name=name: topic_validation.check_not_reserved(name), ErrorCode.INVALID_REQUEST)  # type: ignore[misc]
        assert why in said
    topic_validation.check_not_reserved(CONSUMER_OFFSETS)


def test_names_that_metrics_would_take_for_one() -> None:
    assert (
        topic_validation.collision_key("a.b_c")
        == topic_validation.collision_key("a_b.c")
        != topic_validation.collision_key("a-b_c")
    )


def test_an_own_topic_stays_and_one_with_only_its_name_may_go() -> None:
    config = topic_config({}, SETTINGS)
    own = Topic(CONSUMER_OFFSETS, CONSUMER_OFFSETS_TOPIC_ID, config)
    said = refusal(lambda: topic_validation.check_may_change(own), ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert CONSUMER_OFFSETS in said
    topic_validation.check_may_change(Topic(CONSUMER_OFFSETS, b"i" * 16, config))


@each_case(
    ("name", "wanted", "count"),
    [
        ("t", -1, 4),
        ("t", 1, 1),
        ("t", 12, 12),
        (CONSUMER_OFFSETS, -1, 7),
        (CONSUMER_OFFSETS, 7, 7),
        (TRANSACTION_STATE, -1, 9),
        (TRANSACTION_STATE, 9, 9),
    ],
)
def test_how_many_partitions(name: str, wanted: int, count: int) -> None:
    assert topic_validation.new_partition_count(name, wanted, SETTINGS) == count


@each_case(
    ("name", "wanted", "words"),
    [
        ("t", 0, "non-positive"),
        ("t", -2, "non-positive"),
        (CONSUMER_OFFSETS, 9, "offsets.topic.num.partitions=7 partitions, not 9"),
        (TRANSACTION_STATE, 7, "transaction.state.log.num.partitions=9 partitions, not 7"),
    ],
)
def test_how_many_partitions_there_are_not(name: str, wanted: int, words: str) -> None:
    call = lambda: topic_validation.new_partition_count(name, wanted, SETTINGS)  # noqa: E731
    assert words in refusal(call, ErrorCode.INVALID_PARTITIONS)


@each_case(("factor", "nodes"), [(-1, 1), (1, 1), (3, 3), (3, 5)])
def test_copies(factor: int, nodes: int) -> None:
    topic_validation.check_replication_factor(factor, nodes, 3)


@each_case(
    ("factor", "nodes", "words"),
    [
        (0, 5, "larger than 0, or -1"),
        (-2, 5, "larger than 0, or -1"),
        (2, 1, "only 1 broker(s) are registered"),
        (4, 3, "only 3 broker(s) are registered"),
        (4, 5, "at most 3 replicas here"),
        (2, 2, "at most 1 replica here"),
    ],
)
def test_copies_that_cannot_be(factor: int, nodes: int, words: str) -> None:
    replicas = 1 if nodes == 2 else 3
    call = lambda: topic_validation.check_replication_factor(factor, nodes, replicas)  # noqa: E731
    assert words in refusal(call, ErrorCode.INVALID_REPLICATION_FACTOR)


def test_a_plan_has_the_request_and_an_internal_topic_its_fixed_values() -> None:
    asked = {"retention.ms": "1000"}
    plan = topic_validation.configured_plan("t", 3, asked, SETTINGS)
    assert (plan.name, plan.partition_count, plan.overrides, plan.topic_id) == ("t", 3, asked, None)
    assert plan.config.retention_ms == 1000
    own = topic_validation.configured_plan(CONSUMER_OFFSETS, 7, {"segment.bytes": "1048576"}, SETTINGS)
    assert own.overrides == {**topic_validation.OWN_OVERRIDES, "segment.bytes": "1048576"}
    assert own.config.cleanup_policy == ("compact",)
    assert own.topic_id == CONSUMER_OFFSETS_TOPIC_ID


@each_case(
    ("name", "overrides", "words"),
    [
        ("t", {"no.such": "1"}, "no.such"),
        ("t", {"retention.ms": "soon"}, "retention.ms"),
        (CONSUMER_OFFSETS, {"cleanup.policy": "delete"}, "cleanup.policy of __consumer_offsets can only be"),
        (TRANSACTION_STATE, {"cleanup.policy": "compact,delete"}, "can only be compact"),
    ],
)
def test_configurations_that_are_refused(name: str, overrides: dict[str, str], words: str) -> None:
    call = lambda: topic_validation.configured_plan(name, 7, overrides, SETTINGS)  # noqa: E731
    assert words in refusal(call, ErrorCode.INVALID_CONFIG)
