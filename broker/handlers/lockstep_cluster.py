"""LockstepCluster, an API of our own: what `lockstep cluster` asks (`broker/cluster/admin.py`).

Not told in ApiVersions. Status is answered by whoever is asked; the rest by the controller.
"""

from __future__ import annotations

import json
from typing import Any, Final

from broker.cluster.admin import ClusterAdmin
from broker.cluster.group_report import Document
from broker.cluster.reports import status
from broker.context import ClientContext
from broker.refused import Refused
from protocol.api import RequestHeader
from protocol.cluster_messages import CLUSTER_API_KEY, LockstepClusterRequest, LockstepClusterResponse
from protocol.errors import ErrorCode

API_KEY = CLUSTER_API_KEY
VERSIONS = (0, 0)

LARGEST_REQUEST_BYTES: Final = 1000
STATUS: Final = {"do": "status"}


def is_local(request: LockstepClusterRequest) -> bool:
    """Whether any node can answer this."""
    try:
        return _read(request) == STATUS
    except Refused:
        return True


async def handle(
    context: ClientContext, header: RequestHeader, request: LockstepClusterRequest
) -> LockstepClusterResponse:
    """The answer as JSON, or the error in words."""
    try:
        answer = await _done(context, _read(request))
    except Refused as refused:
        return LockstepClusterResponse(error_code=refused.error, error_message=refused.message)
    return LockstepClusterResponse(body=json.dumps(answer).encode())


def _read(request: LockstepClusterRequest) -> dict[str, Any]:
    if len(request.body) <= LARGEST_REQUEST_BYTES:
        try:
            asked = json.loads(bytes(request.body))
        except (ValueError, RecursionError):
            asked = None
        if isinstance(asked, dict):
            return asked
    raise Refused(ErrorCode.INVALID_REQUEST, "the request is no small JSON object")


async def _done(context: ClientContext, asked: dict[str, Any]) -> Document:
    if asked == STATUS:
        return await status(context)
    match asked:
        case {"do": "add", "node": int(node_id)}:
            return await ClusterAdmin(context.services).add(node_id)
        case {"do": "remove", "node": int(node_id)}:
            return await ClusterAdmin(context.services).remove(node_id)
        case {"do": "transfer", "group": int(number), "node": int(node_id)}:
            return await ClusterAdmin(context.services).transfer(number, node_id)
    raise Refused(ErrorCode.INVALID_REQUEST, "what is asked for is not understood by this version")
