"""CreateAcls (30): new access rules (KIP-140).

Versions: 1 kinds of resource pattern (KIP-290); 2 flexible; 3 users as resources (KIP-373).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, message, string, struct


@struct()
class AclCreation(Struct):
    """One rule."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3, versions="1+")
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@message(api_key=30, versions="1-3", flexible="2+", kind="request")
class CreateAclsRequest(Struct):
    """Rules to add."""

    creations: list[AclCreation] = array(AclCreation)


@struct()
class AclCreationResult(Struct):
    """The result for one rule."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@message(api_key=30, versions="1-3", flexible="2+", kind="response")
class CreateAclsResponse(Struct):
    """A result for each rule."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
