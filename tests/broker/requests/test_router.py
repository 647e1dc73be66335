"""The table of handlers: ApiVersions is computed from it and differs only by the named traps."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest

from compat_tests import kafka_apis
from lockstep.broker.metadata.api.api_versions import FEATURE_LEVELS
from lockstep.broker.requests.request_context import ClientContext, Needs, PendingResponse, RequestHandler
from lockstep.broker.requests.router import ADVERTISED_FROM, MAX_REQUEST_BYTES, Router
from lockstep.broker.server import Broker
from lockstep.protocol.api import ApiKey, RequestHeader, read_request_header
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages import MESSAGES
from lockstep.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from lockstep.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker import fakes
from tests.broker.served import served_versions
from tests.broker.wire import Client, frame, produce_request
from tests.support.cases import each_case

ROOT = Path(__file__).resolve().parents[3]

NEWEST_IS_NOT_SERVED = {
    ApiKey.INIT_PRODUCER_ID,  # Kafka has not released version 6 (KIP-939)
    ApiKey.TXN_OFFSET_COMMIT,  # Kafka 4.4.0's producer is lost with version 6 when a topic is re-created
}


def kafkas_handlers(broker: Broker) -> list[RequestHandler]:
    """The handlers of Kafka's APIs, without Lockstep's own."""
    return [handler for handler in broker.assembly.connections.router.handlers if handler.is_advertised]


async def test_each_handler_serves_what_the_codec_knows(broker: Broker) -> None:
    handlers = kafkas_handlers(broker)
    assert len({handler.api_key for handler in handlers}) == len(handlers)
    for handler in handlers:
        known = MESSAGES[handler.api_key][0].SCHEMA.versions
        assert handler.versions[0] in known
        assert handler.versions[1] == known.high - (handler.api_key in NEWEST_IS_NOT_SERVED), handler


async def test_what_was_taken_is_counted_by_kafkas_names(broker: Broker, client: Client) -> None:
    router = broker.assembly.connections.router
    assert router.request_counts().keys() == {
        *map(_name, kafkas_handlers(broker)),
        "LockstepCluster",
        "LockstepStaged",
    }
    before = router.request_counts()["ApiVersions"]
    await client.call(NAMED, 4)
    await client.call(NAMED, 3)
    unserved = bytearray(frame(ApiVersionsRequest(), 4))
    unserved[6:8] = struct.pack(">h", 99)
    client.writer.write(unserved)
    await client.receive_raw()
    assert router.request_counts()["ApiVersions"] == before + 2, (
        "not the one that is told what to try instead"
    )


def _name(handler: Any) -> str:
    return ApiKey(handler.api_key).name.title().replace("_", "")


OWN = "own"
"""Stands for the cluster id of the broker under test."""
NAMED = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")


@pytest.mark.parametrize("version", range(6))
async def test_api_versions(broker: Broker, client: Client, version: int) -> None:
    response: ApiVersionsResponse = await client.call(NAMED, version)
    told = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    served = {int(handler.api_key): handler.versions for handler in kafkas_handlers(broker)}
    assert told.keys() == served.keys()
    differing = {key for key in told if told[key] != tuple(served[key])}
    assert differing == set(ADVERTISED_FROM) == {ApiKey.PRODUCE}
    assert told[ApiKey.PRODUCE] == (0, served[ApiKey.PRODUCE][1])
    # Clients would push telemetry, which nobody reads.
    assert not told.keys() & {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert told == kafka_apis.listed_by_lockstep()
    supported = [(each.name, each.min_version, each.max_version) for each in response.supported_features]
    finalized = [
        (each.name, each.min_version_level, each.max_version_level) for each in response.finalized_features
    ]
    # A lowest version of 0 breaks Java clients before 3.9, which ask in version 3 (KAFKA-17011).
    names = ("lockstep.atomic", "lockstep.locks", "lockstep.staged")
    own = [(name, 1, 1) for name in names] if version >= 3 else []
    assert (
        supported == ([("transaction.version", 0, 2), ("group.version", 0, 1)] if version >= 4 else []) + own
    )
    assert finalized == (
        [("transaction.version", 2, 2), ("group.version", 1, 1), *own] if version >= 3 else []
    )
    assert response.finalized_features_epoch == (4 if version >= 3 else -1)


@pytest.mark.parametrize("version", [6, 7, 32767])
async def test_a_newer_api_versions_request_gets_version_0(client: Client, version: int) -> None:
    request = bytearray(frame(ApiVersionsRequest(), 4, 77))
    request[6:8] = struct.pack(">h", version)
    client.writer.write(request)
    raw = await asyncio.wait_for(client.receive_raw(), 5)
    assert raw == struct.pack(">ihihhh", 77, ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, 0, 5)
    response: ApiVersionsResponse = await client.call(NAMED, 4)
    assert response.error_code == 0


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, ErrorCode.NONE),
        (OWN, 1, ErrorCode.NONE),
        (OWN, -1, ErrorCode.INVALID_REQUEST),
        (None, 1, ErrorCode.INVALID_REQUEST),
        ("another", -1, ErrorCode.INVALID_REQUEST),
        (None, 9, ErrorCode.INVALID_REQUEST),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (OWN, 9, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (OWN, -2, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_a_client_that_means_another_cluster_or_node_gets_no_table(
    client: Client, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    metadata = await client.call(MetadataRequest(topics=[]), 12)
    asked = ApiVersionsRequest(
        client_software_name="test",
        client_software_version="1.0",
        cluster_id=metadata.cluster_id if cluster_id == OWN else cluster_id,
        node_id=node_id,
    )
    response: ApiVersionsResponse = await client.call(asked, 5)
    assert (response.error_code, bool(response.api_keys)) == (error, error is ErrorCode.NONE)
    has_features = bool(response.supported_features or response.finalized_features)
    assert has_features == (error is ErrorCode.NONE)
    assert (await client.call(NAMED, 4)).error_code == 0, "the connection stays open"


async def test_an_invalid_client_name_is_noticed_before_a_wrong_cluster(client: Client) -> None:
    asked = ApiVersionsRequest(client_software_name="", cluster_id="another", node_id=1)
    assert (await client.call(asked, 5)).error_code == ErrorCode.INVALID_REQUEST


async def test_what_carries_no_data_may_not_be_large(broker: Broker, client: Client) -> None:
    def asked(count: int) -> MetadataRequest:
        return MetadataRequest(topics=[MetadataRequestTopic(name="x" * 32_000)] * count)

    assert (await client.call(asked(200), 12)).topics
    doomed = await Client.connect(broker.port)
    doomed.send(asked(MAX_REQUEST_BYTES // 32_000 + 1), 12)
    assert await doomed.is_closed()
    assert (await client.call(NAMED, 4)).error_code == 0
    await client.create("t")
    assert (await client.call(produce_request("t", bytes(MAX_REQUEST_BYTES + 1)), 9)).responses, (
        "refused, not closed"
    )


class FakeLeadership:
    """A leadership that is confirmed when the test says so."""

    def __init__(self) -> None:
        self.confirmation: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def confirm(self) -> asyncio.Future[bool]:
        return self.confirmation


class CoordinatorHandler(RequestHandler):
    """Notes the requests that it serves; `lapsed`: the leadership that they need, without a lease."""

    api_key = ApiKey.HEARTBEAT
    versions = (0, 4)
    needs = Needs.COORDINATOR

    def __init__(self, lapsed: list[FakeLeadership]) -> None:
        self.lapsed = lapsed
        self.served: list[str] = []
        self.response: object = HeartbeatResponse()

    def lapsed_leaderships(self, request: HeartbeatRequest) -> list[FakeLeadership]:
        return self.lapsed

    def handle(self, client: ClientContext, header: RequestHeader, request: HeartbeatRequest) -> object:
        self.served.append(request.group_id)
        return self.response


def route(handler: RequestHandler) -> tuple[Any, bytearray]:
    """The response to a Heartbeat of group `g`, and the buffer that it was received into."""
    buffer = bytearray(frame(HeartbeatRequest(group_id="g"), 4)[4:])
    header, pos = read_request_header(memoryview(buffer))
    router = Router([handler], FakeForwarder(), lambda: None)
    return router.route(fakes.client(), header, memoryview(buffer), pos), buffer


class FakeForwarder:
    is_local_controller = True

    def forward(self, *arguments: object) -> object:
        raise AssertionError("nothing is forwarded")


async def test_with_a_lease_a_handler_is_called_at_once() -> None:
    handler = CoordinatorHandler([])
    response, _ = route(handler)
    assert response is handler.response and handler.served == ["g"]


@each_case("leads", [True, False])
async def test_without_a_lease_a_handler_is_called_once_after_the_read_barrier(leads: bool) -> None:
    leadership = FakeLeadership()
    handler = CoordinatorHandler([leadership])
    response, buffer = route(handler)
    task = asyncio.ensure_future(response)
    await asyncio.sleep(0)
    buffer[:] = bytes(len(buffer))  # the next request is received into it
    assert handler.served == []
    handler.lapsed = [leadership] if leads else []
    leadership.confirmation.set_result(leads)
    assert await task is handler.response
    assert handler.served == ["g"]


async def test_a_pending_response_is_not_waited_for_behind_the_barrier() -> None:
    leadership = FakeLeadership()
    leadership.confirmation.set_result(True)
    handler = CoordinatorHandler([leadership])
    handler.response = PendingResponse()
    response, _ = route(handler)
    assert await response is handler.response


def test_each_api_of_kafka_is_listed_or_has_its_reason() -> None:
    served = served_versions()
    assert served.keys() | kafka_apis.NOT_LISTED.keys() == kafka_apis.KAFKAS.keys()
    assert not served.keys() & kafka_apis.NOT_LISTED.keys()
    listed = kafka_apis.listed_by_lockstep()
    assert {key for key in listed if listed[key] != kafka_apis.KAFKAS[key]} == kafka_apis.LOWER.keys()
    page = (ROOT / "docs" / "compatibility.md").read_text()
    assert "\n".join(kafka_apis.tables()) in page


def test_each_feature_of_kafka_is_listed_or_has_its_reason() -> None:
    of_kafka = {name for name in FEATURE_LEVELS if not name.startswith("lockstep.")}
    assert of_kafka | kafka_apis.FEATURES_NOT_LISTED.keys() == kafka_apis.FEATURES.keys()
    for name in of_kafka:
        lowest, highest, level = FEATURE_LEVELS[name]
        assert ((lowest, highest), level) == kafka_apis.FEATURES[name]
