"""LockstepCluster, an API of our own for `lockstep cluster` (`broker/controller/cluster_admin.py`).

ApiVersions does not list it. Any node serves the status and giving up damaged records; the controller serves
the rest.
"""

from __future__ import annotations

import json
from typing import Any, Final

from lockstep.broker.controller.cluster_admin import ClusterAdmin
from lockstep.broker.controller.cluster_status import give_up, status
from lockstep.broker.controller.group_report import Document
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.api import RequestHeader
from lockstep.protocol.cluster_messages import (
    CLUSTER_API_KEY,
    LockstepClusterRequest,
    LockstepClusterResponse,
)
from lockstep.protocol.errors import ErrorCode

API_KEY = CLUSTER_API_KEY
VERSIONS = (0, 0)

MAX_REQUEST_BYTES: Final = 1000
STATUS: Final = {"do": "status"}


def is_local(request: LockstepClusterRequest) -> bool:
    """True for a command that any node serves."""
    try:
        command = _read(request)
        return command == STATUS or command.get("do") == "give_up"
    except RequestError:
        return True


async def handle(
    context: ClientContext, header: RequestHeader, request: LockstepClusterRequest
) -> LockstepClusterResponse:
    """The result as JSON, or the error and its text."""
    try:
        document = await _execute(context, _read(request))
    except RequestError as rejection:
        return LockstepClusterResponse(error_code=rejection.error, error_message=rejection.message)
    return LockstepClusterResponse(body=json.dumps(document).encode())


def _read(request: LockstepClusterRequest) -> dict[str, Any]:
    if len(request.body) <= MAX_REQUEST_BYTES:
        try:
            command = json.loads(bytes(request.body))
        except (ValueError, RecursionError):
            command = None
        if isinstance(command, dict):
            return command
    raise RequestError(ErrorCode.INVALID_REQUEST, "the request is not a small JSON object")


async def _execute(context: ClientContext, command: dict[str, Any]) -> Document:
    if command == STATUS:
        return await status(context)
    match command:
        case {"do": "add", "node": int(node_id)}:
            return await ClusterAdmin(context.services).add(node_id)
        case {"do": "remove", "node": int(node_id)}:
            return await ClusterAdmin(context.services).remove(node_id)
        case {"do": "transfer", "group": int(number), "node": int(node_id)}:
            return await ClusterAdmin(context.services).transfer(number, node_id)
        case {"do": "give_up", "topic": str(topic), "partition": int(index)}:
            return await _given_up(context, topic, index)
    raise RequestError(ErrorCode.INVALID_REQUEST, "this version does not know the requested command")


async def _given_up(context: ClientContext, topic: str, index: int) -> Document:
    if context.services.cluster.partition(topic, index) is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
    return await give_up(context, topic, index)
