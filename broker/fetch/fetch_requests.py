"""The Fetch requests of a broker: what they share, and one that is decoded, from its reads to its response.

Invariants: a waiting request costs one entry per partition and no task, and an unknown partition does not end
the wait for others. How much is read: `partition_reads.py`; the errors: `partition_check.py`. Does not: begin
sessions (`api/fetch.py`), or recognise requests (`fetch_fast_path.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.fetch.aborted_transactions import offset_after
from lockstep.broker.fetch.fetch_purgatory import DelayedFetch, FetchPurgatory
from lockstep.broker.fetch.fetch_session import (
    TOPIC_IDS_MIN_VERSION,
    FetchContext,
    FetchItem,
    FetchSessions,
)
from lockstep.broker.fetch.partition_check import FetchAccess, PartitionCheck
from lockstep.broker.fetch.partition_reads import ColdRead, PartitionReads, ReadLimits, read_from_memory
from lockstep.broker.fetch.replica_selector import RackAwareReplicaSelector
from lockstep.broker.metadata.current_leader import FETCH_ERRORS, FETCH_MIN_VERSION, leader_endpoints
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.quotas.quota_manager import NO_QUOTAS, QuotaManager
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, PendingResponse
from lockstep.broker.settings.kafka_names import RACK_AWARE_SELECTOR
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey
from lockstep.protocol.compiler import encode
from lockstep.protocol.frame_reader import LENGTH_BYTES
from lockstep.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)

READ_COMMITTED: Final = 1
REPLICA_STATE_MIN_VERSION: Final = 15
MIN_REPAIR_WAIT_SECONDS: Final = 3.0
"""A fetch with a shorter max wait waits this long for read repair: a segment of 64 MiB comes from another
node in about a second, and late records are better than CORRUPT_MESSAGE."""


class FetchRequests:
    """The parts that all Fetch requests share. Args: may_serve: returns whether a node serves consumers of a
    log group."""

    __slots__ = (
        "_access", "_may_serve", "_unsent_bytes", "cluster", "endpoints", "purgatory", "quotas", "sessions",
    )  # fmt: skip

    def __init__(
        self,
        cluster: MetadataCache,
        sessions: FetchSessions,
        purgatory: FetchPurgatory,
        unsent_bytes: UnsentBytes,
        endpoints: NodeEndpoints,
        may_serve: Callable[[int, int], bool],
        authorizer: Authorizer = ALLOW_ALL,
        quotas: QuotaManager = NO_QUOTAS,
    ) -> None:
        self.quotas = quotas
        self._access = authorizer.access(ApiKey.FETCH)
        self.cluster = cluster
        self.sessions = sessions
        self.purgatory = purgatory
        self.endpoints = endpoints
        self._unsent_bytes = unsent_bytes
        self._may_serve = may_serve

    def open_request(
        self,
        client: ClientContext,
        api_version: int,
        request: FetchRequest,
        fetch_context: FetchContext,
        client_id: str | None = None,
    ) -> DecodedFetch:
        """A request for the partitions of `fetch_context`; those that it names itself are not looked at."""
        is_consumer = replica_id_of(request, api_version) < 0
        quota = self.quotas.quota_of(client, client_id) if is_consumer else None
        burst = math.inf if quota is None or quota.fetch is None else quota.fetch.burst
        return DecodedFetch(
            self,
            client,
            api_version,
            request,
            fetch_context,
            self.check(client, api_version, request),
            self.limits(request, burst),
            client_id,
            is_consumer,
        )

    def limits(self, request: FetchRequest, burst: float = math.inf) -> ReadLimits:
        """The limits of a request. Args: burst: what its client's quota allows at once."""
        settings = self.cluster.settings
        max_bytes = int(max(0, min(request.max_bytes, settings.fetch_max_bytes, burst)))
        read_committed = request.isolation_level == READ_COMMITTED
        return ReadLimits(max_bytes, read_committed, settings, self._unsent_bytes)

    def check(self, client: ClientContext, api_version: int, request: FetchRequest) -> PartitionCheck:
        """The checks of a request's partitions."""
        nearby: RackAwareReplicaSelector | None = None
        if request.rack_id and self.cluster.settings.replica_selector_class == RACK_AWARE_SELECTOR:
            nearby = RackAwareReplicaSelector(
                request.rack_id, client, self.endpoints, self.cluster, self._may_serve
            )
        replica_id = replica_id_of(request, api_version)
        access = None
        if self._access.is_checked:
            may_replicate = replica_id < 0 or self._access.allows_on_cluster(
                client, AclOperation.CLUSTER_ACTION
            )
            access = FetchAccess(self._access, client, replica_id >= 0, may_replicate)
        read_committed = request.isolation_level == READ_COMMITTED
        return PartitionCheck(self.cluster, api_version, replica_id, read_committed, nearby, access)


def replica_id_of(request: FetchRequest, api_version: int) -> int:
    """The replica id that a request names; -1 for a consumer."""
    if api_version >= REPLICA_STATE_MIN_VERSION:
        return request.replica_state.replica_id
    return request.replica_id


class LongPoll(PendingResponse):
    """A response that may take as long as the client's max wait; of its request only the items are kept."""

    __slots__ = ()
    holds_request = False


class DecodedFetch:
    """One Fetch request under way."""

    __slots__ = (
        "_api_version", "_check", "_client", "_client_id", "_counted_bytes", "_counted_offsets",
        "_delayed_fetch", "_fetch_context", "_is_consumer", "_limits", "_max_wait_ms", "_min_bytes",
        "_pending", "_requests",
    )  # fmt: skip

    def __init__(
        self,
        requests: FetchRequests,
        client: ClientContext,
        api_version: int,
        request: FetchRequest,
        fetch_context: FetchContext,
        check: PartitionCheck,
        limits: ReadLimits,
        client_id: str | None,
        is_consumer: bool,
    ) -> None:
        self._client_id, self._is_consumer = client_id, is_consumer
        self._requests = requests
        self._client = client
        self._api_version = api_version
        self._fetch_context = fetch_context
        self._check = check
        self._limits = limits
        self._max_wait_ms = request.max_wait_ms
        self._min_bytes = min(request.min_bytes, limits.max_bytes)
        self._pending: LongPoll | None = None
        self._delayed_fetch: DelayedFetch | None = None
        self._counted_offsets: list[int] = []
        self._counted_bytes = 0

    def start(self) -> HandlerResponse:
        """The response, at once or later."""
        reads = PartitionReads(self._fetch_context, self._check, self._limits)
        cold = reads.read()
        if cold is not None:
            return self._read_cold(reads, cold)
        if reads.total >= self._min_bytes or reads.is_urgent or self._max_wait_ms <= 0:
            return self._response(reads.found)
        partitions = self._deduplicate_items()
        self._counted_offsets = [item.fetch_offset for item in self._fetch_context.items]
        if reads.total and self._limits.allowed_bytes() <= self._min_bytes and self._has_enough():
            return self._response(reads.found)  # there is more, but no room for it
        self._pending = pending = LongPoll()
        pending.on_disconnect = self._cancel
        self._delayed_fetch = self._requests.purgatory.wait(self._attempt, partitions, self._max_wait_ms)
        return pending

    def _deduplicate_items(self) -> list[Partition]:
        """The known partitions. A partition that is named more than once keeps only its last item, so a
        waiting request has at most one item for each partition, and its size need not count. Unknown ones
        come last."""
        items = self._fetch_context.items
        known_items = {item.partition: item for item in items if item.partition is not None}
        if len(known_items) < len(items):
            unknown_items = {(item.topic, item.index): item for item in items if item.partition is None}
            self._fetch_context.items = [*known_items.values(), *unknown_items.values()]
        return list(known_items)

    def _cancel(self) -> None:
        delayed_fetch, self._delayed_fetch, self._pending = self._delayed_fetch, None, None
        if delayed_fetch is not None:
            self._requests.purgatory.cancel(delayed_fetch)

    async def _read_cold(self, reads: PartitionReads, cold: ColdRead) -> FetchResponse:
        repair_wait_s = max(MIN_REPAIR_WAIT_SECONDS, self._max_wait_ms / 1000)
        await reads.read_all(cold, asyncio.get_running_loop().time() + repair_wait_s)
        return self._response(reads.found)

    # --- waiting ------------------------------------------------------------------------------------------

    def _attempt(self, expired: bool) -> bool:
        """Responds if there is enough now, or the time is over."""
        pending = self._pending
        assert pending is not None
        try:
            if not expired and not self._has_enough():
                return False
            self._delayed_fetch = self._pending = None  # which refer to this: no garbage collector is needed
            self.complete(pending)
        except Exception as error:
            pending.fail(error)
        return True

    def complete(self, pending: PendingResponse) -> None:
        """Respond with what there is now, at once or when it is read from the disk."""
        reads = PartitionReads(self._fetch_context, self._check, self._limits)
        cold = reads.read()
        if cold is None:
            pending.complete(self._response(reads.found))
        else:
            task = asyncio.ensure_future(self._read_cold(reads, cold))
            task.add_done_callback(pending.complete_from)

    def _has_enough(self) -> bool:
        """True if min_bytes can be read, or as much as the limits allow. Each batch is counted once."""
        counted_offsets, limits = self._counted_offsets, self._limits
        minimum = min(self._min_bytes, limits.allowed_bytes())
        for index, item in enumerate(self._fetch_context.items):
            partition = item.partition
            if partition is None:
                break  # this one and those behind it are unknown
            if partition.topic.deleted or has_changed_role(partition, item):
                return True
            end = limits.end_offset(partition)
            if end <= counted_offsets[index]:
                continue
            missing = minimum - self._counted_bytes
            if missing <= 1:
                return True
            result = read_from_memory(partition, counted_offsets[index], missing, end)
            if result is None:  # on the disk, deleted while the request waited, or unreadable
                return True
            counted_offsets[index] = end
            self._counted_bytes += result.total_bytes
            if result.total_bytes >= missing or (result.buffers and offset_after(result.buffers[-1]) < end):
                return True  # the next batch is more than was missing
        return False

    # --- the response -----------------------------------------------------------------------------------

    def _response(self, partition_data: list[tuple[FetchItem, PartitionData]]) -> FetchResponse:
        session = self._fetch_context.session
        by_id = self._api_version >= TOPIC_IDS_MIN_VERSION
        topics: list[FetchableTopicResponse] = []
        topic_key: str | bytes | None = None
        leader_ids: set[int] = set()
        for item, data in partition_data:
            if item.topic != topic_key:
                topic_key = item.topic
                topics.append(
                    FetchableTopicResponse(topic_id=topic_key)  # type: ignore[arg-type]
                    if by_id
                    else FetchableTopicResponse(topic=topic_key)  # type: ignore[arg-type]
                )
            topics[-1].partitions.append(data)
            if data.error_code in FETCH_ERRORS:
                leader_ids.add(data.current_leader.leader_id)
        response = FetchResponse(session_id=self._fetch_context.session_id, responses=topics)
        if leader_ids and self._api_version >= FETCH_MIN_VERSION:
            response.node_endpoints = [
                NodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
                for each in leader_endpoints(sorted(leader_ids), self._requests.endpoints, self._client)
            ]
        if self._is_consumer and self._requests.quotas.is_active:
            throttle_ms = self._charge(response)
            if throttle_ms:
                return self._throttled_response(throttle_ms)
        if session is not None:
            for item, data in partition_data:
                item.update_cached(data)
                if data.records:
                    session.move_to_end(item)
        return response

    def _charge(self, response: FetchResponse) -> int:
        """Count a response for the client's quota; returns how long it must wait before it gets it, and then
        counts nothing."""
        quotas = self._requests.quotas
        quota = quotas.quota_of(self._client, self._client_id)
        if quota is None or quota.fetch is None:
            return 0
        now_ms = quotas.clock_ms()
        size = LENGTH_BYTES + sum(map(len, encode(response, self._api_version)))
        throttle_ms = quota.fetch.charge(size, now_ms)
        if throttle_ms:
            quota.fetch.record(-size, now_ms)
        return throttle_ms

    def _throttled_response(self, throttle_ms: int) -> FetchResponse:
        """An empty response; a session that the request began is not there, as in Kafka."""
        context = self._fetch_context
        if context.session is not None and not context.is_incremental:
            self._requests.sessions.close(context.session)
            context.session = None
        return FetchResponse(session_id=context.session_id, throttle_time_ms=throttle_ms)


def has_changed_role(partition: Partition, item: FetchItem) -> bool:
    """True if this node's role in the partition has changed since the last check."""
    return partition.group.is_leader is item.is_follower_read or not partition.is_here
