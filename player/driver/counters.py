"""Counters of what was read, sent and acknowledged: numbers that only grow, for metrics.

Owns: the counts of one target, over all its streams. Does not: export them, or keep
them over a restart.
"""

from __future__ import annotations

from lockstep.player.core.messages import Batch


class TargetCounters:
    """One target's counters, for as long as its driver runs."""

    __slots__ = (
        "acknowledgements",
        "batches",
        "dummies",
        "fetches",
        "parts",
        "recoveries",
        "sent_bytes",
        "streams",
    )

    def __init__(self) -> None:
        self.streams = 0
        """Streams that were opened, whether or not a target responded."""
        self.recoveries = 0
        """Streams on which something was missed, and read from the log."""
        self.fetches = 0
        """Reads for recoveries."""
        self.batches = 0
        self.parts = 0
        """Parts without dummies."""
        self.dummies = 0
        self.sent_bytes = 0
        """Bytes of payload."""
        self.acknowledgements = 0
        """Acknowledgements received, responses to heartbeats included."""

    def count_batch(self, batch: Batch) -> None:
        parts = batch.parts
        dummies = sum([part.is_dummy for part in parts])
        self.batches += 1
        self.parts += len(parts) - dummies
        self.dummies += dummies
        self.sent_bytes += batch.size_bytes
