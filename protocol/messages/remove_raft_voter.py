"""RemoveRaftVoter (81): a voter leaves the metadata quorum (KIP-853)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, int16, int32, message, string, uuid


@message(api_key=81, versions="0", flexible="0+", kind="request")
class RemoveRaftVoterRequest(Struct):
    """The voter."""

    cluster_id: str | None = string(nullable="0+")
    voter_id: int = int32()
    voter_directory_id: bytes = uuid()


@message(api_key=81, versions="0", flexible="0+", kind="response")
class RemoveRaftVoterResponse(Struct):
    """The result of removing the voter."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)
