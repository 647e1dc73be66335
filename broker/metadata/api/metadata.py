"""Metadata: brokers, topics, partitions; creates missing topics where that is allowed.

A missing topic is created at once and the response waits for it, at most a second; a leader is named once it
is known to serve a new partition, for which the response waits at most `SERVED_WAIT_SECONDS`. After that, or
after a creation that failed temporarily, the client retries on LEADER_NOT_AVAILABLE. A node that has just
started and knows no controller returns that error for an unknown topic; it closes the connection of a request
for all topics, as there is no error code for an incomplete list.
Source: Kafka's KafkaApis.getTopicMetadata and handleTopicMetadataRequest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Access, Authorizer
from lockstep.broker.metadata.metadata_cache import (
    INTERNAL_TOPICS,
    METADATA_GROUP,
    MetadataCache,
    Partition,
    Topic,
)
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.node_view import NodeView
from lockstep.broker.metadata.replica_state import ReplicaStates
from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.requests.authorized_operations import NOT_REQUESTED
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import (
    ClientContext,
    ConnectionRejected,
    EncodedResponse,
    HandlerResponse,
    RequestHandler,
    await_response,
)
from lockstep.broker.requests.sliced_response import (
    MAX_ITEMS_ENCODED_HERE,
    encode_in_thread,
    encode_large,
    respond_in_slices,
)
from lockstep.broker.requests.time_slices import TimeSlice, TimeSlicer
from lockstep.broker.settings.properties import MIB
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.compiler import encode
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from lockstep.protocol.primitives import ZERO_UUID

Key = TypeVar("Key")

TOPICS_BY_ID_MIN_VERSION: Final = 12
LISTENER_NOT_FOUND_MIN_VERSION: Final = 6
MAX_CACHED_RESPONSES: Final = 32
MAX_CACHED_RESPONSES_BYTES: Final = 32 * MIB
"""LIMIT. Bytes of all responses about all topics that are kept."""
MAX_CACHED_TOPICS: Final = 1000
"""LIMIT. Responses about one topic that are kept."""
MAX_CACHED_BYTES: Final = 8192
"""LIMIT. A larger one, of some hundred partitions, is not kept."""
MAX_CREATION_WAIT_SECONDS: Final = 1.0
METADATA_WAIT_SECONDS: Final = 1.0
METADATA_POLLS: Final = 50
SERVED_WAIT_SECONDS: Final = 0.25
"""The leader of a new partition replays its record at about the same time as this node."""


EnsureTopic = Callable[[str], Awaitable[object]]
"""Creates a topic unless it exists, and waits for it. Raises RequestError."""


class Metadata(RequestHandler):
    """See the module."""

    api_key = ApiKey.METADATA
    versions = (0, 13)

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeView,
        endpoints: NodeEndpoints,
        ensure_topic: EnsureTopic,
        time_slicer: TimeSlicer,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._nodes = nodes
        self._endpoints = endpoints
        self._ensure_topic = ensure_topic
        self._time_slicer = time_slicer
        self._under_way: dict[tuple[object, ...], asyncio.Future[EncodedResponse]] = {}
        """Responses about all topics that are being made, for all clients that request them meanwhile."""

    def handle(
        self, client: ClientContext, header: RequestHeader, request: MetadataRequest
    ) -> HandlerResponse:
        """Respond at once, unless topics must be created first, or this node has just started without a
        controller."""
        if not self._nodes.has_replayed_metadata:
            return self._respond_after_replay(client, header, request)
        return self._respond(client, header, request)

    async def _respond_after_replay(
        self, client: ClientContext, header: RequestHeader, request: MetadataRequest
    ) -> object | None:
        """Wait for the metadata of a node that has just started: an unknown topic may exist."""
        for _ in range(METADATA_POLLS):
            await asyncio.sleep(METADATA_WAIT_SECONDS / METADATA_POLLS)
            if self._nodes.has_replayed_metadata:
                break
        else:
            if _requested_topics(header, request) is None:
                raise ConnectionRejected(
                    "a client requested all topics, and this node does not know all of them yet"
                )
        return await await_response(self._respond(client, header, request))

    def _respond(
        self, client: ClientContext, header: RequestHeader, request: MetadataRequest
    ) -> HandlerResponse:
        builder = _MetadataBuilder(
            self._cluster,
            self._nodes,
            self._endpoints,
            client,
            header.api_version,
            request,
            self._access,
            self._time_slicer,
        )
        requested = _requested_topics(header, request)
        if requested is None:
            return builder.all_topics(self._under_way)
        if header.api_version < TOPICS_BY_ID_MIN_VERSION and any(
            each.name is None or each.topic_id != ZERO_UUID for each in requested
        ):
            return builder.response(
                [_error_topic(each.name or "", ErrorCode.INVALID_REQUEST) for each in requested]
            )
        ids = dict.fromkeys(each.topic_id for each in requested if each.topic_id != ZERO_UUID)
        if any(each.name is None and each.topic_id == ZERO_UUID for each in requested):
            return builder.response(
                [_error_topic(each.name or "", ErrorCode.INVALID_REQUEST) for each in requested]
            )
        is_same_for_all = not self._access.is_checked
        if is_same_for_all and len(ids) == 1 and (topic := self._cluster.topic_by_id(*ids)) is not None:
            return builder.one_topic(topic)
        if ids:
            return builder.when_served(ids, builder.by_id)
        names = list(dict.fromkeys(each.name for each in requested if each.name is not None))
        missing = builder.missing_topics(names)
        if missing:
            return self._create_and_respond(builder, names, missing)
        if is_same_for_all and len(names) == 1 and (topic := self._cluster.topic(names[0])) is not None:
            return builder.one_topic(topic)
        return builder.when_served(names, builder.by_name)

    async def _create_and_respond(
        self, builder: _MetadataBuilder, names: list[str], missing: list[str]
    ) -> object | None:
        failures = dict(zip(missing, await asyncio.gather(*map(self._create, missing)), strict=True))

        def metadata_of(name: str) -> MetadataResponseTopic:
            error = failures.get(name, ErrorCode.NONE)
            return builder.by_name(name) if error is ErrorCode.NONE else builder.topic_error(name, error)

        return await await_response(builder.when_served(names, metadata_of))

    async def _create(self, name: str) -> ErrorCode:
        try:
            await asyncio.wait_for(self._ensure_topic(name), MAX_CREATION_WAIT_SECONDS)
        except RequestError as rejection:
            if rejection.error in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NOT_CONTROLLER):
                return ErrorCode.LEADER_NOT_AVAILABLE
            return rejection.error
        except TimeoutError:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.NONE


def _requested_topics(header: RequestHeader, request: MetadataRequest) -> list[MetadataRequestTopic] | None:
    """The requested topics, or None for all, which version 0 means by an empty list."""
    return None if header.api_version == 0 and not request.topics else request.topics


class _MetadataBuilder:
    """Builds one Metadata response."""

    __slots__ = (
        "_access",
        "_client",
        "_cluster",
        "_cluster_operations",
        "_endpoints",
        "_may_create",
        "_nodes",
        "_not_creatable",
        "_replicas",
        "_time_slicer",
        "_version",
        "_wants_operations",
    )

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeView,
        endpoints: NodeEndpoints,
        client: ClientContext,
        api_version: int,
        request: MetadataRequest,
        access: Access,
        time_slicer: TimeSlicer,
    ) -> None:
        self._access = access
        self._time_slicer = time_slicer
        self._not_creatable: set[str] = set()
        """Missing topics that the client may not create."""
        self._cluster = cluster
        self._nodes = nodes
        self._endpoints = endpoints
        self._client = client
        self._version = api_version
        self._cluster_operations = request.include_cluster_authorized_operations
        self._replicas = self._replica_states()
        self._wants_operations = request.include_topic_authorized_operations
        self._may_create = request.allow_auto_topic_creation and cluster.settings.auto_create_topics_enable

    def _replica_states(self) -> ReplicaStates:
        return ReplicaStates(self._cluster, self._nodes, self._endpoints, self._client)

    def response(self, topics: list[MetadataResponseTopic]) -> MetadataResponse:
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in self._endpoints.all(self._client)
            ],
            cluster_id=self._cluster.cluster_id,
            controller_id=self._nodes.live_leader_of(METADATA_GROUP),
            topics=topics,
        )
        if self._cluster_operations:
            response.cluster_authorized_operations = self._access.cluster_operations(self._client)
        return response

    def when_served(
        self, keys: Iterable[Key], metadata_of: Callable[[Key], MetadataResponseTopic]
    ) -> HandlerResponse:
        """The response for these topics, once the leaders of new partitions are known to serve them.

        That takes milliseconds, so that waiting spares the client a retry with LEADER_NOT_AVAILABLE.
        """

        def respond(topics: list[MetadataResponseTopic]) -> HandlerResponse:
            if self._replicas.is_complete:
                return self._encode_large(topics)
            return self._respond_when_complete(keys, metadata_of)

        return respond_in_slices(self._time_slicer, keys, metadata_of, respond)

    async def _respond_when_complete(
        self, keys: Iterable[Key], metadata_of: Callable[[Key], MetadataResponseTopic]
    ) -> object | None:
        """Build the response again, once: when each awaited leader has reported that it applied group 0 up to
        the required index, or on timeout."""
        await _wait_until_applied(self._nodes, self._replicas.unconfirmed_leaders)
        self._replicas = self._replica_states()
        return await await_response(
            respond_in_slices(self._time_slicer, keys, metadata_of, self._encode_large)
        )

    def _encode_large(self, topics: list[MetadataResponseTopic]) -> HandlerResponse:
        return encode_large(self.response(topics), self._version, _partition_count(topics))

    def all_topics(
        self, under_way: dict[tuple[object, ...], asyncio.Future[EncodedResponse]]
    ) -> HandlerResponse:
        """The response for all topics that the client may describe. Where that is all of them it is encoded
        once per version and address until a topic changes, as many clients send the same request."""
        cluster = self._cluster
        if self._access.is_checked:
            topics = [each for each in cluster.topics() if self._may_describe(each.name, False)]
            return respond_in_slices(self._time_slicer, topics, self.topic_metadata, self._encode_large)
        key = self._key()
        encoded = cluster.cached_responses.get(key)
        if encoded is not None:
            return encoded
        if cluster.partition_count <= MAX_ITEMS_ENCODED_HERE:
            response = self.response([self.topic_metadata(topic) for topic in cluster.topics()])
            encoded = EncodedResponse(encode(response, self._version))
            self._keep(key, encoded)
            return encoded
        work = (*key, cluster.changes)
        shared = under_way.get(work)
        if shared is None:
            shared = under_way[work] = asyncio.ensure_future(self._encode_all(key, cluster.changes))
            shared.add_done_callback(lambda done: under_way.pop(work))
        return asyncio.shield(shared)

    async def _encode_all(self, key: tuple[object, ...], changes: int) -> EncodedResponse:
        """The response of a cluster with many partitions, made in time slices and encoded in a thread."""
        topics: list[MetadataResponseTopic] = []
        time_slice = TimeSlice()
        for topic in self._cluster.topics():
            if time_slice.is_over:
                await asyncio.sleep(0)
                time_slice = TimeSlice()
            topics.append(self.topic_metadata(topic))
        encoded = await encode_in_thread(self.response(topics), self._version)
        if (changes, key) == (self._cluster.changes, self._key()):
            self._keep(key, encoded)
        return encoded

    def _keep(self, key: tuple[object, ...], encoded: EncodedResponse) -> None:
        """Keep a response for the next clients, if each leader is known to serve its partitions."""
        cache = self._cluster.cached_responses
        if not self._replicas.is_complete:
            return
        size = _size(encoded) + sum(map(_size, cache.values()))
        if len(cache) >= MAX_CACHED_RESPONSES or size > MAX_CACHED_RESPONSES_BYTES:
            cache.clear()
        cache[key] = encoded

    def one_topic(self, topic: Topic) -> HandlerResponse:
        """The response for one topic where all clients get the same, kept as that for all topics is: each
        asks for its own again and again."""
        cache = self._cluster.cached_topics
        key = (*self._key(), topic.topic_id)
        encoded = cache.get(key)
        if encoded is None:
            response = self.when_served((topic,), self.topic_metadata)
            if not isinstance(response, MetadataResponse):
                return response
            encoded = EncodedResponse(encode(response, self._version))
            if _size(encoded) <= MAX_CACHED_BYTES:
                if len(cache) >= MAX_CACHED_TOPICS:
                    cache.clear()
                cache[key] = encoded
        return encoded

    def _key(self) -> tuple[object, ...]:
        """All that a response depends on but the cluster's topics and settings."""
        client, own = self._client, self._endpoints.own(self._client)
        address = (client.listener, own.host, own.port)
        seen = self._nodes.client_view()
        return (self._version, address, self._wants_operations, self._cluster_operations, seen)

    def topic_metadata(self, topic: Topic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self.partition(partition) for partition in topic.partitions],
            topic_authorized_operations=self._operations(topic.name),
        )

    def _operations(self, name: str) -> int:
        """The authorized operations of a topic, if they are requested."""
        if not self._wants_operations:
            return NOT_REQUESTED
        return self._access.authorized_operations(self._client, AclResourceType.TOPIC, name)

    def _may_describe(self, name: str, is_requested: bool = True) -> bool:
        return self._access.allows(
            self._client, AclOperation.DESCRIBE, AclResourceType.TOPIC, name, is_requested=is_requested
        )

    def partition(self, partition: Partition) -> MetadataResponsePartition:
        replicas = self._replicas.of(partition)
        error = replicas.error
        if error is ErrorCode.LISTENER_NOT_FOUND and self._version < LISTENER_NOT_FOUND_MIN_VERSION:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=partition.index,
            leader_id=replicas.leader_id,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas.nodes,
            isr_nodes=replicas.in_sync,
            offline_replicas=replicas.offline,
        )

    def by_id(self, topic_id: bytes) -> MetadataResponseTopic:
        topic = self._cluster.topic_by_id(topic_id)
        error = ErrorCode.UNKNOWN_TOPIC_ID
        if topic is not None:
            if self._may_describe(topic.name):
                return self.topic_metadata(topic)
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return MetadataResponseTopic(error_code=error, name=None, topic_id=topic_id)

    def by_name(self, name: str) -> MetadataResponseTopic:
        if not self._may_describe(name):
            return MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = self._cluster.topic(name)
        if topic is None and name in self._not_creatable:
            return _error_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic is not None:
            return self.topic_metadata(topic)
        try:
            check_name(name)
        except RequestError as rejection:
            return self.topic_error(name, rejection.error)
        has_replayed_metadata = self._nodes.has_replayed_metadata
        error = (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if has_replayed_metadata else ErrorCode.LEADER_NOT_AVAILABLE
        )
        return self.topic_error(name, error)

    def topic_error(self, name: str, error: ErrorCode) -> MetadataResponseTopic:
        """The error of a topic, with its authorized operations even for an unknown one, as in Kafka
        (KIP-430)."""
        topic = _error_topic(name, error)
        topic.topic_authorized_operations = self._operations(name)
        return topic

    def missing_topics(self, names: list[str]) -> list[str]:
        """The topics that must be created first, and may be by this client."""
        if not self._may_create:
            return []
        cluster = self._cluster
        missing = [name for name in names if cluster.topic(name) is None and self._may_describe(name)]
        if not self._access.allows_on_cluster(self._client, AclOperation.CREATE, is_requested=False):
            self._not_creatable = {
                name
                for name in missing
                if not self._access.allows(self._client, AclOperation.CREATE, AclResourceType.TOPIC, name)
            }
            missing = [name for name in missing if name not in self._not_creatable]
        return missing[: self._cluster.settings.lockstep_max_topics_per_metadata]


async def _wait_until_applied(nodes: NodeView, unconfirmed_leaders: Mapping[int, int]) -> None:
    """Wait until each of these nodes has followed group 0 to its index, at most `SERVED_WAIT_SECONDS`."""
    followed = asyncio.Event()

    def look() -> None:
        if all([nodes.has_followed(node_id, index) for node_id, index in unconfirmed_leaders.items()]):
            followed.set()

    nodes.on_notification[look] = None
    look()  # a status may have arrived between building `unconfirmed_leaders` and registering the listener
    try:
        async with asyncio.timeout(SERVED_WAIT_SECONDS):
            await followed.wait()
    except TimeoutError:
        pass
    finally:
        del nodes.on_notification[look]


def _partition_count(topics: Iterable[MetadataResponseTopic]) -> int:
    return sum([len(topic.partitions) for topic in topics])


def _size(response: EncodedResponse) -> int:
    return sum(map(len, response.body))


def _error_topic(name: str, error: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, is_internal=name in INTERNAL_TOPICS)
