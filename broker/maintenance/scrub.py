"""Scrubbing reads sealed segments periodically, so that corruption is found while other nodes have copies.

Owns: the schedule. The segments of all log groups are read one at a time, evenly over
`lockstep.scrub.interval.ms`, from a random one after a start. A corrupt segment, and all segments of a group
in which a read met corruption, are read sooner and repeatedly, at growing intervals, as perhaps no node can
repair them. Does not: read or verify (`storage/log/segment_compaction.py`), fetch corrupt frames
(`storage/segment_repair.py`), or look at the active segment: recovery reads that. Source: Ceph's deep scrub;
protocol-aware recovery; docs/storage_rules.md.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.broker.maintenance.compaction import IoThrottle
from lockstep.broker.maintenance.damage import HealedDamageLog, damage_text, group_damage
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.storage.segment_repair import ScrubStopped

log = logging.getLogger("lockstep.scrubbing")

CHECK_SECONDS: Final = 30.0
"""The interval of the checks for due segments."""
POLL_SECONDS: Final = 1.0
"""The interval at which new damage is looked for: it is repaired at once."""
RETRY_SECONDS: Final = 60.0
"""A corrupt segment is read again after this time, then after twice as long, and so on ..."""
MAX_RETRY_SECONDS: Final = 3600.0
"""... up to this."""
MAX_LOGGED_RANGES: Final = 20
"""Damaged ranges that one scrub of a segment names in the log; `lockstep cluster status` has all."""

LogFile = tuple[int, int]
"""A log file: its log group's id, and its sequence."""


class RetryAt(NamedTuple):
    """The time of the next read, and the wait after that. Seconds."""

    due: float
    wait_s: float


def _retry_after(now: float, last: RetryAt | None) -> RetryAt:
    wait_s = RETRY_SECONDS if last is None else last.wait_s
    return RetryAt(now + wait_s, min(2 * wait_s, MAX_RETRY_SECONDS))


class Scrubber:
    """The loop over one broker's log groups.

    Args:
        new_throttle: makes a throttle from bytes a second.
        random_fraction: from 0 to 1: the part of an interval that is over at a start, so that a node that is
            restarted often reads all.
    """

    def __init__(
        self,
        cluster: MetadataCache,
        new_throttle: Callable[[float], Callable[[int], None]] = IoThrottle,
        monotonic: Callable[[], float] = time.monotonic,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._new_throttle = new_throttle
        self._monotonic = monotonic
        self._last_check = monotonic()
        self._due_files = random_fraction()
        """The number of segments that are due by now."""
        self._last_file: LogFile | None = None
        """The last segment that was read in order."""
        self._corrupt_files: dict[LogFile, RetryAt] = {}
        self._healed_log = HealedDamageLog(cluster)
        self._suspect_groups: dict[int, RetryAt] = {}
        """By log group: the time from which its segments are read again if a read meets corruption."""

    async def run(self) -> None:
        """Check periodically, and soon after damage was found, until cancelled."""
        while True:
            until = self._monotonic() + CHECK_SECONDS
            while self._monotonic() < until and not self._is_repair_due():
                await asyncio.sleep(POLL_SECONDS)
                self._healed_log.update()
            await self.check()

    def _is_repair_due(self) -> bool:
        """Returns whether a group met corruption that can be repaired now. Until a leader is known, no other
        member is reached, and a repair would fail and be repeated much later."""
        now = self._monotonic()
        return any(
            group.log.corruption_found and group.leader_id > 0 and self._may_retry(group_id, now)
            for group_id, group in self._cluster.groups.items()
        )

    def _may_retry(self, group_id: int, now: float) -> bool:
        last = self._suspect_groups.get(group_id)
        return last is None or now >= last.due

    async def check(self) -> int:
        """Read the due segments, each once; returns how many."""
        now = self._monotonic()
        elapsed, self._last_check = now - self._last_check, now
        files = {
            group_id: [(group_id, segment.sequence) for segment in group.log.segments()]
            for group_id, group in sorted(self._cluster.groups.items())
        }
        log_files = [log_file for each in files.values() for log_file in each]
        self._corrupt_files = {
            log_file: self._corrupt_files[log_file]
            for log_file in log_files
            if log_file in self._corrupt_files
        }
        due = [
            log_file
            for group_id, each in files.items()
            if self._is_suspect(group_id, now)
            for log_file in self._order_damaged_first(group_id, each)
        ]
        due += [log_file for log_file, retry in self._corrupt_files.items() if retry.due <= now]
        interval_s = self._cluster.settings.lockstep_scrub_interval_ms / 1000
        if interval_s and log_files:
            self._due_files = min(self._due_files + elapsed / interval_s * len(log_files), len(log_files))
            while self._due_files >= 1:
                self._due_files -= 1
                due.append(self._next(log_files))
        self._healed_log.update()
        scrubbed = 0
        for log_file in dict.fromkeys(due):
            scrubbed += await self._scrub(log_file)
            self._healed_log.update()
        return scrubbed

    def _is_suspect(self, group_id: int, now: float) -> bool:
        """True if a read met corruption in this group, and a scrub of it is due."""
        last, data_log = self._suspect_groups.get(group_id), self._cluster.groups[group_id].log
        if not self._may_retry(group_id, now):
            return False
        if not data_log.corruption_found:
            self._suspect_groups.pop(group_id, None)
            return False
        data_log.corruption_found = False
        self._suspect_groups[group_id] = _retry_after(now, last)
        return True

    def _order_damaged_first(self, group_id: int, log_files: list[LogFile]) -> list[LogFile]:
        """The files of a group with those first that are known to be damaged, as other nodes repair them."""
        damaged = {each.sequence for each in self._cluster.groups[group_id].log.damage.known()}
        return sorted(log_files, key=lambda log_file: log_file[1] not in damaged)

    def _next(self, log_files: list[LogFile]) -> LogFile:
        if self._last_file is None:
            self._last_file = random.choice(log_files)
        else:
            self._last_file = next(
                (log_file for log_file in log_files if log_file > self._last_file), log_files[0]
            )
        return self._last_file

    async def _scrub(self, log_file: LogFile) -> bool:
        group_id, sequence = log_file
        group = self._cluster.groups.get(group_id)
        if group is None:
            return False
        throttle = self._new_throttle(self._cluster.settings.log_cleaner_io_max_bytes_per_second)
        try:
            await group.wait_until_repaired()  # one at a time: what is found meanwhile waits for a retry
            corruption = await group.scrub(sequence, throttle)
        except ScrubStopped:
            return False
        except OSError as error:
            log.warning("log group %d: log file %d cannot be read through: %s", group_id, sequence, error)
            if log_file in self._corrupt_files:
                self._corrupt_files[log_file] = _retry_after(self._monotonic(), self._corrupt_files[log_file])
            return False
        except Exception:  # a group may be closed meanwhile; without this loop corruption stays hidden
            log.exception("log group %d: scrubbing of log file %d failed", group_id, sequence)
            return False
        if corruption is None:
            self._corrupt_files.pop(log_file, None)
        else:
            damage = group_damage(self._cluster, group_id, group)
            ranges = [each for each in damage if each["segment"] == sequence]
            for each in ranges[:MAX_LOGGED_RANGES]:
                log.error("%s", damage_text(each))
            if len(ranges) > MAX_LOGGED_RANGES:
                more = len(ranges) - MAX_LOGGED_RANGES
                log.error("log group %d, log file %d: %d more ranges are damaged", group_id, sequence, more)
            self._corrupt_files[log_file] = _retry_after(self._monotonic(), self._corrupt_files.get(log_file))
        return True
