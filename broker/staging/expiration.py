"""Stages that nobody came back for: aborted when nobody has written to them for lockstep.staged.timeout.ms.

Readers of committed records wait for open stages, so none may stay open for ever. Invariants: only stages in
groups that are led here are touched. Source: the project's own (docs/staged.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.metadata import Cluster
from broker.staging.ending import StagedEnds

log = logging.getLogger("lockstep.staging")


class StagedExpiration:
    """The loop over one broker's open stages."""

    def __init__(self, ends: StagedEnds, cluster: Cluster, clock_ms: Callable[[], int]) -> None:
        self._ends = ends
        self._cluster = cluster
        self._clock_ms = clock_ms

    async def run(self) -> None:
        """Abort what is left over as often as overdue transactions are looked for, until cancelled."""
        while True:
            settings = self._cluster.settings
            await asyncio.sleep(settings.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000)
            try:
                self.abort_left_over()
            except Exception:  # a stage that nobody ends holds readers up for ever
                log.exception("a look at staged batches failed")

    def abort_left_over(self) -> int:
        """How many stages were aborted, counted by partition."""
        timeout_ms = self._cluster.settings.lockstep_staged_timeout_ms
        found = self._ends.abort_older(self._clock_ms() - timeout_ms)
        if found:
            log.info("%d stages were left over for %d ms and are aborted", found, timeout_ms)
        return found
