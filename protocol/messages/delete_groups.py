"""DeleteGroups (42): groups without members, and all they committed, go away (KIP-229).

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible; 3 a text beside the error (Kafka 4.4).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct


@message(api_key=42, versions="0-3", flexible="2+", kind="request")
class DeleteGroupsRequest(Struct):
    """Groups to delete."""

    groups_names: list[str] = array(string)


@struct()
class DeletableGroupResult(Struct):
    """The result for one group."""

    group_id: str = string()
    error_code: int = int16()
    error_message: str | None = string(default=None, versions="3+", nullable="3+", ignorable=True)


@message(api_key=42, versions="0-3", flexible="2+", kind="response")
class DeleteGroupsResponse(Struct):
    """A result for each requested group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
