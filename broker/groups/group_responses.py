"""Answers to members: what a JoinGroup or SyncGroup waits for, and when answers leave.

Owns: `JoinAnswer` and `SyncAnswer` (what handlers return) and `Outbox`. Invariant: an answer that was waited
for leaves on a later turn of the loop than the change it tells of: a connection that goes on reading because
of it may bring the next request about the same group, which must not meet a half-made change.
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
    """A member whose connection is lost is missed by its session timer, as in Kafka."""


class GroupAnswer(PendingResponse):
    """An answer that may take minutes; it can be left behind when the broker stops."""

    __slots__ = ()
    holds_request = False

    def __init__(self) -> None:
        super().__init__()
        self.on_disconnect = _keeps_waiting


class JoinAnswer(GroupAnswer):
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


class SyncAnswer(GroupAnswer):
    """The pending response of a SyncGroup."""

    __slots__ = ()


class Outbox:
    """Answers of this turn of the loop; they leave in the next, in order."""

    __slots__ = ("_answers", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answers: list[tuple[Waiter, Struct]] = []

    def put(self, waiter: Waiter | None, response: Struct) -> None:
        """Answer somebody, if there is somebody."""
        if waiter is None:
            return
        if not self._answers:
            self._loop.call_soon(self.send)
        self._answers.append((waiter, response))

    def send(self) -> None:
        """Let them leave now: only where no change is half made."""
        answers, self._answers = self._answers, []
        for waiter, response in answers:
            try:
                waiter.complete(response)
            except Exception:  # the others are answered all the same
                log.exception("a member's answer failed")


def join_error(error: ErrorCode, member_id: str = NO_MEMBER) -> JoinGroupResponse:
    """A JoinGroup refused."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A SyncGroup refused."""
    return SyncGroupResponse(error_code=error)


def fenced_responses(member: Member) -> tuple[JoinGroupResponse, SyncGroupResponse]:
    """Returns the responses for a static member's old self, for either request."""
    error = ErrorCode.FENCED_INSTANCE_ID
    return join_error(error, member.member_id), sync_error(error)
