"""One player delivers a log, the others stand by: claims in a topic with locks, which their holders renew.

Owns: claiming, renewing and releasing; reading the claims of all. Invariants: a claim is appended under the
log's lock and on the condition that no claim of that log follows those it was computed from, so that of two
at once one is rejected and terms only grow; a renewal, on the condition that only the own claim does. Where
a response is lost, the topic is read to its end: either the record is there, or the next one's condition
excludes it for ever. Safety depends on the terms alone, which the targets persist: a holder that was paused,
or has lost the brokers, may continue its delivery, and does no harm. Leases only decide when a standby
tries. Does not: deliver. Source: docs/locks.md; docs/player.md, "Standby players".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final, Protocol
from uuid import uuid4

from lockstep.player_host.claim_table import ClaimTable, CurrentClaim, LogClaim, claim_of, record_of
from lockstep.player_host.config import ClaimsConfig
from lockstep.transactions.log import (
    AppendAttempt,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    Log,
    PartitionBatch,
    Trimmed,
)
from lockstep.transactions.model import RequestId

log = logging.getLogger("lockstep.player")

PARTITION: Final = 0
APPEND_TIMEOUT_S: Final = 5.0
READ_WAIT_S: Final = 1.0
MAX_SUPERSEDED_RECORDS: Final = 1000
"""Superseded claims that the topic may have before they are deleted."""
ABANDONED_MS: Final = 3_600_000
"""A claim that was not renewed for this time belongs to a log that is not delivered any more."""
PERMANENT_REASONS: Final = frozenset(
    {"LOCKS_OFF", "BAD_HEADER", "NO_HWM", "OTHER_TOPIC", "TOO_MANY_LOCKS", "TRANSACTIONAL"}
)
"""The reasons of rejections that reading further does not change."""


class ClaimLost(Exception):
    """Another process has claimed the log; the text does not name it."""

    def __init__(self, current: CurrentClaim, own_name: str) -> None:
        claim = current.claim
        is_same = claim.player == own_name
        who = f"another process of the name {own_name}" if is_same else claim.player or "no player"
        advice = " (players that run at once need names of their own)" if is_same else ""
        super().__init__(f"{who} has claimed it in term {claim.player_term}{advice}")


class ClaimsUnusable(Exception):
    """The topic of the claims cannot be used as it is: nothing can be claimed."""


class ClaimsLog(Log, Protocol):
    """A topic of one partition, with locks."""

    async def first_position(self) -> int:
        """The first position of the topic."""

    def problem(self) -> str:
        """The reason why it could not be read for a while; empty where it can be."""

    async def trim(self, position: int) -> None:
        """Delete the records below; after a failure the next call deletes more."""


class Claims:
    """The claims of this process, from `open` to `close`, which closes `topic`."""

    def __init__(
        self, topic: ClaimsLog, player: str, settings: ClaimsConfig, process: str | None = None
    ) -> None:
        self.process = process or uuid4().hex
        self._topic = topic
        self._player = player
        self._settings = settings
        self._table = ClaimTable(player, self.process)
        self._position = 0
        self._deleted_before = 0
        self._sequence = 0
        self._names: dict[str, str] = {}
        """The names of logs in log lines, by log id."""
        self._write_errors: dict[str, str] = {}
        """By log id: why the last claim or renewal was not appended in time; a newer record removes the
        entry."""
        self._changed = asyncio.Event()
        """An event that is set, and replaced, whenever something was read."""
        self._following: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Read all claims that there are. Raises ClientError, ClaimsUnusable."""
        if await self._topic.open() != 1:
            raise ClaimsUnusable("the topic of the claims has more than one partition")
        self._position = self._deleted_before = await self._topic.first_position()
        self._following = asyncio.create_task(self._follow(), name="claims")
        await self._read_to_end()
        self._table.start_complete()

    async def close(self) -> None:
        """Stop following the topic; current claims stay until another process takes them."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._topic.close()

    def holder(self, log_id: str) -> LogClaim | None:
        """The newest claim of a log, as far as it was read."""
        current = self._table.newest.get(log_id)
        return current and current.claim

    def problem(self, log_id: str) -> str:
        """The reason why this process cannot read or write the log's claim; empty where it can."""
        if unread := self._topic.problem():
            return f"claims cannot be read: {unread}"
        unwritten = self._write_errors.get(log_id)
        return f"its claim cannot be written: {unwritten}" if unwritten else ""

    async def claim(
        self, log_id: str, name: str = "", *, above_term: int = 0, at_once: bool = False
    ) -> CurrentClaim:
        """Wait until the log is free, and claim it. Raises ClaimsUnusable.

        Args:
            name: of the log, for log lines.
            above_term: a term that a target has named; the claim's is higher.
            at_once: do not wait for the holder's lease: for a process that must take over.
        """
        if name:
            self._names[log_id] = name
        while True:
            due_ms = 0 if at_once else self._table.due_ms(log_id, self._settings.lease_ms)
            if due_ms > _now_ms():
                await self._wait_for_read(due_ms)
                continue
            claim = self._table.next_claim(log_id, above_term, _wall_ms())
            offset = await self._append(claim, self._position - 1)
            if offset is not None:
                return CurrentClaim(claim, offset, _now_ms())
            await self._read_to_end()
            current = self._table.newest.get(log_id)
            if (
                current is not None
                and self._table.is_own(current)
                and current.claim.player_term == claim.player_term
            ):
                return current  # the response was lost

    async def keep(self, current: CurrentClaim) -> None:
        """Renew the claim until it is lost. Raises ClaimLost, ClaimsUnusable."""
        renew_s = self._settings.renew_ms / 1000
        renew_ms = _now_ms() + self._settings.renew_ms
        while True:
            current = self._newest_record(current)
            if _now_ms() < renew_ms:
                await self._wait_for_read(renew_ms)
                continue
            renew_ms = _now_ms() + self._settings.renew_ms
            offset = await self._append(current.claim._replace(taken_at_ms=_wall_ms()), current.offset)
            if offset is not None:
                current = current._replace(offset=offset)
                await self._trim()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(renew_s):
                    await self._read_to_end()

    async def release(self, current: CurrentClaim) -> None:
        """Releases the claim: a standby takes over at once, or without brokers after the lease."""
        try:
            async with asyncio.timeout(APPEND_TIMEOUT_S):
                released = current.claim._replace(player=None, taken_at_ms=_wall_ms())
                while self.holder(current.claim.log_id) != released:
                    current = self._newest_record(current)
                    if await self._append(released, current.offset) is not None:
                        return
                    await self._read_to_end()
        except (TimeoutError, ClaimLost, ClaimsUnusable) as error:
            why = error or "no response in time"
            log.info("%s: the claim was not released: %s", self._name(current.claim.log_id), why)

    # --- private ------------------------------------------------------------------------------------------

    def _name(self, log_id: str) -> str:
        """For log lines; the name of an abandoned log, whose claim is appended again, is not known."""
        return self._names.get(log_id, log_id)

    def _newest_record(self, current: CurrentClaim) -> CurrentClaim:
        """The claim at its newest record. Raises ClaimLost."""
        newest = self._table.newest.get(current.claim.log_id)
        if newest is None or newest.offset <= current.offset:
            return current
        is_same = self._table.is_own(newest) and newest.claim.player_term == current.claim.player_term
        if not is_same:
            raise ClaimLost(newest, self._player)
        return newest

    async def _append(self, claim: LogClaim, hwm: int) -> int | None:
        """The record's offset; None where it was rejected, or its outcome is unknown: then read to the end.

        It is not appended where the log has another claim above `hwm`. Raises ClaimsUnusable.
        """
        self._sequence += 1
        part = PartitionBatch((record_of(claim),), hwm, write_locks=(claim.log_id.encode(),))
        append = AppendAttempt(RequestId(self.process, 0, self._sequence), {PARTITION: part})
        try:
            offset = (await self._topic.append(append, APPEND_TIMEOUT_S))[PARTITION]
        except AppendRefused as error:
            self._write_errors.pop(claim.log_id, None)
            if error.refusal.reason in PERMANENT_REASONS:
                raise ClaimsUnusable(error.refusal.text) from None
        except AppendUnknown as error:
            self._write_errors[claim.log_id] = str(error)
            with contextlib.suppress(AppendUnknown):
                await self._topic.fence(append, APPEND_TIMEOUT_S)
        except AppendFailed as error:
            raise ClaimsUnusable(str(error)) from None
        except AppendExpired as error:
            self._write_errors[claim.log_id] = str(error)
            log.warning("%s: no claim could be sent: %s", self._name(claim.log_id), error)
        else:
            self._write_errors.pop(claim.log_id, None)
            return offset
        return None

    async def _trim(self) -> None:
        oldest = self._table.oldest
        if oldest is None:
            return
        if oldest.offset - self._deleted_before >= MAX_SUPERSEDED_RECORDS:
            self._deleted_before = oldest.offset
            await self._topic.trim(oldest.offset)
        elif self._position - oldest.offset >= MAX_SUPERSEDED_RECORDS and self._is_abandoned(oldest):
            # Its term must not be used again, so it stays; but not where it keeps later records from
            # deletion.
            await self._append(oldest.claim, oldest.offset)

    def _is_abandoned(self, current: CurrentClaim) -> bool:
        return current.claim.player is None or _now_ms() - current.read_ms >= ABANDONED_MS

    async def _follow(self) -> None:
        while True:
            try:
                chunk = await self._topic.read(PARTITION, self._position, READ_WAIT_S)
            except Trimmed:  # below the newest claim of every log
                self._advance_to(await self._topic.first_position())
                continue
            now_ms = _now_ms()
            for entry in chunk.entries:
                for record in entry.records:
                    claim = claim_of(record)
                    if claim is None:
                        log.warning("offset %d of the topic of the claims is no claim", entry.offset)
                    else:
                        self._table.read(claim, entry.offset, now_ms)
                        self._write_errors.pop(claim.log_id, None)
            self._advance_to(chunk.position)

    def _advance_to(self, position: int) -> None:
        if position > self._position:
            self._position = position
            self._changed.set()
            self._changed = asyncio.Event()

    async def _read_to_end(self) -> None:
        end = await self._topic.end(PARTITION)
        while self._position < end:
            await self._wait_for_read(None)

    async def _wait_for_read(self, until_ms: int | None) -> None:
        """Wait until something was read, or the time. Raises ClaimsUnusable where reading has ended."""
        assert self._following is not None
        changed = asyncio.ensure_future(self._changed.wait())
        timeout_s = None if until_ms is None else max(0.0, (until_ms - _now_ms()) / 1000)
        try:
            await asyncio.wait(
                (changed, self._following), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
        if self._following.done():
            error = None if self._following.cancelled() else self._following.exception()
            raise ClaimsUnusable(f"the claims cannot be read: {error or 'closed'}") from error


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
