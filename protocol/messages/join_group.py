"""JoinGroup (11): become a member of a classic group, and wait for the rebalance to gather everyone.

Versions: 0 one timeout; 1 a rebalance timeout of its own (KIP-62); 2 throttle time; 3 throttling is the
client's duty (KIP-219); 4 a member without an id gets one and joins again with it (KIP-394); 5 static
members (KIP-345); 6 flexible; 7 the group's protocol type in the response (KIP-559); 8 a reason (KIP-800);
9 the leader may be instructed to leave the assignment as it is (KIP-814).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    message,
    string,
    struct,
)
from lockstep.protocol.primitives import Buffer


@struct()
class JoinGroupRequestProtocol(Struct):
    """An assignment strategy of the member, with the metadata that it needs."""

    name: str = string()
    metadata: Buffer = byte_string()


@message(api_key=11, versions="0-9", flexible="6+", kind="request")
class JoinGroupRequest(Struct):
    """Requests to become, or to stay, a member."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(default=-1, versions="1+", ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions="5+", nullable="5+")
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(default=None, versions="8+", nullable="8+", ignorable=True)


@struct()
class JoinGroupResponseMember(Struct):
    """A member and its metadata, for the leader only."""

    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)
    metadata: Buffer = byte_string()


@message(api_key=11, versions="0-9", flexible="6+", kind="response")
class JoinGroupResponse(Struct):
    """The generation joined; the members are listed for the leader."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(default=None, versions="7+", nullable="7+", ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean(versions="9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
