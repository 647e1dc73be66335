"""From a request frame to the handler that serves it.

Owns: the table of handlers, and ApiVersions' content, which is computed from it. It differs from what is
served only where a client would break otherwise: Produce is advertised from 0 (KAFKA-18659).
Invariants: an unknown API or version closes the connection, as in Kafka; but for ApiVersions itself, where
the client is told what to try instead.
Does not: read frames or write replies (`connection.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from broker.context import Answer, ClientContext, ConnectionRefused, Handler, Services
from broker.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    create_acls,
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
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
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
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from protocol.api import ApiKey, RequestHeader, messages_for
from protocol.compiler import decode
from protocol.fields import Struct

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
    api_versions,
    create_topics,
    delete_topics,
    init_producer_id,
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
    describe_acls,
    create_acls,
    delete_acls,
)
"""Every API this broker serves."""

ADVERTISED_FROM: Final[Mapping[int, int]] = {ApiKey.PRODUCE: 0}
"""Lowest versions told to clients where they are below what is served: librdkafka before its fix takes a
higher one for a broker that knows no compression."""


class UnsupportedRequest(ConnectionRefused):
    """An API or a version that is not served; the connection is closed."""


class _Route:
    __slots__ = ("first", "handle", "last", "request")

    def __init__(self, handler: Handler) -> None:
        self.first, self.last = handler.VERSIONS
        self.request: type[Struct] = messages_for(handler.API_KEY)[0]
        self.handle: Callable[[ClientContext, RequestHeader, Any], Answer] = handler.handle


class Router:
    """The table, for one broker."""

    __slots__ = ("_routes", "_services")

    def __init__(self, services: Services, handlers: Iterable[Handler] = HANDLERS) -> None:
        self._services = services
        self._routes = {int(handler.API_KEY): _Route(handler) for handler in handlers}
        services.versions = {
            key: (ADVERTISED_FROM.get(key, route.first), route.last) for key, route in self._routes.items()
        }

    def answer(self, context: ClientContext, header: RequestHeader, frame: memoryview, pos: int) -> Answer:
        """Decode the body at `pos` and hand it to its handler.

        May set `header.api_version` to the version that the answer is to be encoded in.
        Raises UnsupportedRequest, MalformedMessage, or whatever a handler raises.
        """
        route = self._routes.get(header.api_key)
        if route is None:
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
        return route.handle(context, header, decode(route.request, version, frame, pos, trailing=True))


def _name(api_key: int) -> str:
    try:
        return f"{ApiKey(api_key).name} ({api_key})"
    except ValueError:
        return str(api_key)
