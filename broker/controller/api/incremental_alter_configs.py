"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from named configurations (KIP-339)."""

from __future__ import annotations

from lockstep.broker.controller.alter_configs_shared import ConfigAlteration
from lockstep.broker.controller.config_changes import MAX_MESSAGE, ConfigChange, ConfigEdit
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class IncrementalAlterConfigs(RequestHandler):
    """See the module."""

    api_key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    versions = (0, 1)

    def __init__(self, alteration: ConfigAlteration) -> None:
        self._alteration = alteration

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: IncrementalAlterConfigsRequest
    ) -> IncrementalAlterConfigsResponse:
        """Make the valid changes."""
        changes = [
            ConfigChange(
                resource.resource_type,
                resource.resource_name,
                [ConfigEdit(each.name, each.config_operation, each.value) for each in resource.configs],
            )
            for resource in request.resources
        ]
        outcomes = await self._alteration.alter(client, header, request, changes)
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=ErrorCode.NONE if rejection is None else rejection.error,
                    error_message=None if rejection is None else rejection.message[:MAX_MESSAGE],
                    resource_type=change.resource_type,
                    resource_name=change.resource_name,
                )
                for change, rejection in zip(changes, outcomes, strict=True)
            ]
        )
