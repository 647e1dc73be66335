"""UnregisterController (94): a controller that does not come back leaves the metadata (Kafka 4.4)."""

from __future__ import annotations

from lockstep.protocol.fields import Struct, int16, int32, message, string


@message(api_key=94, versions="0", flexible="0+", kind="request")
class UnregisterControllerRequest(Struct):
    """The controller."""

    controller_id: int = int32()


@message(api_key=94, versions="0", flexible="0+", kind="response")
class UnregisterControllerResponse(Struct):
    """The result of removing the controller."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
