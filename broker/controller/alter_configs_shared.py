"""The shared part of AlterConfigs and IncrementalAlterConfigs: the node that changes each resource.

A node changes its own log levels, and rejects the configuration of another broker, as in Kafka; it forwards
the rest of a request to the controller. Each resource has its own outcome.
Source: Kafka's ConfigAdminManager.preprocess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from copy import copy

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.controller.config_access import check_config_access
from lockstep.broker.controller.config_changes import ConfigChange, ConfigChanges, check_node
from lockstep.broker.controller.forwarder import ControllerForwarder
from lockstep.broker.metadata.metadata_image import WHOLE_CLUSTER
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, EncodedResponse
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import RequestHeader
from lockstep.protocol.compiler import decode, encode
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from lockstep.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

Request = AlterConfigsRequest | IncrementalAlterConfigsRequest
Response = AlterConfigsResponse | IncrementalAlterConfigsResponse
Outcomes = list[RequestError | None]


class ConfigAlteration:
    """See the module."""

    def __init__(
        self,
        node_id: int,
        forwarder: ControllerForwarder,
        config_changes: ConfigChanges,
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._authorizer = authorizer
        self._node_id = node_id
        self._forwarder = forwarder
        self._config_changes = config_changes

    async def alter(
        self, client: ClientContext, header: RequestHeader, request: Request, changes: Sequence[ConfigChange]
    ) -> Outcomes:
        """Executes each of `changes`, one per resource, here or on the node that can."""
        outcomes: Outcomes = [None] * len(changes)
        local, forwarded = self._split_by_node(client, changes, outcomes)
        denied = self._denial(client, header, changes, [*local, *forwarded])
        for index, rejection in denied.items():
            outcomes[index] = rejection
        local = [index for index in local if index not in denied]
        forwarded = [index for index in forwarded if index not in denied]
        if self._forwarder.is_local_controller:
            local, forwarded = local + forwarded, []
        outcomes_made = await self._config_changes.make(
            [changes[index] for index in local], request.validate_only
        )
        if forwarded:
            outcomes_made += await self._forward_to_controller(client, header, request, forwarded)
        for index, outcome in zip(local + forwarded, outcomes_made, strict=True):
            outcomes[index] = outcome
        return outcomes

    def _denial(
        self,
        client: ClientContext,
        header: RequestHeader,
        changes: Sequence[ConfigChange],
        indexes: Sequence[int],
    ) -> dict[int, RequestError]:
        """The errors of those changes that the client may not make; a resource that is named twice gets
        another error."""
        access = self._authorizer.access(header.api_key)
        counts = Counter((each.resource_type, each.resource_name) for each in changes)
        denied: dict[int, RequestError] = {}
        for index in indexes:
            resource = changes[index].resource_type, changes[index].resource_name
            try:
                if counts[resource] == 1:
                    check_config_access(access, client, AclOperation.ALTER_CONFIGS, *resource)
            except RequestError as rejection:
                denied[index] = rejection
        return denied

    def _split_by_node(
        self, client: ClientContext, changes: Sequence[ConfigChange], outcomes: Outcomes
    ) -> tuple[list[int], list[int]]:
        """The changes for this node and those for the controller; any other one is rejected."""
        local: list[int] = []
        forwarded: list[int] = []
        node_id = self._node_id
        for index, change in enumerate(changes):
            if client.is_forwarded:
                forwarded.append(index)
            elif change.resource_type == ResourceType.BROKER_LOGGER:
                local.append(index)
            elif change.resource_type == ResourceType.BROKER and change.resource_name != WHOLE_CLUSTER:
                try:
                    check_node(
                        change.resource_name, node_id, "Node", f"Unexpected broker id, expected {node_id},"
                    )
                    forwarded.append(index)
                except RequestError as rejection:
                    outcomes[index] = rejection
            else:
                forwarded.append(index)
        return local, forwarded

    async def _forward_to_controller(
        self, client: ClientContext, header: RequestHeader, request: Request, indexes: Sequence[int]
    ) -> Outcomes:
        """The controller's outcomes for these resources."""
        version, response_type = header.api_version, _RESPONSE_TYPES[type(request)]
        partial_request = copy(request)
        partial_request.resources = [request.resources[index] for index in indexes]  # type: ignore[assignment]
        body = b"".join(bytes(each) for each in encode(partial_request, version))
        response = await self._forwarder.forward(client, header, body, lambda: None)
        if not isinstance(response, EncodedResponse):
            error = ErrorCode.NOT_CONTROLLER
            return [RequestError(error, error.message)] * len(indexes)
        decoded = decode(response_type, version, memoryview(b"".join(map(bytes, response.body))), 0)
        return [
            RequestError(ErrorCode(each.error_code), each.error_message or "") if each.error_code else None
            for each in decoded.responses
        ]


_RESPONSE_TYPES: dict[type[Request], type[Response]] = {
    AlterConfigsRequest: AlterConfigsResponse,
    IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
}
