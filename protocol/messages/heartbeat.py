"""Heartbeat (12): a member of a classic group is alive, and learns that it must join again.

Versions: 1 throttle time; 2 throttling is the client's duty (KIP-219); 3 static members (KIP-345);
4 flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, int16, int32, message, string


@message(api_key=12, versions="0-4", flexible="4+", kind="request")
class HeartbeatRequest(Struct):
    """One member is alive."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions="3+", nullable="3+")


@message(api_key=12, versions="0-4", flexible="4+", kind="response")
class HeartbeatResponse(Struct):
    """All is well, or REBALANCE_IN_PROGRESS and the like."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16()
