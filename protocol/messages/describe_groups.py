"""DescribeGroups (15): the members of classic groups and what they are assigned.

Versions: 1 throttle time; 2 throttling is the client's duty (KIP-219); 3 authorized operations (KIP-430);
4 static members (KIP-345); 5 flexible; 6 an error and a message where there is no such group (KIP-1043).
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


@message(api_key=15, versions="0-6", flexible="5+", kind="request")
class DescribeGroupsRequest(Struct):
    """Groups to describe."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(versions="3+")


@struct()
class DescribedGroupMember(Struct):
    """One member: its identity, its metadata of the join, its assignment."""

    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions="4+", nullable="4+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: Buffer = byte_string()
    member_assignment: Buffer = byte_string()


@struct()
class DescribedGroup(Struct):
    """One group: state, protocol, members."""

    error_code: int = int16()
    error_message: str | None = string(default=None, versions="6+", nullable="6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(default=-2147483648, versions="3+")


@message(api_key=15, versions="0-6", flexible="5+", kind="response")
class DescribeGroupsResponse(Struct):
    """A description of each requested group."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
