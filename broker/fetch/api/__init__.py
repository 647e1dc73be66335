"""Handlers: `fetch`, `list_offsets`, `offset_for_leader_epoch`, `delete_records`."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.fetch.api.delete_records import DeleteRecords
from lockstep.broker.fetch.api.fetch import Fetch
from lockstep.broker.fetch.api.list_offsets import ListOffsets
from lockstep.broker.fetch.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.fetch.fetch_session import FetchSessions
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.requests.request_context import RequestHandler


def build_handlers(
    cluster: MetadataCache,
    sessions: FetchSessions,
    purgatory: FetchPurgatory,
    unsent_bytes: UnsentBytes,
    endpoints: NodeEndpoints,
    may_serve: Callable[[int, int], bool],
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package."""
    return [
        Fetch(cluster, sessions, purgatory, unsent_bytes, endpoints, may_serve, authorizer),
        ListOffsets(cluster, authorizer),
        OffsetForLeaderEpoch(cluster, authorizer),
        DeleteRecords(cluster, authorizer),
    ]
