"""Metadata, called without a broker: errors by topic, ids, operations, and which topics are created."""

from __future__ import annotations

import pytest

from lockstep.broker.metadata.api import metadata
from lockstep.broker.requests.request_context import ConnectionRejected
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.metadata.api.conftest import MetadataCaller
from tests.support.cases import each_case


async def ask(caller: MetadataCaller, *names: str, create: bool = False) -> dict[str | None, int]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
    )
    response: MetadataResponse = await caller.call(request, 13)
    return {topic.name: topic.error_code for topic in response.topics}


async def test_a_missing_topic_is_created_once_and_only_if_the_client_allows_it(
    caller: MetadataCaller,
) -> None:
    assert await ask(caller, "t") == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert caller.created == []
    for _ in range(2):
        assert await ask(caller, "t", "t", create=True) == {"t": 0}
        assert caller.created == ["t"]


@each_case(
    ("error", "reported"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
async def test_the_error_of_a_creation(caller: MetadataCaller, error: ErrorCode, reported: ErrorCode) -> None:
    caller.creation_error = error
    assert await ask(caller, "t", create=True) == {"t": reported}


async def test_a_node_that_does_not_know_all_topics_names_none_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lockstep.broker.metadata.api.metadata.INFORMED_WAIT_SECONDS", 0.0)
    caller = MetadataCaller()
    caller.create("t")
    caller.metadata.cluster.groups.clear()
    assert not caller.metadata.nodes.is_informed
    assert await ask(caller, "t", "u") == {"t": 0, "u": ErrorCode.LEADER_NOT_AVAILABLE}, "what it knows"
    for version in (0, 1, 13):
        with pytest.raises(ConnectionRejected, match="all topics"):
            await caller.call(MetadataRequest(topics=[] if version == 0 else None), version)


async def test_the_response_for_all_topics_is_encoded_again_after_a_change(caller: MetadataCaller) -> None:
    async def names() -> list[str | None]:
        response: MetadataResponse = await caller.call(MetadataRequest(topics=None), 13)
        return [topic.name for topic in response.topics]

    assert await names() == await names() == []
    assert len(caller.metadata.cluster.cached_responses) == 1
    caller.create("t")
    assert await names() == ["t"]


async def test_the_response_for_one_topic_is_encoded_again_after_a_change(caller: MetadataCaller) -> None:
    topic_id = caller.create("t")
    caller.create("u")
    by_name, by_id = MetadataRequestTopic(name="t"), MetadataRequestTopic(name=None, topic_id=topic_id)
    cluster = caller.metadata.cluster
    for version in (9, 13):
        first = await caller.call(MetadataRequest(topics=[by_name]), version)
        assert await caller.call(MetadataRequest(topics=[by_name]), version) == first
        with_operations = MetadataRequest(topics=[by_name], include_topic_authorized_operations=True)
        assert await caller.call(with_operations, version) != first
        other = await caller.call(MetadataRequest(topics=[MetadataRequestTopic(name="u")]), version)
        assert [topic.name for topic in other.topics] == ["u"]
    assert await caller.call(MetadataRequest(topics=[by_id]), 13) == first
    assert len(cluster.cached_topics) == 6, "three for each version; the id's is the name's"
    caller.create("v")
    assert not cluster.cached_topics


async def test_only_so_much_about_single_topics_is_kept(
    caller: MetadataCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = caller.metadata.cluster.cached_topics
    for name in ("a", "b", "c"):
        caller.create(name)
    monkeypatch.setattr(metadata, "MAX_CACHED_TOPICS", 2)
    for name, count in (("a", 1), ("b", 2), ("c", 1)):
        assert await ask(caller, name) == {name: 0}
        assert len(cached) == count
    monkeypatch.setattr(metadata, "MAX_CACHED_BYTES", 10)
    assert await ask(caller, "a") == {"a": 0}
    assert len(cached) == 1


async def test_all_topics_and_none(caller: MetadataCaller) -> None:
    caller.create("b")
    caller.create("a")
    for version, topics, expected in (
        (0, [], ["a", "b"]),
        (1, [], []),
        (1, None, ["a", "b"]),
        (13, None, ["a", "b"]),
        (13, [], []),
    ):
        response: MetadataResponse = await caller.call(MetadataRequest(topics=topics), version)
        assert [topic.name for topic in response.topics] == expected, version


async def test_unknown_topics(caller: MetadataCaller) -> None:
    assert await ask(caller, "no", "b/d", "..") == {
        "no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b/d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


async def test_by_id(caller: MetadataCaller) -> None:
    topic_id = caller.create("t")
    wanted = [MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, b"x" * 16)]
    response: MetadataResponse = await caller.call(MetadataRequest(topics=wanted), 12)
    assert [(each.error_code, each.name, each.topic_id) for each in response.topics] == [
        (0, "t", topic_id),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, b"x" * 16),
    ]
    too_old = await caller.call(MetadataRequest(topics=wanted[:1]), 11)
    assert too_old.topics[0].error_code == ErrorCode.INVALID_REQUEST


async def test_authorized_operations(caller: MetadataCaller) -> None:
    caller.create("t")
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="t")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    response: MetadataResponse = await caller.call(request, 8)
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000


async def test_makes_none_where_it_is_off() -> None:
    caller = MetadataCaller(auto_create_topics_enable=False)
    assert await ask(caller, "t", create=True) == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert caller.created == []
