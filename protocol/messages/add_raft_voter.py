"""AddRaftVoter (80): a controller becomes a voter of the metadata quorum (KIP-853).

Versions: 1 the response need not wait for the commit (KIP-1186).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    int16,
    int32,
    message,
    string,
    struct,
    uint16,
    uuid,
)


@struct()
class Listener(Struct):
    """One endpoint."""

    name: str = string()
    host: str = string()
    port: int = uint16()


@message(api_key=80, versions="0-1", flexible="0+", kind="request")
class AddRaftVoterRequest(Struct):
    """The controller and its endpoints."""

    cluster_id: str | None = string(nullable="0+")
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    ack_when_committed: bool = boolean(default=True, versions="1+")


@message(api_key=80, versions="0-1", flexible="0+", kind="response")
class AddRaftVoterResponse(Struct):
    """The result of adding the voter."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
