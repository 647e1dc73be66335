"""DescribeAcls (29): access rules that fit a filter (KIP-140).

Versions: 1 kinds of resource pattern (KIP-290); 2 flexible; 3 users as resources (KIP-373).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, message, string, struct


@message(api_key=29, versions="1-3", flexible="2+", kind="request")
class DescribeAclsRequest(Struct):
    """A filter; null names fit all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3, versions="1+")
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@struct()
class AclDescription(Struct):
    """One rule."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct()
class DescribeAclsResource(Struct):
    """The rules of one resource."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3, versions="1+")
    acls: list[AclDescription] = array(AclDescription)


@message(api_key=29, versions="1-3", flexible="2+", kind="response")
class DescribeAclsResponse(Struct):
    """The rules that fit."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
