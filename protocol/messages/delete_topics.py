"""DeleteTopics (20).

Versions: 1 throttle time; 2 throttling is the client's duty (KIP-219); 3 TOPIC_DELETION_DISABLED
(KIP-322); 4 flexible; 5 a message with each error and THROTTLING_QUOTA_EXCEEDED (KIP-599); 6 by name or
by id, in `topics` instead of `topic_names` (KIP-516).
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct, uuid


@struct()
class DeleteTopicState(Struct):
    """One topic, by name or by id."""

    name: str | None = string(default=None, versions="6+", nullable="6+")
    topic_id: bytes = uuid(versions="6+")


@message(api_key=20, versions="1-6", flexible="4+", kind="request")
class DeleteTopicsRequest(Struct):
    """Topics to delete."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, versions="6+")
    topic_names: list[str] = array(string, versions="0-5", ignorable=True)
    timeout_ms: int = int32()


@struct()
class DeletableTopicResult(Struct):
    """The result for one topic."""

    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid(versions="6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(default=None, versions="5+", nullable="5+", ignorable=True)


@message(api_key=20, versions="1-6", flexible="4+", kind="response")
class DeleteTopicsResponse(Struct):
    """A result for each requested topic."""

    throttle_time_ms: int = int32(versions="1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
