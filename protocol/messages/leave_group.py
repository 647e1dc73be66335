"""LeaveGroup (13): members leave a classic group at once instead of by timeout.

Versions: 1 throttle time; 2 throttling is the client's duty (KIP-219); 3 several members, static ones
by instance id (KIP-345); 4 flexible; 5 a reason (KIP-800).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct


@struct()
class MemberIdentity(Struct):
    """A member that leaves, by id or by instance id."""

    member_id: str = string(versions="3+")
    group_instance_id: str | None = string(default=None, versions="3+", nullable="3+")
    reason: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)


@message(api_key=13, versions="0-5", flexible="4+", kind="request")
class LeaveGroupRequest(Struct):
    """One member up to version 2, several from 3."""

    group_id: str = string()
    member_id: str = string(versions="0-2")
    members: list[MemberIdentity] = array(MemberIdentity, versions="3+")


@struct()
class MemberResponse(Struct):
    """The result for one member."""

    member_id: str = string(versions="3+")
    group_instance_id: str | None = string(versions="3+", nullable="3+")
    error_code: int = int16(versions="3+")


@message(api_key=13, versions="0-5", flexible="4+", kind="response")
class LeaveGroupResponse(Struct):
    """A result for the whole, and from version 3 for each member."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, versions="3+")
