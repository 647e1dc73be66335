"""The interface of a log that a player reads. Lockstep's own sources are in `lockstep.player_host`.

An entry is one record batch, as in the log; its position is that of the batch's last record, so
that a cut never depends on routing, and compaction never moves it. Positions are offsets where a log is one
partition, and LSNs where it is a topic's partitions in one log group: then each entry names its partition.
Control batches and what was aborted are no entries; nothing is read that is not decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from lockstep.player.core.messages import Entry

MULTIPLE_PARTITIONS: Final = -1
"""In place of a partition: the log is several partitions, and each entry names its own."""


class LogChunk(NamedTuple):
    """The result of one read."""

    entries: Sequence[Entry]
    """In order; the payload of each is the bytes of its record batch, which stay valid."""
    through_position: int
    """Everything up to there was read, entry or not; below `first_position` where there is nothing yet."""


class LogBounds(NamedTuple):
    """The positions of a log: from `first_position` to before `next_position`."""

    first_position: int
    next_position: int


class RangeLost(Exception):
    """The requested positions were deleted from the log, which begins at `first_position` now."""

    def __init__(self, first_position: int) -> None:
        super().__init__(f"the log begins at {first_position} now")
        self.first_position = first_position


class SourceClosed(Exception):
    """The log cannot be read any more: the topic was deleted, or re-created."""


def partition_label(partition: int, log_group: int | None) -> str:
    """A log's part of its topic, for an operator: a partition's number, or `log group 3`."""
    return str(partition) if log_group is None else f"log group {log_group}"


class Source(Protocol):
    """One log. Errors that pass (no leader, a broker that went away) are its own to deal with."""

    @property
    def log_id(self) -> str:
        """Cluster, topic id and partition or log group: the identity that a target's position belongs to."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int:
        """`MULTIPLE_PARTITIONS` where it is of a log group."""

    @property
    def log_group(self) -> int | None:
        """Its number, where the log is a topic's partitions of one; None where it is one partition."""

    async def bounds(self) -> LogBounds:
        """Returns the bounds that the leader has after the call. Raises SourceClosed."""

    async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
        """Everything from `first_position` on: at least one entry, whatever its size, else not much more than
        `max_bytes`. Waits up to `wait_s` where there is nothing yet, and returns at once when there is.

        Several reads may be under way at once: the main stream's, which may wait, and those of recoveries,
        which may not (`wait_s` 0) and so must not be queued behind it. Raises RangeLost, SourceClosed.
        """

    async def close(self) -> None: ...


def log_name(source: Source) -> str:
    """A log's name for an operator: `orders-3`, or `orders in log group 3`."""
    if source.log_group is None:
        return f"{source.topic}-{source.partition}"
    return f"{source.topic} in log group {source.log_group}"
