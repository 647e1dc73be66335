"""Responses to members: the pending responses of JoinGroup and SyncGroup, and when they are sent.

Owns: `PendingJoinResponse` and `PendingSyncResponse` (returned by handlers) and `ResponseQueue`. Invariant: a
pending response is sent a later iteration of the loop than the change that it reports: its connection may
then read the next request about the same group, which must not meet a half-made change.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from lockstep.broker.groups.classic_group import Member, Waiter
from lockstep.broker.requests.request_context import PendingResponse
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.join_group import JoinGroupResponse
from lockstep.protocol.messages.sync_group import SyncGroupResponse

log = logging.getLogger("lockstep.groups")

NULL_PROTOCOL_MIN_VERSION: Final = 7
NO_MEMBER: Final = ""


def _keeps_waiting() -> None:
    """A lost connection ends no membership: the member's session expires, as in Kafka."""


class PendingGroupResponse(PendingResponse):
    """A response that may take minutes; a stopping broker does not wait for it."""

    __slots__ = ()
    holds_request = False

    def __init__(self) -> None:
        super().__init__()
        self.on_disconnect = _keeps_waiting


class PendingJoinResponse(PendingGroupResponse):
    """The pending response of a JoinGroup. An unknown protocol is "" before version 7 and null from then
    on."""

    __slots__ = ("api_version",)

    def __init__(self, api_version: int) -> None:
        super().__init__()
        self.api_version = api_version

    def complete(self, response: object | None) -> None:
        if isinstance(response, JoinGroupResponse) and response.protocol_name is None:
            response.protocol_name = "" if self.api_version < NULL_PROTOCOL_MIN_VERSION else None
        super().complete(response)


class PendingSyncResponse(PendingGroupResponse):
    """The pending response of a SyncGroup."""

    __slots__ = ()


class ResponseQueue:
    """The responses of this iteration of the loop; they are sent in the next one, in order."""

    __slots__ = ("_loop", "_responses")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._responses: list[tuple[Waiter, Struct]] = []

    def put(self, waiter: Waiter | None, response: Struct) -> None:
        """Queues a response, if there is a waiter."""
        if waiter is None:
            return
        if not self._responses:
            self._loop.call_soon(self.send)
        self._responses.append((waiter, response))

    def send(self) -> None:
        """Sends them now; called only where no change is half made."""
        responses, self._responses = self._responses, []
        for waiter, response in responses:
            try:
                waiter.complete(response)
            except Exception:  # the others are sent all the same
                log.exception("a member's response failed")


def join_error(error: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """The response that rejects a JoinGroup."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """The response that rejects a SyncGroup."""
    return SyncGroupResponse(error_code=error)


def fenced_responses(member: Member) -> tuple[JoinGroupResponse, SyncGroupResponse]:
    """Returns the responses for a static member's fenced member id, for either request."""
    error = ErrorCode.FENCED_INSTANCE_ID
    return join_error(error, member.member_id), sync_error(error)
