"""FindCoordinator (10): which broker looks after a group, a transactional id or a share group.

Versions: 0 groups only; 1 key type (KIP-98), throttle time, message; 2 throttling is the client's duty
(KIP-219); 3 flexible; 4 many keys in one request (KIP-699); 5 TRANSACTION_ABORTABLE (KIP-890); 6 share
groups (KIP-932).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int8, int16, int32, message, string, struct


@message(api_key=10, versions="0-6", flexible="3+", kind="request")
class FindCoordinatorRequest(Struct):
    """One key up to version 3, several from 4."""

    key: str = string(versions="0-3")
    key_type: int = int8(versions="1+")
    coordinator_keys: list[str] = array(string, versions="4+")


@struct()
class Coordinator(Struct):
    """The coordinator of one key."""

    key: str = string(versions="4+")
    node_id: int = int32(versions="4+")
    host: str = string(versions="4+")
    port: int = int32(versions="4+")
    error_code: int = int16(versions="4+")
    error_message: str | None = string(versions="4+", nullable="4+", ignorable=True)


@message(api_key=10, versions="0-6", flexible="3+", kind="response")
class FindCoordinatorResponse(Struct):
    """The coordinator, or one for each key."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    error_code: int = int16(versions="0-3")
    error_message: str | None = string(versions="1-3", nullable="1-3", ignorable=True)
    node_id: int = int32(versions="0-3")
    host: str = string(versions="0-3")
    port: int = int32(versions="0-3")
    coordinators: list[Coordinator] = array(Coordinator, versions="4+")
