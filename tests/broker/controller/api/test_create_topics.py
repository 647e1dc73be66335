"""CreateTopics and DeleteTopics, called without a broker: each topic is accepted or rejected on its own."""

from __future__ import annotations

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from lockstep.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.controller.api.conftest import ControllerCaller


def topic(name: str, partitions: int = 1, replication: int = -1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=text) for key, text in configs.items()
        ],
    )


async def create(
    caller: ControllerCaller, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    results: list[CreatableTopicResult] = (await caller.call(request, 7)).topics
    return results


async def errors(caller: ControllerCaller, *topics: CreatableTopic) -> list[tuple[str | None, int]]:
    return [(each.name, each.error_code) for each in await create(caller, *topics)]


async def test_each_topic_is_created_or_rejected_on_its_own(caller: ControllerCaller) -> None:
    await caller.create("old")
    invalid = ErrorCode.INVALID_REQUEST
    assert await errors(
        caller,
        topic("t", 2, retention_ms="5"),
        topic("old"),
        topic("a b"),
        topic("twice"),
        topic("twice"),
        topic("no-value", retention_ms=None),
        topic("bad-value", retention_ms="much"),
    ) == [
        ("t", ErrorCode.NONE),
        ("old", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("twice", invalid),
        ("no-value", ErrorCode.INVALID_CONFIG),
        ("bad-value", ErrorCode.INVALID_CONFIG),
    ]
    created = caller.metadata.cluster.topic("t")
    assert created is not None and created.config.overrides == {"retention.ms": "5"}
    assert [each.name for each in caller.metadata.cluster.topics()] == ["old", "t"]


async def test_the_result_has_what_was_created(caller: ControllerCaller) -> None:
    (result,) = await create(caller, topic("t", 2, retention_ms="5"))
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert {each.name: each.value for each in result.configs or []}["retention.ms"] == "5"


async def test_nothing_is_created_by_a_validation(caller: ControllerCaller) -> None:
    result, rejected = await create(caller, topic("t", 3), topic("b/d"), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 3, bytes(16))
    assert rejected.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert caller.metadata.cluster.topics() == []


async def test_too_many_partitions_in_one_request() -> None:
    caller = ControllerCaller(lockstep_max_partitions_per_request=3)
    assert await errors(caller, topic("a", 2), topic("b", 2), topic("c", 1)) == [
        ("a", 0),
        ("b", ErrorCode.POLICY_VIOLATION),
        ("c", 0),
    ]


async def test_assignments_name_replicas_of_one_log_group(caller: ControllerCaller) -> None:
    def assigned(*broker_ids: int, partitions: int = -1) -> CreatableTopic:
        chosen = [CreatableReplicaAssignment(partition_index=0, broker_ids=list(broker_ids))]
        return CreatableTopic(name="t", num_partitions=partitions, replication_factor=-1, assignments=chosen)

    for rejected, error in (
        (assigned(1, partitions=1), ErrorCode.INVALID_REQUEST),
        (assigned(2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (assigned(1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ):
        assert await errors(caller, rejected) == [("t", error)]
    assert await errors(caller, assigned(1)) == [("t", 0)]


async def test_a_rejected_topic_is_not_created_for_a_node_with_other_configurations(
    caller: ControllerCaller,
) -> None:
    assert await errors(caller, topic("t", retention_ms="much")) == [("t", ErrorCode.INVALID_CONFIG)]
    caller.client.is_forwarded, caller.client.peer = True, ""
    assert await errors(caller, topic("t")) == [("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    caller.client.is_forwarded, caller.client.peer = False, "a client"
    assert await errors(caller, topic("t")) == [("t", 0)]


async def test_the_error_of_a_creation_and_of_a_deletion(caller: ControllerCaller) -> None:
    topic_id = await caller.create("old")
    caller.topics.failure = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    assert await errors(caller, topic("t")) == [("t", ErrorCode.KAFKA_STORAGE_ERROR)]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    (result,) = (await caller.call(request, 6)).responses
    assert (result.name, result.error_code) == ("old", ErrorCode.KAFKA_STORAGE_ERROR)


async def test_another_node_than_the_controller_changes_nothing(caller: ControllerCaller) -> None:
    await caller.create("old")
    caller.topics.is_controller = False
    assert await errors(caller, topic("t")) == [("t", ErrorCode.NOT_CONTROLLER)]
    (result,) = (await caller.call(DeleteTopicsRequest(topic_names=["old"]), 5)).responses
    assert result.error_code == ErrorCode.NOT_CONTROLLER
    assert caller.metadata.cluster.topic("old") is not None


async def test_topics_are_deleted_by_name_or_by_id(caller: ControllerCaller) -> None:
    ids = {name: await caller.create(name) for name in ("a", "b", "c", "d", "e")}
    state = DeleteTopicState
    request = DeleteTopicsRequest(
        topics=[
            state(name="a"),
            state(topic_id=ids["b"]),
            state(name="c"),
            state(name="c"),
            state(name="d", topic_id=ids["d"]),
            state(topic_id=ids["e"]),
            state(name="e"),
            state(name="no"),
            state(topic_id=b"x" * 16),
            state(),
        ]
    )
    results = (await caller.call(request, 6)).responses
    invalid = ErrorCode.INVALID_REQUEST
    assert [(each.name, each.error_code) for each in results] == [
        ("a", 0),
        ("b", 0),
        ("c", invalid),
        ("d", invalid),
        ("e", 0),
        ("e", invalid),
        ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, invalid),
    ]
    assert [each.name for each in caller.metadata.cluster.topics()] == ["c", "d"]
    for version, twice in (
        (4, DeleteTopicsRequest(topic_names=["c", "c"])),
        (6, DeleteTopicsRequest(topics=[state(name="no"), state(name="no")])),
    ):
        (result,) = (await caller.call(twice, version)).responses
        assert result.error_code == invalid


async def test_deletion_may_be_disabled() -> None:
    caller = ControllerCaller(delete_topic_enable=False)
    await caller.create("t")
    for version, error in ((2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)):
        (result,) = (await caller.call(DeleteTopicsRequest(topic_names=["t"]), version)).responses
        assert result.error_code == error
