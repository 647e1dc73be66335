"""What AlterConfigs and IncrementalAlterConfigs have in common: which node acts on which resource.

A node's log levels are changed by the node that is asked, and a broker's configuration is refused by every
other, as in Kafka; the rest of a request goes on to the controller. Each resource has its own outcome.
Source: Kafka's ConfigAdminManager.preprocess.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from broker.cluster_image import WHOLE_CLUSTER
from broker.config_changes import Change, check_node
from broker.context import ClientContext, EncodedResponse
from broker.request_errors import RequestError
from protocol.api import RequestHeader
from protocol.compiler import decode, encode
from protocol.config_resources import ResourceType
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Request = AlterConfigsRequest | IncrementalAlterConfigsRequest
Response = AlterConfigsResponse | IncrementalAlterConfigsResponse
Outcomes = list[RequestError | None]


async def alter(
    context: ClientContext, header: RequestHeader, request: Request, changes: Sequence[Change]
) -> Outcomes:
    """Make each of `changes`, one per resource of the request, here or where it can be made."""
    services = context.services
    outcomes: Outcomes = [None] * len(changes)
    here, there = _shared_out(context, changes, outcomes)
    if services.controller.is_here:
        here, there = here + there, []
    made = await services.config_changes.make([changes[place] for place in here], request.validate_only)
    if there:
        made += await _elsewhere(context, header, request, there)
    for place, outcome in zip(here + there, made, strict=True):
        outcomes[place] = outcome
    return outcomes


def _shared_out(
    context: ClientContext, changes: Sequence[Change], outcomes: Outcomes
) -> tuple[list[int], list[int]]:
    """What is to be made on this node, and what the controller makes; what is neither is refused."""
    here: list[int] = []
    there: list[int] = []
    node_id = context.services.settings.node_id
    for place, change in enumerate(changes):
        if context.is_forwarded:
            there.append(place)
        elif change.resource_type == ResourceType.BROKER_LOGGER:
            here.append(place)
        elif change.resource_type == ResourceType.BROKER and change.resource_name != WHOLE_CLUSTER:
            try:
                check_node(
                    change.resource_name, node_id, "Node", f"Unexpected broker id, expected {node_id},"
                )
                there.append(place)
            except RequestError as refused:
                outcomes[place] = refused
        else:
            there.append(place)
    return here, there


async def _elsewhere(
    context: ClientContext, header: RequestHeader, request: Request, places: Sequence[int]
) -> Outcomes:
    """What the controller says of these resources."""
    version, answer = header.api_version, _ANSWERS[type(request)]
    wanted = copy(request)
    wanted.resources = [request.resources[place] for place in places]  # type: ignore[assignment]
    body = b"".join(bytes(each) for each in encode(wanted, version))
    told = await context.services.controller.forward(context, header, body, lambda: None)
    if not isinstance(told, EncodedResponse):
        error = ErrorCode.NOT_CONTROLLER
        return [RequestError(error, error.message)] * len(places)
    decoded = decode(answer, version, memoryview(b"".join(map(bytes, told.body))), 0)
    return [
        RequestError(ErrorCode(each.error_code), each.error_message or "") if each.error_code else None
        for each in decoded.responses
    ]


_ANSWERS: dict[type[Request], type[Response]] = {
    AlterConfigsRequest: AlterConfigsResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
}
