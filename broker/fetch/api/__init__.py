"""Handlers: `fetch`, `list_offsets`, `offset_for_leader_epoch`, `delete_records`."""

from __future__ import annotations

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.fetch.api.delete_records import DeleteRecords
from lockstep.broker.fetch.api.fetch import Fetch
from lockstep.broker.fetch.api.list_offsets import ListOffsets
from lockstep.broker.fetch.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from lockstep.broker.fetch.fetch_requests import FetchRequests
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.requests.time_slices import TimeSlicer


def build_handlers(
    requests: FetchRequests, time_slicer: TimeSlicer, authorizer: Authorizer = ALLOW_ALL
) -> list[RequestHandler]:
    """Builds the handlers of this package."""
    cluster = requests.cluster
    return [
        Fetch(requests),
        ListOffsets(cluster, time_slicer, authorizer),
        OffsetForLeaderEpoch(cluster, authorizer),
        DeleteRecords(cluster, authorizer),
    ]
