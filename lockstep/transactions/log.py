"""The interface between a transaction client and its log: brokers, or a double of them.

`lockstep.transactions.remote` is the real one, `lockstep.testing.memory_log` the double. Offsets have gaps
where a log holds what no application sees; a position is the offset that is read next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from lockstep.transactions.model import Committed, Record, Refusal, RequestId


class ReadLocks(NamedTuple):
    """Read locks of a partition that gets no record."""

    hwm: int
    """As in `PartitionBatch`."""
    read_locks: tuple[bytes, ...]


class PartitionBatch(NamedTuple):
    """One partition's part of an append: records that are appended together, and their condition."""

    records: tuple[Record, ...]
    hwm: int
    """The partition's high-water mark, taken before the state that the records are computed from."""
    write_locks: tuple[bytes, ...] = ()
    read_locks: tuple[bytes, ...] = ()
    append_locks: tuple[bytes, ...] = ()
    expected_offset: int | None = None
    other_read_locks: Mapping[int, ReadLocks] = {}
    """Read locks of partitions that get no record, by partition; one part of an append has all of them."""


class AppendAttempt(NamedTuple):
    """One try at a transaction."""

    request: RequestId
    parts: Mapping[int, PartitionBatch]
    """By partition; several are appended all or none."""

    def hwm(self, partition: int) -> int:
        """The high-water mark that it assumes for a partition; -1 for one that it does not mention."""
        for number, part in self.parts.items():
            if number == partition:
                return part.hwm
            if partition in part.other_read_locks:
                return part.other_read_locks[partition].hwm
        return -1


class Chunk(NamedTuple):
    """The result of one read: committed transactions, in order."""

    entries: Sequence[Committed]
    """`previous` is left to the subscription."""
    position: int
    """The offset at which the next read begins; further records that no application sees may be before it."""


class AppendRefused(Exception):
    """Not appended."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class AppendFailed(Exception):
    """Not appended, and it will not be: too large, no such topic any more, never sent."""


class AppendExpired(Exception):
    """It timed out before anything was sent that could still be appended."""


class AppendUnknown(Exception):
    """The append may or may not be in the log, now or later: `fence` decides it."""


class Trimmed(Exception):
    """The next entries were deleted from the log."""


class Log(Protocol):
    """One topic. Errors that pass (no leader, a broker that went away) are the log's own to deal with."""

    @property
    def topic_id(self) -> str:
        """The topic id, as Kafka's tools show it, once the log is open."""

    async def open(self) -> int:
        """Connect; the number of partitions. Raises ClientError: no such topic, or no locks there."""

    async def append(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """Appends it exactly once, also over failures; returns partition -> offset of the last record there.

        Raises AppendRefused, AppendFailed; after `timeout_s` AppendExpired or AppendUnknown, the latter also
        where it cannot be retried.
        """

    async def fence(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """After AppendUnknown: fences the append, which then cannot reach the log later.

        Returns partition -> position: a reader that has come so far has seen the append, or never will.
        Raises AppendUnknown when that is not possible within `timeout_s`.
        """

    async def read(self, partition: int, position: int, wait_s: float) -> Chunk:
        """The chunk from `position` on; waits for its first entry, up to `wait_s`. Raises Trimmed."""

    async def end(self, partition: int) -> int:
        """The position behind everything that is committed."""

    async def close(self) -> None: ...
