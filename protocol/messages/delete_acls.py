"""DeleteAcls (31): access rules that fit filters go (KIP-140).

Versions: 1 kinds of resource pattern (KIP-290); 2 flexible; 3 users as resources (KIP-373).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, message, string, struct


@struct()
class DeleteAclsFilter(Struct):
    """A filter; null names fit all."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3, versions="1+")
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=31, versions="1-3", flexible="2+", kind="request")
class DeleteAclsRequest(Struct):
    """Filters for what is to go."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@struct()
class DeleteAclsMatchingAcl(Struct):
    """One rule that fits a filter."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3, versions="1+")
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@struct()
class DeleteAclsFilterResult(Struct):
    """The result for one filter."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@message(api_key=31, versions="1-3", flexible="2+", kind="response")
class DeleteAclsResponse(Struct):
    """A result for each filter."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
