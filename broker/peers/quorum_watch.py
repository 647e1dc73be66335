"""Logs that a node waits for a majority of the controller's voters, which of them it does not reach, and why.

Owns: the log lines and their rate. Invariant: a missing majority that returns soon is not logged; one that
lasts is logged when it changes, at most every few seconds, and otherwise once a minute. Does not: know which
nodes are reached.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

log = logging.getLogger("lockstep.cluster")

TIMEOUT_SECONDS: Final = 5.0
"""An election, a restart of the others, or a first start in no particular order are over by then."""
CHANGED_SECONDS: Final = 5.0
"""The least time between two different warnings."""
REPEAT_SECONDS: Final = 60.0
"""The interval of log lines with the same text."""


@dataclass(frozen=True)
class QuorumReach:
    """The voters of group 0 that this node reaches. Args: unreached: the reason, by node."""

    voters: Sequence[int]
    unreached: Mapping[int, str]

    @property
    def reached_count(self) -> int:
        """The number of voters that are reached, this node included where it votes."""
        return len(self.voters) - len(self.unreached)

    @property
    def is_majority(self) -> bool:
        return 2 * self.reached_count > len(self.voters)

    def __str__(self) -> str:
        return f"{self.reached_count} of {len(self.voters)}"


class QuorumWatch:
    """See the module; times are seconds of any clock that does not go back."""

    def __init__(self) -> None:
        self._since: float | None = None
        """When the majority was lost; a node begins without."""
        self._logged: QuorumReach | None = None
        self._logged_at = 0.0

    def check(self, reach: QuorumReach, now: float) -> None:
        """Logs a lost or regained majority; called about every second."""
        if reach.is_majority:
            if self._logged is not None:
                log.info("a majority of the nodes that elect the controller is reached now (%s)", reach)
            self._since = self._logged = None
            return
        if self._since is None:
            self._since = now
        if now - self._since < TIMEOUT_SECONDS:
            return
        if self._logged is not None:
            pause = REPEAT_SECONDS if reach == self._logged else CHANGED_SECONDS
            if now - self._logged_at < pause:
                return
        self._logged, self._logged_at = reach, now
        log.warning(
            "waiting for a majority of the nodes that elect the controller (%s reached): %s",
            reach,
            "; ".join(f"node {node_id} {why}" for node_id, why in reach.unreached.items()),
        )
