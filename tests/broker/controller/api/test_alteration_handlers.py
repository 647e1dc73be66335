"""The handlers of AlterConfigs, IncrementalAlterConfigs and CreatePartitions, called without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages import alter_configs, incremental_alter_configs
from lockstep.protocol.messages.alter_configs import AlterConfigsRequest
from lockstep.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from lockstep.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.broker.controller.api.conftest import ControllerCaller

SET, DELETE = 0, 1


def replacement(topic: str, validate_only: bool = False, **configs: str) -> AlterConfigsRequest:
    return AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=ResourceType.TOPIC,
                resource_name=topic,
                configs=[
                    alter_configs.AlterableConfig(name=name.replace("_", "."), value=value)
                    for name, value in configs.items()
                ],
            )
        ],
        validate_only=validate_only,
    )


def alteration(topic: str, *edits: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=ResourceType.TOPIC,
                resource_name=topic,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=name, config_operation=operation, value=value
                    )
                    for name, operation, value in edits
                ],
            )
        ]
    )


def growth(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    chosen = [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=chosen or None)


def error_codes(response: Any) -> list[int]:
    return [each.error_code for each in response.responses]


def overrides(caller: ControllerCaller, name: str) -> dict[str, str]:
    topic = caller.metadata.cluster.topic(name)
    assert topic is not None
    return dict(caller.metadata.cluster.image.topics[topic.topic_id].overrides)


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_replaces_all_of_a_topics_own(caller: ControllerCaller, version: int) -> None:
    await caller.create("t")
    assert error_codes(await caller.call(replacement("t", retention_ms="5"), version)) == [ErrorCode.NONE]
    assert overrides(caller, "t") == {"retention.ms": "5"}
    validation = replacement("t", True, retention_ms="6")
    assert error_codes(await caller.call(validation, version)) == [ErrorCode.NONE]
    assert overrides(caller, "t") == {"retention.ms": "5"}, "it was to be validated only"
    assert error_codes(await caller.call(replacement("t", retention_bytes="7"), version)) == [ErrorCode.NONE]
    assert overrides(caller, "t") == {"retention.bytes": "7"}


async def test_alter_configs_rejects_each_resource_on_its_own(caller: ControllerCaller) -> None:
    await caller.create("t")
    await caller.create("other")
    request = replacement("t", retention_ms="no number")
    request.resources += replacement("nowhere", retention_ms="5").resources
    request.resources += replacement("other", retention_ms="5").resources
    assert error_codes(await caller.call(request, 2)) == [
        ErrorCode.INVALID_CONFIG,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert (overrides(caller, "t"), overrides(caller, "other")) == ({}, {"retention.ms": "5"})


@pytest.mark.parametrize("version", range(2))
async def test_incremental_alter_configs_changes_the_named_ones(
    caller: ControllerCaller, version: int
) -> None:
    await caller.create("t")
    both = alteration("t", ("retention.ms", SET, "5"), ("retention.bytes", SET, "7"))
    assert error_codes(await caller.call(both, version)) == [ErrorCode.NONE]
    assert overrides(caller, "t") == {"retention.ms": "5", "retention.bytes": "7"}
    deletion = alteration("t", ("retention.ms", DELETE, None))
    assert error_codes(await caller.call(deletion, version)) == [ErrorCode.NONE]
    assert overrides(caller, "t") == {"retention.bytes": "7"}
    unknown = alteration("t", ("retention.years", SET, "1"))
    assert error_codes(await caller.call(unknown, version)) == [ErrorCode.INVALID_CONFIG]
    assert overrides(caller, "t") == {"retention.bytes": "7"}


@pytest.mark.parametrize("version", range(4))
async def test_create_partitions_grows_each_topic_on_its_own(caller: ControllerCaller, version: int) -> None:
    for name in ("t", "small", "pinned"):
        await caller.create(name, 2)
    topics = [growth("t", 4), growth("small", 1), growth("nowhere", 2), growth("pinned", 4, [1])]
    response = await caller.call(CreatePartitionsRequest(topics=topics, timeout_ms=1000), version)
    assert {each.name: each.error_code for each in response.results} == {
        "t": ErrorCode.NONE,
        "small": ErrorCode.INVALID_PARTITIONS,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "pinned": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
    assert partition_counts(caller) == {"t": 4, "small": 2, "pinned": 2}


async def test_create_partitions_grows_nothing_by_a_validation(caller: ControllerCaller) -> None:
    await caller.create("t")
    for topic in (growth("t", 3), growth("t", 3, [1], [1])):
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=True)
        (result,) = (await caller.call(request, 3)).results
        assert (result.error_code, partition_counts(caller)) == (ErrorCode.NONE, {"t": 1})


async def test_create_partitions_reports_a_failed_growth_and_a_topic_named_twice(
    caller: ControllerCaller,
) -> None:
    await caller.create("t")
    caller.topics.failure = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    request = CreatePartitionsRequest(topics=[growth("t", 3)], timeout_ms=1000)
    (result,) = (await caller.call(request, 3)).results
    assert (result.error_code, result.error_message) == (ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    twice = CreatePartitionsRequest(topics=[growth("t", 3), growth("t", 4)], timeout_ms=1000)
    (result,) = (await caller.call(twice, 3)).results
    assert result.error_code == ErrorCode.INVALID_REQUEST


def partition_counts(caller: ControllerCaller) -> dict[str, int]:
    found = {name: caller.metadata.cluster.topic(name) for name in ("t", "small", "pinned")}
    return {name: len(topic.partitions) for name, topic in found.items() if topic is not None}
