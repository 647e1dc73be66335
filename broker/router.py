"""Routes a request frame to its handler.

Owns: the table of handlers, and ApiVersions' content, which is computed from it. It differs from what is
served only where a client would fail otherwise: Produce is advertised from 0 (KAFKA-18659).
Invariants: an unknown API or version closes the connection, as in Kafka; but for ApiVersions itself, where
the response names the versions to try. A request for a coordinator without a lease is served after a read
barrier; the next request of its connection waits until then.
Does not: read frames or write replies (`connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from broker.context import (
    ClientContext,
    ConnectionRejected,
    Handler,
    HandlerResponse,
    PendingResponse,
    Services,
    await_response,
)
from broker.coordination.coordinator_shard import LeaseExpired, with_read_barrier
from broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    lockstep_cluster,
    lockstep_staged,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    unregister_controller,
    update_features,
    write_txn_markers,
)
from broker.settings.properties import MIB
from protocol.api import ApiKey, RequestHeader, messages_for
from protocol.compiler import decode
from protocol.fields import Struct
from protocol.peer_messages import PeerHandshake

HANDLERS: Final[tuple[Any, ...]] = (
    produce,
    fetch,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    find_coordinator,
    join_group,
    sync_group,
    heartbeat,
    leave_group,
    describe_groups,
    list_groups,
    delete_groups,
    sasl_handshake,
    api_versions,
    create_topics,
    delete_topics,
    init_producer_id,
    add_partitions_to_txn,
    end_txn,
    write_txn_markers,
    offset_for_leader_epoch,
    offset_delete,
    describe_configs,
    describe_cluster,
    alter_configs,
    incremental_alter_configs,
    describe_client_quotas,
    alter_client_quotas,
    describe_user_scram_credentials,
    list_config_resources,
    create_partitions,
    delete_records,
    describe_topic_partitions,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    list_transactions,
    elect_leaders,
    alter_partition_reassignments,
    list_partition_reassignments,
    describe_quorum,
    alter_replica_log_dirs,
    sasl_authenticate,
    create_delegation_token,
    renew_delegation_token,
    expire_delegation_token,
    describe_delegation_token,
    alter_user_scram_credentials,
    update_features,
    unregister_broker,
    add_raft_voter,
    remove_raft_voter,
    unregister_controller,
    describe_acls,
    create_acls,
    delete_acls,
    add_offsets_to_txn,
    txn_offset_commit,
)
"""Every API of Kafka's that this broker serves."""

LOCKSTEP_HANDLERS: Final[tuple[Any, ...]] = (lockstep_cluster, lockstep_staged)
"""The APIs of `lockstep` and the Spark sink; served, but not advertised."""

ADVERTISED_FROM: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 0}
"""Lowest advertised versions that are below the served ones: librdkafka before its fix takes a higher one for
a broker without compression."""


MAX_REQUEST_BYTES: Final = 8 * MIB
"""LIMIT. Bytes of a request, whatever `socket.request.max.bytes` allows: the largest of ordinary clients name
50,000 partitions, and a hundred megabytes of indexes would block the loop for minutes."""

MAY_BE_LARGE: Final = frozenset({ApiKey.PRODUCE, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""These carry data. The metadata of a group's members has a limit of its own (`broker/groups/`)."""


class UnsupportedRequest(ConnectionRejected):
    """An API or a version that is not served; the connection is closed."""


class RequestTooLarge(ConnectionRejected):
    """More bytes than such a request may have; the connection is closed, as for a frame that is too large."""


FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lockstep_cluster.API_KEY,
    }
)
"""Requests that only the controller serves; the other nodes forward them. Configuration changes are not among
them: each node handles a part of them (`broker/handlers/alter_configs_shared.py`)."""


class _Route:
    __slots__ = ("first", "forwarded", "handle", "is_local", "last", "request", "request_count")

    def __init__(self, handler: Handler) -> None:
        self.first, self.last = handler.VERSIONS
        self.forwarded = handler.API_KEY in FORWARDED
        self.is_local: Callable[[Any], bool] = getattr(handler, "is_local", _is_never_local)
        self.request: type[Struct] = messages_for(handler.API_KEY)[0]
        self.handle: Callable[[ClientContext, RequestHeader, Any], HandlerResponse] = handler.handle
        self.request_count = 0
        """The number of requests of a served version."""

    def serve(self, context: ClientContext, header: RequestHeader, body: bytes) -> HandlerResponse:
        """Serve a copied request."""
        request = decode(self.request, header.api_version, body, 0, trailing=True)
        return self.handle(context, header, request)


class Router:
    """The table, for one broker."""

    __slots__ = ("_routes", "_services")

    def __init__(self, services: Services, handlers: Iterable[Handler] = HANDLERS) -> None:
        self._services = services
        self._routes = {int(handler.API_KEY): _Route(handler) for handler in handlers}
        services.versions = {
            key: (ADVERTISED_FROM.get(key, route.first), route.last) for key, route in self._routes.items()
        }
        self._routes |= {handler.API_KEY: _Route(handler) for handler in LOCKSTEP_HANDLERS}

    def route(
        self, context: ClientContext, header: RequestHeader, frame: memoryview, pos: int
    ) -> HandlerResponse:
        """Decode the body at `pos` and hand it to its handler.

        May set `header.api_version` to the version that the answer is to be encoded in.
        Raises UnsupportedRequest, RequestTooLarge, MalformedMessage, or whatever a handler raises.
        """
        route = self._routes.get(header.api_key)
        if route is None:
            if header.api_key == PeerHandshake.SCHEMA.api_key:
                raise UnsupportedRequest(
                    "a node takes this port for a replication listener: its --peers names the wrong one"
                )
            raise UnsupportedRequest(f"API {_name(header.api_key)} is not served")
        version = header.api_version
        if not route.first <= version <= route.last:
            if header.api_key == ApiKey.API_VERSIONS:
                header.api_version = 0
                return api_versions.unknown_version(self._services)
            raise UnsupportedRequest(
                f"version {version} of API {_name(header.api_key)} is not served, "
                f"only {route.first} to {route.last}"
            )
        if len(frame) > MAX_REQUEST_BYTES and header.api_key not in MAY_BE_LARGE:
            raise RequestTooLarge(
                f"{_name(header.api_key)} of {len(frame)} bytes, at most {MAX_REQUEST_BYTES}"
            )
        route.request_count += 1
        request = decode(route.request, version, frame, pos, trailing=True)
        if route.forwarded and not self._services.controller.is_here and not route.is_local(request):
            body = bytes(frame[pos:])
            return self._services.controller.forward(
                context, header, body, partial(route.serve, context, header, body)
            )
        try:
            return route.handle(context, header, request)
        except LeaseExpired:
            return _with_barrier(partial(route.serve, context, header, bytes(frame[pos:])))

    def request_counts(self) -> dict[str, int]:
        """The number of requests of each API so far, by Kafka's names."""
        routes = self._routes.values()
        return {route.request.__name__.removesuffix("Request"): route.request_count for route in routes}


async def _with_barrier(serve: Callable[[], HandlerResponse]) -> object | None:
    """The response of `serve`; a PendingResponse is returned as it is, so that the connection takes further
    requests meanwhile."""
    response = await with_read_barrier(serve)
    return response if isinstance(response, PendingResponse) else await await_response(response)


def _is_never_local(request: object) -> bool:
    return False


def _name(api_key: int) -> str:
    try:
        return f"{ApiKey(api_key).name} ({api_key})"
    except ValueError:
        return str(api_key)
