"""IncrementalAlterConfigs (44): changes to the configuration of resources (KIP-339).

Versions: 1 flexible. Operations: 0 set, 1 delete, 2 append to a list, 3 subtract from a list.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int8, int16, int32, message, string, struct


@struct()
class AlterableConfig(Struct):
    """One change."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@struct()
class AlterConfigsResource(Struct):
    """One resource and its changes."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@message(api_key=44, versions="0-1", flexible="1+", kind="request")
class IncrementalAlterConfigsRequest(Struct):
    """Resources to change, or only to check."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@struct()
class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@message(api_key=44, versions="0-1", flexible="1+", kind="response")
class IncrementalAlterConfigsResponse(Struct):
    """A result for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
