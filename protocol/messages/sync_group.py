"""SyncGroup (14): the leader hands in the assignment, every member is given its part.

Versions: 1 throttle time; 2 throttling is the client's duty (KIP-219); 3 static members (KIP-345);
4 flexible; 5 protocol type and name, compared with the group's (KIP-559).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, byte_string, int16, int32, message, string, struct
from lockstep.protocol.primitives import Buffer


@struct()
class SyncGroupRequestAssignment(Struct):
    """One member's part."""

    member_id: str = string()
    assignment: Buffer = byte_string()


@message(api_key=14, versions="0-5", flexible="4+", kind="request")
class SyncGroupRequest(Struct):
    """The leader sends all parts, the others none."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions="3+", nullable="3+")
    protocol_type: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)
    protocol_name: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@message(api_key=14, versions="0-5", flexible="4+", kind="response")
class SyncGroupResponse(Struct):
    """The member's own part."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)
    protocol_name: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)
    assignment: Buffer = byte_string()
