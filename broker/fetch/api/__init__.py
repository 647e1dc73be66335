"""Handlers: `fetch`, `list_offsets`, `offset_for_leader_epoch`, `delete_records`."""

from __future__ import annotations

from lockstep.broker.fetch.api.delete_records import DeleteRecords
from lockstep.broker.fetch.api.list_offsets import ListOffsets
from lockstep.broker.fetch.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from lockstep.broker.metadata.metadata_cache import Cluster
from lockstep.broker.requests.request_context import RequestHandler


def handlers(cluster: Cluster) -> list[RequestHandler]:
    """The handlers of this room."""
    return [ListOffsets(cluster), OffsetForLeaderEpoch(cluster), DeleteRecords(cluster)]
