"""AlterConfigs (33): all that a resource sets itself, at once; what is not named is reset.

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible. Clients of today send
IncrementalAlterConfigs, which changes only what it names (KIP-339).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int8, int16, int32, message, string, struct


@struct()
class AlterableConfig(Struct):
    """One configuration."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct()
class AlterConfigsResource(Struct):
    """One resource with all it is to set itself."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(api_key=33, versions="0-2", flexible="2+", kind="request")
class AlterConfigsRequest(Struct):
    """Resources to configure, or only to check."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct()
class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(api_key=33, versions="0-2", flexible="2+", kind="response")
class AlterConfigsResponse(Struct):
    """A result for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
