"""Scrubbing: closed log files are read through every so often, so that rot is found while others have copies.

Owns: whose turn it is, and when. All log groups' files take turns, one at a time, evenly over
`lockstep.scrub.interval.ms`, from anywhere after a start. Sooner come a file that was found rotten, and all
files of a group in which somebody else has met rot (`rot_met`): again and again while that is so, but ever
less often, for it may be that nobody can mend it.
Does not: read or verify (`storage/log/rewriting.py`), fetch what has rotted (`storage/repairing.py`), or look
at the file that is written to: recovery reads that.
Source: Ceph's deep scrub; protocol-aware recovery; docs/storage_rules.md.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.compaction import Pace
from broker.damage import HealedDamageLog, damage_text, group_damage
from broker.metadata import Cluster
from storage.repairing import ScrubEnded

log = logging.getLogger("lockstep.scrubbing")

LOOK_SECONDS: Final = 30.0
"""How often it is seen whose turn it is."""
AGAIN_SECONDS: Final = 60.0
"""What is rotten is read again after so long, then after twice as long, and so on ..."""
MOST_SECONDS: Final = 3600.0
"""... up to this."""
MAX_LOGGED_RANGES: Final = 20
"""Damaged ranges that one scrub of a segment names in the log; `lockstep cluster status` has all."""

Place = tuple[int, int]
"""A log file: its log group's number and its sequence."""


class Again(NamedTuple):
    """When something is read again, and the wait after that. Seconds."""

    due: float
    wait_s: float


def _after(now: float, before: Again | None) -> Again:
    wait_s = AGAIN_SECONDS if before is None else before.wait_s
    return Again(now + wait_s, min(2 * wait_s, MOST_SECONDS))


class Scrubbing:
    """The loop over one broker's log groups.

    Args:
        new_pace: at what a file is read, from bytes a second.
        draw: from 0 to 1: how much of a turn is over at a start, so that who is restarted often gets round.
    """

    def __init__(
        self,
        cluster: Cluster,
        new_pace: Callable[[float], Callable[[int], None]] = Pace,
        seconds: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._new_pace = new_pace
        self._seconds = seconds
        self._looked = seconds()
        self._owed = draw()
        """Files whose turn it is by now."""
        self._last: Place | None = None
        """Whose turn it was."""
        self._rotten: dict[Place, Again] = {}
        self._healing = HealedDamageLog(cluster)
        self._met: dict[int, Again] = {}
        """By log group: when its files are read again, should rot be met there once more."""

    async def run(self) -> None:
        """Look every so often, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> int:
        """Read the files whose turn it is, each once; how many."""
        now = self._seconds()
        elapsed, self._looked = now - self._looked, now
        files = {
            number: [(number, segment.sequence) for segment in group.log.segments()]
            for number, group in sorted(self._cluster.groups.items())
        }
        places = [place for each in files.values() for place in each]
        self._rotten = {place: self._rotten[place] for place in places if place in self._rotten}
        soon = [place for number, each in files.items() if self._is_suspect(number, now) for place in each]
        soon += [place for place, again in self._rotten.items() if again.due <= now]
        interval_s = self._cluster.settings.lockstep_scrub_interval_ms / 1000
        if interval_s and places:
            self._owed = min(self._owed + elapsed / interval_s * len(places), len(places))
            while self._owed >= 1:
                self._owed -= 1
                soon.append(self._next(places))
        scrubbed = sum([await self._scrub(place) for place in dict.fromkeys(soon)])
        self._healing.update()
        return scrubbed

    def _is_suspect(self, number: int, now: float) -> bool:
        """Whether rot was met in this group, and it is time to look for it."""
        before, data_log = self._met.get(number), self._cluster.groups[number].log
        if before is not None and now < before.due:
            return False
        if not data_log.rot_met:
            self._met.pop(number, None)
            return False
        data_log.rot_met = False
        self._met[number] = _after(now, before)
        return True

    def _next(self, places: list[Place]) -> Place:
        if self._last is None:
            self._last = random.choice(places)
        else:
            self._last = next((place for place in places if place > self._last), places[0])
        return self._last

    async def _scrub(self, place: Place) -> bool:
        number, sequence = place
        group = self._cluster.groups.get(number)
        if group is None:
            return False
        pace = self._new_pace(self._cluster.settings.log_cleaner_io_max_bytes_per_second)
        try:
            rotten = await group.scrub(sequence, pace)
        except ScrubEnded:
            return False
        except OSError as error:
            log.warning("log group %d: log file %d cannot be read through: %s", number, sequence, error)
            if place in self._rotten:
                self._rotten[place] = _after(self._seconds(), self._rotten[place])
            return False
        except Exception:  # a group may be given up in the midst of it; rot gathers where this ends
            log.exception("log group %d: scrubbing of log file %d failed", number, sequence)
            return False
        if rotten is None:
            self._rotten.pop(place, None)
        else:
            damage = group_damage(self._cluster, number, group)
            here = [each for each in damage if each["segment"] == sequence]
            for each in here[:MAX_LOGGED_RANGES]:
                log.error("%s", damage_text(each))
            if len(here) > MAX_LOGGED_RANGES:
                more = len(here) - MAX_LOGGED_RANGES
                log.error("log group %d, log file %d: %d more ranges are damaged", number, sequence, more)
            self._rotten[place] = _after(self._seconds(), self._rotten.get(place))
        return True
