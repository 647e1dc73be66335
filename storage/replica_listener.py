"""The progress of a replica, as it reports it: the interface of a log group for its replica."""

from __future__ import annotations

from typing import Protocol

from lockstep.storage.partition import PartitionLog


class ReplicaListener(Protocol):
    """The callbacks of a replica, always on the loop."""

    @property
    def has_unproposed_batches(self) -> bool:
        """True while the tail machines have seen batches that were not proposed yet."""

    def on_progress(self, advanced: dict[PartitionLog, None]) -> None:
        """Called when the commit or the leadership may have changed; `advanced` has the partitions whose
        high watermark has."""

    def on_flushed(self) -> None:
        """Called when everything written is flushed, as far as the log's options go."""

    def on_not_accepting(self) -> None:
        """Called, repeatedly, while this member accepts no entries: batches that were not proposed are
        lost."""

    def on_truncated(self, last_index: int) -> None:
        """Called when the entries after `last_index`, and all that was derived from them, were removed."""

    def on_failed(self, error: BaseException) -> None:
        """Called with the error that stopped the replica."""
