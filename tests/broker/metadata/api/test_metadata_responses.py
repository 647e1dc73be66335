"""Metadata, called without a broker: errors by topic, ids, operations, and which topics are created."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.broker.metadata.api import metadata
from lockstep.broker.requests import sliced_response
from lockstep.broker.requests.request_context import ConnectionRejected, EncodedResponse
from lockstep.protocol.compiler import encode
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
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
    monkeypatch.setattr("lockstep.broker.metadata.api.metadata.METADATA_WAIT_SECONDS", 0.0)
    caller = MetadataCaller()
    caller.create("t")
    caller.metadata.cluster.groups.clear()
    assert not caller.metadata.nodes.has_replayed_metadata
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


@pytest.fixture
def many(caller: MetadataCaller, monkeypatch: pytest.MonkeyPatch) -> MetadataCaller:
    """Three topics, which are many here."""
    for name in ("c", "a", "b"):
        caller.create(name, 3)
    for module in (metadata, sliced_response):
        monkeypatch.setattr(module, "MAX_ITEMS_ENCODED_HERE", 8)
    return caller


ALL = MetadataRequest(topics=None)


@pytest.mark.parametrize("version", [0, 5, 9, 13])
async def test_many_partitions_get_the_same_response(
    caller: MetadataCaller, many: MetadataCaller, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    requests = [
        MetadataRequest(topics=[] if version == 0 else None),
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in ("b", "c", "a")]),
    ]
    large = [await many.call(request, version) for request in requests]
    many.metadata.cluster.on_change()
    monkeypatch.setattr(metadata, "MAX_ITEMS_ENCODED_HERE", 9)
    monkeypatch.setattr(sliced_response, "MAX_ITEMS_ENCODED_HERE", 9)
    assert [await caller.call(request, version) for request in requests] == large
    assert [len(topic.partitions) for response in large for topic in response.topics] == [3] * 6


async def test_clients_that_ask_together_share_the_response_of_many(
    many: MetadataCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[object] = []

    async def encode_in_thread(response: Struct, version: int) -> EncodedResponse:
        encoded.append(response)
        await asyncio.sleep(0)
        return EncodedResponse(list(encode(response, version)))

    monkeypatch.setattr(metadata, "encode_in_thread", encode_in_thread)
    answers = await asyncio.gather(*[many.call(ALL, 13) for _ in range(10)], many.call(ALL, 12))
    assert len(encoded) == 2, "one for each version"
    assert all(answer == answers[0] for answer in answers[:10])
    assert await many.call(ALL, 13) == answers[0] and len(encoded) == 2, "it is kept"


async def test_a_response_that_a_change_overtook_is_not_kept(
    many: MetadataCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def encode_in_thread(response: Struct, version: int) -> EncodedResponse:
        many.create("d")
        return EncodedResponse(list(encode(response, version)))

    with monkeypatch.context() as patched:
        patched.setattr(metadata, "encode_in_thread", encode_in_thread)
        overtaken = await many.call(ALL, 13)
    assert [topic.name for topic in overtaken.topics] == ["a", "b", "c"]
    assert many.metadata.cluster.cached_responses == {}
    assert [topic.name for topic in (await many.call(ALL, 13)).topics] == ["a", "b", "c", "d"]


async def test_so_many_bytes_about_all_topics_are_kept(
    caller: MetadataCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller.create("a")
    cached = caller.metadata.cluster.cached_responses
    for version, count in ((11, 1), (12, 2), (13, 3)):
        await caller.call(ALL, version)
        assert len(cached) == count
    monkeypatch.setattr(metadata, "MAX_CACHED_RESPONSES_BYTES", 10)
    await caller.call(ALL, 10)
    assert len(cached) == 1
