"""Requests of the right shape that ask for nothing, for everything, for another's, for ever."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from lockstep.broker.network.listeners import is_loopback
from lockstep.broker.server import Broker
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.topic_config import TOPIC_PROPERTIES
from lockstep.protocol.api import ApiKey
from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from lockstep.protocol.messages.fetch import FetchRequest, ReplicaState
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest
from lockstep.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from lockstep.protocol.messages.metadata import MetadataRequest
from lockstep.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from lockstep.protocol.primitives import MalformedMessage
from tests.broker.bad_input.attack import INT_MAX, SERVED, api_id, framed, head, outcome, request_class
from tests.broker.conftest import StartBroker
from tests.broker.fakes import open_connections
from tests.broker.wire import Client, batch, fetch_request
from tests.support.cases import each_case

EMPTY = {"string": "", "bytes": b"", "records": b""}
STYLES = ("defaults", "nulls", "empty", "one empty element", "one null element")


def hollow(cls: type[Struct], version: int, style: str) -> Any:
    """A request with nothing in it: every array empty, or of one hollow element; strings empty or null."""
    made = cls()
    for field in cls.SCHEMA.fields:
        if version not in field.versions or style == "defaults":
            continue
        may_be_null = version in field.nullable
        wire = field.wire
        if may_be_null and style in ("nulls", "one null element") and wire.element is None:
            value: Any = None
        elif may_be_null and style == "nulls":
            value = None
        elif wire.element is not None:
            value = [_element(wire.element, version, style)] if style.startswith("one") else []
        elif wire.struct is not None:
            value = hollow(wire.struct, version, style)
        elif wire.name in EMPTY:
            value = EMPTY[wire.name]
        else:
            continue
        setattr(made, field.name, value)
    return made


def _element(wire: Any, version: int, style: str) -> Any:
    if wire.struct is not None:
        return hollow(wire.struct, version, style)
    return EMPTY.get(wire.name, bytes(16) if wire.name == "uuid" else 0)


@each_case("served", SERVED, ids=api_id)
async def test_empty_collections_in_every_request(target: Broker, served: tuple[int, int, int]) -> None:
    """CVE-2026-83525: a request without topics or partitions ended a controller; here every array of every
    request is empty, then null, then has one element that is itself empty."""
    key, first, last = served
    sent = 0
    for version in range(first, last + 1):
        for style in STYLES:
            try:
                body = encode_bytes(hollow(request_class(key), version, style), version)
            except MalformedMessage:
                continue  # this version cannot say it
            sent += 1
            assert await outcome(target.port, framed(head(key, version) + body)) in ("answered", "closed")
    assert sent >= last - first + 1


@each_case("served", SERVED, ids=api_id)
async def test_a_body_of_zeros_and_no_body(target: Broker, served: tuple[int, int, int]) -> None:
    """CVE-2026-83525: the same without a table: no body at all, and bodies of zeros."""
    key, first, last = served
    for version in {first, last}:
        for body in (b"", b"\0", bytes(7), bytes(500), b"\xff" * 60):
            assert await outcome(target.port, framed(head(key, version) + body)) in ("answered", "closed")


async def test_a_client_that_claims_to_be_a_replica(target: Broker) -> None:
    """CVE-2018-1288: replica_id in a Fetch neither reads nor moves anything; elsewhere it means nothing."""
    client = await Client.connect(target.port)
    await client.create("t")
    await client.produce("t", batch(b"one", b"two"))
    for replica_id in (0, 1, 2, INT_MAX):
        for version in (4, 11, 12):
            asked = fetch_request({"t": {0: 0}}, replica_id=replica_id)
            data = (await client.call(asked, version)).responses[0].partitions[0]
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not data.records
        asked = fetch_request({"t": {0: 0}}, replica_state=ReplicaState(replica_id=replica_id))
        asked.topics[0].topic_id = target.assembly.cluster.topic("t").topic_id  # type: ignore[union-attr]
        data = (await client.call(asked, 17)).responses[0].partitions[0]
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not data.records
    for replica_id in (-2, 0, 1, INT_MAX, -(2**31)):
        latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
        offsets = ListOffsetsRequest(
            replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[latest])]
        )
        assert (await client.call(offsets, 7)).topics[0].partitions[0].offset == 2
        epochs = OffsetForLeaderEpochRequest(
            replica_id=replica_id,
            topics=[OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0)])],
        )
        assert (await client.call(epochs, 4)).topics[0].partitions[0].end_offset <= 2
    assert (await client.fetch("t", 0)).high_watermark == 2
    await client.close()


async def test_producer_ids_for_transactions(target: Broker) -> None:
    """CVE-2018-17196, CVE-2023-50976: a transactional id is checked before any identity is given."""
    client = await Client.connect(target.port)
    for version in range(6):
        for name in ("", "x" * 32_000):
            asked = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=-1)
            answer = await client.call(asked, version)
            if name == "":
                assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert answer.error_code != ErrorCode.NONE
            assert answer.producer_id == -1
    await client.close()


async def test_a_fetch_that_waits_for_ever(target: Broker) -> None:
    """Max_wait_ms and min_bytes of INT_MAX cost one entry each, and go with their connection."""
    client = await Client.connect(target.port)
    await client.create("t")
    waiting = [await Client.connect(target.port) for _ in range(200)]
    for place, each in enumerate(waiting):
        min_bytes = INT_MAX if place % 2 else 1
        each.send(fetch_request({"t": {0: 0}}, max_wait_ms=INT_MAX, min_bytes=min_bytes), 12)
    fetches = target.assembly.fetch_purgatory
    await _until(lambda: fetches.count == 200)
    await client.produce("t", batch(b"wakes those that wait for one byte"))
    await _until(lambda: fetches.count == 100)
    for each in waiting:
        await each.close()
    await _until(lambda: fetches.count == 0)
    partition = target.assembly.cluster.partition("t", 0)
    assert partition is not None and not partition.delayed_fetches
    for wait_ms in (-1, -(2**31)):
        assert (await client.fetch("t", 1, max_wait_ms=wait_ms)).error_code == 0
    await client.close()


async def _until(holds: Any) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be")


async def test_forged_session_ids(target: Broker) -> None:
    """An id that was never given, another's id, another's id to end it: nobody reads another's."""
    owner, forger = await Client.connect(target.port), await Client.connect(target.port)
    await owner.create("t")
    await owner.produce("t", batch(b"secret"))
    opened = await owner.call(fetch_request({"t": {0: 1}}, session_id=0, session_epoch=0), 12)
    assert opened.session_id > 0
    guesses = [0, 1, -1, INT_MAX, -(2**31), opened.session_id ^ 1]
    for session_id in guesses:
        answer = await forger.call(FetchRequest(session_id=session_id, session_epoch=1), 12)
        assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert not answer.responses
    for epoch in (2, 7, INT_MAX, -2, -(2**31)):
        asked = FetchRequest(session_id=opened.session_id, session_epoch=epoch)
        assert (await forger.call(asked, 12)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    ended = await forger.call(FetchRequest(session_id=opened.session_id, session_epoch=-1), 12)
    assert ended.error_code == 0
    assert not ended.responses
    lost = await owner.call(FetchRequest(session_id=opened.session_id, session_epoch=1), 12)
    assert lost.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # and Kafka's clients begin a new one
    await owner.close()
    await forger.close()


async def test_sessions_without_end(start_broker: StartBroker) -> None:
    """A client that only opens sessions fills its share of memory and no more."""
    broker = await start_broker(max_incremental_fetch_session_cache_slots="50")
    client = await Client.connect(broker.port)
    await client.create("t", partitions=4)
    asked = fetch_request({"t": dict.fromkeys(range(4), 0)}, session_id=0, session_epoch=0)
    given = [(await client.call(asked, 12)).session_id for _ in range(300)]
    sessions = broker.assembly.fetch_sessions
    assert (len(sessions), sessions.partition_count) == (50, 200)
    assert given[50:] == [0] * 250
    await client.close()


async def test_all_topics_requested_by_many_clients(start_broker: StartBroker) -> None:
    """300 clients ask for the metadata of 2,000 topics and do not read: the answer is there once."""
    broker = await start_broker(num_partitions="4")
    client = await Client.connect(broker.port)
    names = [CreatableTopic(name=f"topic-{n}", num_partitions=1, replication_factor=1) for n in range(2_000)]
    await client.call(CreateTopicsRequest(topics=names), 7)
    many = [await Client.connect(broker.port) for _ in range(300)]
    for each in many:
        each.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            each.send(MetadataRequest(topics=None), 12)
    await asyncio.sleep(0.5)
    assert len(broker.assembly.cluster.cached_responses) == 1
    limit = broker.settings.lockstep_connection_write_buffer_bytes
    for connection in open_connections(broker.assembly.connections):
        held = connection._output_bytes + connection._pending_reply_bytes
        assert held + connection._transport.get_write_buffer_size() < limit + (512 << 10)
    assert len((await client.call(MetadataRequest(topics=None), 12)).topics) == 2_000
    for each in many:
        await each.close()
    await client.close()


@each_case("partitions", [100_000, INT_MAX, 0, -2, -(2**31)])
async def test_a_hundred_thousand_partitions(target: Broker, partitions: int) -> None:
    """RequestError for what they are, before anything is made."""
    client = await Client.connect(target.port)
    for validate_only in (True, False):
        wanted = CreatableTopic(name="wide", num_partitions=partitions, replication_factor=1)
        asked = CreateTopicsRequest(topics=[wanted], validate_only=validate_only)
        (result,) = (await client.call(asked, 7)).topics
        assert result.error_code in (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_PARTITIONS)
    assert (await client.call(MetadataRequest(topics=None), 12)).topics == []
    await client.close()


async def test_a_hundred_thousand_partitions_in_other_words(target: Broker) -> None:
    """The same as 10^5 topics of one partition, and as 10^5 assignments by hand."""
    client = await Client.connect(target.port)
    one = [CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=1) for n in range(100_000)]
    asked = CreateTopicsRequest(topics=one, validate_only=True)
    client.send(asked, 7)
    try:
        _, answer = await asyncio.wait_for(client.receive(asked, 7), 20)
        codes = [result.error_code for result in answer.topics]  # type: ignore[attr-defined]
        assert codes.count(ErrorCode.POLICY_VIOLATION) == 90_000
    except asyncio.IncompleteReadError:
        pass  # refused by the decoder: more memory than a request of its size may take
    await client.close()
    client = await Client.connect(target.port)
    by_hand = [CreatableReplicaAssignment(partition_index=n, broker_ids=[1]) for n in range(100_000)]
    asked = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=by_hand)]
    )
    client.send(asked, 7)
    try:
        _, answer = await asyncio.wait_for(client.receive(asked, 7), 20)
        assert answer.topics[0].error_code == ErrorCode.POLICY_VIOLATION  # type: ignore[attr-defined]
    except asyncio.IncompleteReadError:
        pass
    assert list(target.assembly.cluster.topics()) == []
    await client.close()


async def test_configurations_that_name_a_place_or_code(target: Broker) -> None:
    """CVE-2025-27817, -27818, -27819: no client may set a URL, a path, a class or a login module."""
    suspicious = ("url", "uri", "path", "dir", "dirs", "file", "class", "jaas", "module", "providers", "host")
    for name in TOPIC_PROPERTIES:
        assert name.split(".")[-1] not in suspicious, name
    client = await Client.connect(target.port)
    for name in ("sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url", "log.dirs", "metric.reporters"):
        wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        wanted.configs = [_config(name, "com.sun.security.auth.module.JndiLoginModule required;")]
        (result,) = (await client.call(CreateTopicsRequest(topics=[wanted]), 7)).topics
        assert result.error_code == ErrorCode.INVALID_CONFIG
    await client.close()


def _config(name: str, value: str) -> Any:
    from lockstep.protocol.messages.create_topics import CreatableTopicConfig

    return CreatableTopicConfig(name=name, value=value)


async def test_nothing_listens_to_the_world_by_default(target: Broker) -> None:
    """CVE-2026-82266: without access control the default is this machine only."""
    for listener in Settings().client_listeners():
        assert listener.host == "localhost"
    for sockets in target._sockets.values():
        assert all(is_loopback(each) for each in sockets)


async def test_the_table_of_served_apis_is_the_routers(target: Broker) -> None:
    """What is generated above follows the router: a new API is attacked from the day it is served."""
    handlers = target.assembly.connections.router.handlers
    assert [key for key, _, _ in SERVED] == sorted(each.api_key for each in handlers if each.is_advertised)
    assert {ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.API_VERSIONS} <= {key for key, _, _ in SERVED}
    for key, first, last in SERVED:
        for version in range(first, last + 1):
            assert struct.unpack_from(">hh", head(key, version)) == (key, version)
            assert hollow(request_class(key), version, "defaults") == request_class(key)()
