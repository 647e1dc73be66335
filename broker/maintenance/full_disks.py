"""Logs full disks and failing writes, and frees dead segments on full disks.

Owns: a check of every log group of this node once a second. Invariants: each time that a group's writes fail
is logged as an error once and as information when writes succeed again, also where both fall between two
checks. For a group that is closed the second line is left out. A write that
failed though the disk is not full has lines of its own, with the error, and is tried again with each check.
An error in one check does not end the checks.
Does not: reject writes (`storage/` does), or free what holds live records (`compaction.py` does).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from lockstep.protocol.plural import pluralize
from lockstep.storage.disk_full_release import free_on_full_disk
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import StorageError

log = logging.getLogger("lockstep")

CHECK_SECONDS: Final = 1.0
RETENTION_SECONDS: Final = 10.0
"""The interval of enforcing retention while a disk is full."""


class FullDisks:
    """See the module.

    Args:
        groups: the log groups of this node, by group id.
        enforce_retention: applies retention to all of them, once.
    """

    def __init__(
        self, groups: Callable[[], Mapping[int, LogGroup]], enforce_retention: Callable[[], Awaitable[object]]
    ) -> None:
        self._groups = groups
        self._enforce_retention = enforce_retention
        self._failures: dict[LogGroup, int] = {}
        """Failed writes of each group at the last check."""
        self._full: dict[LogGroup, set[str]] = {}
        """Groups whose failed writes were logged and whose recovery was not; and the problems that were
        logged about freeing."""
        self._failing: dict[LogGroup, None] = {}
        """The same for writes that failed while the disk is not full."""
        self._next_retention = 0.0

    async def run(self) -> None:
        """Check every `CHECK_SECONDS`, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await self.check()
            except Exception:  # a group may be closed meanwhile; without this task nothing would free space
                log.exception("the check for full disks failed")

    async def check(self) -> None:
        """Log each change, and free dead segments on the disks that are full."""
        groups = self._groups()
        local = set(groups.values())
        self._failures = {each: count for each, count in self._failures.items() if each in local}
        self._full = {each: texts for each, texts in self._full.items() if each in local}
        self._failing = {each: None for each in self._failing if each in local}
        snapshot_needs_space = any(group.installer.is_out_of_space for group in groups.values())
        for group_id, group in list(groups.items()):
            group.log.yield_room(snapshot_needs_space)
            failures = group.log.disk_failures
            failed_since = failures != self._failures.get(group, 0)
            self._failures[group] = failures
            if group.log.disk_full or failed_since:
                if group not in self._full:
                    self._full[group] = set()
                    log.error(
                        "log group %d: the disk is full; the node rejects produce requests, reads continue",
                        group_id,
                    )
                    self._next_retention = 0.0
                await self._free(group)
            elif group in self._full:
                del self._full[group]
                log.info("log group %d: the disk has space again", group_id)
            self._check_writes(group_id, group)

    def _check_writes(self, group_id: int, group: LogGroup) -> None:
        error = group.log.write_error
        if not error:
            if group in self._failing:
                del self._failing[group]
                log.info("log group %d: the files of the log are written again", group_id)
            return
        if group not in self._failing:
            self._failing[group] = None
            log.error(
                "log group %d: a file of the log cannot be written, though the disk is not full: %s; produce "
                "requests are rejected where they need it, reads continue; retried every %d s",
                group_id,
                error,
                CHECK_SECONDS,
            )
        group.log.retry_space()

    async def _free(self, group: LogGroup) -> None:
        if time.monotonic() >= self._next_retention:  # retention may have been shortened to make room
            self._next_retention = time.monotonic() + RETENTION_SECONDS
            try:
                await self._enforce_retention()
            except (StorageError, OSError) as error:
                self._log_problem(group, f"retention is delayed: {error}")
        try:
            freed = await free_on_full_disk(group)
        except (StorageError, OSError) as error:
            self._log_problem(group, f"no log file can be freed: {error}")
        else:
            if freed:
                log.info("log group %d: %s freed", group.group_id, pluralize(freed, "log file"))
        group.log.retry_space()

    def _log_problem(self, group: LogGroup, text: str) -> None:
        """Logs it once until the disk has space again, however many checks end with it."""
        logged = self._full.setdefault(group, set())
        if text not in logged:
            logged.add(text)
            log.warning("log group %d: %s", group.group_id, text)
