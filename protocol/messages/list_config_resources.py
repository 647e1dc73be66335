"""ListConfigResources (74): what can have, or has, configurations.

Versions: 0 is ListClientMetricsResources (KIP-1000); 1 the other types of resources (KIP-1142).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, message, string, struct


@message(api_key=74, versions="0-1", flexible="0+", kind="request")
class ListConfigResourcesRequest(Struct):
    """The requested types; none means all."""

    resource_types: list[int] = array(int8, versions="1+")


@struct()
class ConfigResource(Struct):
    """One resource."""

    resource_name: str = string()
    resource_type: int = int8(default=16, versions="1+", ignorable=True)


@message(api_key=74, versions="0-1", flexible="0+", kind="response")
class ListConfigResourcesResponse(Struct):
    """The resources of the requested types."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
