"""AlterConfigs: each resource sets the named configurations and no others (KIP-133)."""

from __future__ import annotations

from lockstep.broker.controller.alter_configs_shared import ConfigAlteration
from lockstep.broker.controller.config_changes import MAX_MESSAGE, ConfigChange, ConfigEdit
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.config_resources import ConfigOperation
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


class AlterConfigs(RequestHandler):
    """See the module."""

    api_key = ApiKey.ALTER_CONFIGS
    versions = (0, 2)

    def __init__(self, alteration: ConfigAlteration) -> None:
        self._alteration = alteration

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: AlterConfigsRequest
    ) -> AlterConfigsResponse:
        """Make the valid changes."""
        changes = [
            ConfigChange(
                resource.resource_type,
                resource.resource_name,
                [ConfigEdit(each.name, ConfigOperation.SET, each.value) for each in resource.configs],
                replaces=True,
            )
            for resource in request.resources
        ]
        outcomes = await self._alteration.alter(client, header, request, changes)
        return AlterConfigsResponse(
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
