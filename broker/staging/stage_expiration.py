"""Aborts abandoned stages: those without a write for lockstep.staged.timeout.ms.

Readers of committed records wait for open stages, so none may stay open for ever. Invariants: only stages in
groups that are led here are touched. Source: the project's own (docs/staged.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from lockstep.broker.coordination.expiration_loop import ExpirationRule
from lockstep.broker.coordination.stable_since import StableSince
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.staging.stage_commit import LastWritten, StageCommit

log = logging.getLogger("lockstep.staging")


class StageExpiration:
    """The expiration of one broker's open stages.

    The log's time decides. Where one leader's clock, and so the log's time, was far ahead, the time without a
    write that this node has seen decides.
    """

    def __init__(
        self,
        stage_commit: StageCommit,
        cluster: MetadataCache,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage_commit = stage_commit
        self._cluster = cluster
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._written: StableSince[tuple[int, int], LastWritten] = StableSince()
        """The last write by log group and owner."""

    def rules(self) -> list[ExpirationRule]:
        """The rule of stages, enforced as often as that of overdue transactions."""
        return [
            ExpirationRule(
                "the abort of expired stages",
                lambda: self._cluster.settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                self._enforce,
            )
        ]

    async def _enforce(self) -> None:
        self.abort_expired_stages()

    def abort_expired_stages(self) -> int:
        """Aborts expired stages; returns their number, counted by partition."""
        timeout_ms = self._cluster.settings.lockstep_staged_timeout_ms
        before_ms = self._clock_ms() - timeout_ms
        unchanged_seconds = self._written.observe(self._monotonic())

        def is_expired(group_id: int, owner: int, written: LastWritten) -> bool:
            is_still = unchanged_seconds((group_id, owner), written) * 1000 > timeout_ms
            return is_still or written[0] < before_ms

        found = self._stage_commit.abort_expired(is_expired)
        if found:
            log.info("%d stages were left over for %d ms and are aborted", found, timeout_ms)
        return found
