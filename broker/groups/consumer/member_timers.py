"""The timers of the members of consumer groups: their sessions, and their rebalance timeouts.

Owns: `MemberTimers`, by group and member id. Invariant: a timer calls back once and is removed. Does not:
remove members (`consumer_group_coordinator.py` does, once it has checked the group again).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lockstep.broker.groups.session_timer import SessionTimer

MemberKey = tuple[str, str]
"""Group id and member id."""


class MemberTimers:
    """The timers of one coordinator's members.

    Args: on_session_timeout: called with group and member id; on_rebalance_timeout: and with the member
        epoch at which the timer was started.
    """

    __slots__ = ("_loop", "_on_rebalance_timeout", "_on_session_timeout", "_rebalances", "_sessions")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_session_timeout: Callable[[str, str], None],
        on_rebalance_timeout: Callable[[str, str, int], None],
    ) -> None:
        self._loop = loop
        self._on_session_timeout = on_session_timeout
        self._on_rebalance_timeout = on_rebalance_timeout
        self._sessions: dict[MemberKey, SessionTimer] = {}
        self._rebalances: dict[MemberKey, asyncio.TimerHandle] = {}

    def refresh_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Starts or extends the member's session."""
        key = group_id, member_id
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = SessionTimer(self._loop, self._expire_session, key)
        session.refresh(timeout_ms)

    def has_session(self, group_id: str, member_id: str) -> bool:
        """Returns whether the member's session is running: a heartbeat may have come since it expired."""
        return (group_id, member_id) in self._sessions

    def start_rebalance(self, group_id: str, member_id: str, member_epoch: int, timeout_ms: int) -> None:
        """Starts the rebalance timeout, in which the member must revoke partitions, replacing another."""
        key = group_id, member_id
        self.cancel_rebalance(group_id, member_id)
        self._rebalances[key] = self._loop.call_later(
            timeout_ms / 1000, self._expire_rebalance, key, member_epoch
        )

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        """The member has revoked what it had to."""
        timer = self._rebalances.pop((group_id, member_id), None)
        if timer is not None:
            timer.cancel()

    def forget(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            session.cancel()
        self.cancel_rebalance(group_id, member_id)

    def clear(self) -> None:
        """Cancels all."""
        sessions, self._sessions = self._sessions, {}
        rebalances, self._rebalances = self._rebalances, {}
        for session in sessions.values():
            session.cancel()
        for timer in rebalances.values():
            timer.cancel()

    def _expire_session(self, key: MemberKey) -> None:
        self._sessions.pop(key, None)
        self._on_session_timeout(*key)

    def _expire_rebalance(self, key: MemberKey, member_epoch: int) -> None:
        self._rebalances.pop(key, None)
        self._on_rebalance_timeout(*key, member_epoch)
