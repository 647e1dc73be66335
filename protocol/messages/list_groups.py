"""ListGroups (16): the groups this broker coordinates.

Versions: 1 throttle time; 2 throttling is the client's duty (KIP-219); 3 flexible; 4 states, requested
and reported (KIP-518); 5 types, requested and reported (KIP-848).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct


@message(api_key=16, versions="0-5", flexible="3+", kind="request")
class ListGroupsRequest(Struct):
    """The states and types to list; empty lists are all."""

    states_filter: list[str] = array(string, versions="4+")
    types_filter: list[str] = array(string, versions="5+")


@struct()
class ListedGroup(Struct):
    """One group."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(versions="4+", ignorable=True)
    group_type: str = string(versions="5+", ignorable=True)


@message(api_key=16, versions="0-5", flexible="3+", kind="response")
class ListGroupsResponse(Struct):
    """The groups."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
