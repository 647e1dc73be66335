"""The queued and the unacknowledged parts of one target: LogPlayer's target queue.

Owns: two queues, one for the main stream and one for a recovery; the state, by which the next batch is taken
from one of them; the batches that are popped and not erased. Invariants: positions ascend within each queue,
and from the sent parts to the queued ones; the catch-up queue lies below the normal one; in FC the catch-up
queue is not empty; in S both are empty.
Does not: know terms, or the end of a recovery (`recovery.py`).
Source: LogPlayer paper, algorithms 1 and 2. A part is popped when it is taken, not when it is written: an
acknowledgement may come before the write's completion.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from lockstep.player.core.messages import NOTHING, Batch, Part
from lockstep.player.core.settings import Bound
from lockstep.player.core.transitions import QueueState, check


class PartQueue:
    """Parts in the order of their positions, and their bytes."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self) -> None:
        self.parts: deque[Part] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self.parts)

    def append(self, part: Part) -> None:
        self.parts.append(part)
        self.size_bytes += part.size_bytes

    def clear(self) -> None:
        self.parts.clear()
        self.size_bytes = 0

    def exceeds(self, bound: Bound) -> bool:
        return len(self.parts) > bound.entries or self.size_bytes > bound.size_bytes

    def is_full(self, bound: Bound) -> bool:
        return len(self.parts) >= bound.entries or self.size_bytes >= bound.size_bytes

    def take(self, parts: list[Part], size_bytes: int, max_entries: int, max_bytes: int) -> int:
        """Move parts over while they fit, the first one always; returns the bytes of `parts`."""
        waiting = self.parts
        before = size_bytes
        while waiting and len(parts) < max_entries:
            larger = size_bytes + waiting[0].size_bytes
            if larger > max_bytes and parts:
                break
            parts.append(waiting.popleft())
            size_bytes = larger
        self.size_bytes -= size_bytes - before
        return size_bytes


class TargetQueue:
    """See the module."""

    __slots__ = ("catchup", "normal", "popped", "popped_bytes", "popped_entries", "sent_position", "state")

    def __init__(self) -> None:
        self.state = QueueState.SUSPENDED
        self.normal = PartQueue()
        self.catchup = PartQueue()
        self.popped: deque[list[Part]] = deque()
        """Batches that are not wholly acknowledged, oldest first."""
        self.popped_entries = 0
        self.popped_bytes = 0
        self.sent_position = NOTHING
        """The last popped part's position; before there is one, the target's own."""

    @property
    def has_waiting(self) -> bool:
        return bool(self.normal.parts or self.catchup.parts)

    @property
    def has_sent_all(self) -> bool:
        """True if nothing is queued, and everything sent is acknowledged."""
        return self.state is QueueState.NORMAL and not self.popped and not self.has_waiting

    @property
    def missed_position(self) -> int:
        """The position of the last part in the catch-up queue; if empty, of the last popped part."""
        return self.catchup.parts[-1].position if self.catchup else self.sent_position

    @property
    def newest_position(self) -> int:
        """The position of the last queued part; if there is none, of the last popped part."""
        return self.normal.parts[-1].position if self.normal else self.missed_position

    # --- changes of state ---------------------------------------------------------------------------------

    def suspend(self) -> None:
        """The stream is closed: its parts are dropped, and read again from the log."""
        if self.state is QueueState.SUSPENDED:
            return
        self._transition(QueueState.SUSPENDED)
        self.normal.clear()
        self.catchup.clear()
        self.popped.clear()
        self.popped_entries = self.popped_bytes = 0

    def resume(self, last_ack: int) -> None:
        """A new stream to a target that has everything up to `last_ack`."""
        self._transition(QueueState.RECOVERY_FETCHING)
        self.sent_position = last_ack

    def complete_fetching(self) -> None:
        """The whole missed range has been queued."""
        self._transition(QueueState.FETCHING_COMPLETED if self.catchup else QueueState.NORMAL)

    def drop_normal(self) -> None:
        """The normal queue overflows during recovery: its parts are read again later, as part of that."""
        self.normal.clear()
        if self.state is QueueState.FETCHING_COMPLETED:
            self._transition(QueueState.RECOVERY_FETCHING)

    def _transition(self, state: QueueState) -> None:
        check(self.state, state)
        self.state = state

    # --- entries ------------------------------------------------------------------------------------------

    def next_batch(self, max_entries: int, max_bytes: int) -> Batch | None:
        """Pop the next batch to send; None where none may be sent."""
        parts: list[Part] = []
        waiting = self.normal if self.state is QueueState.NORMAL else self.catchup
        size_bytes = waiting.take(parts, 0, max_entries, max_bytes)
        if self.state is QueueState.FETCHING_COMPLETED and not self.catchup:
            self._transition(QueueState.NORMAL)
            size_bytes = self.normal.take(parts, size_bytes, max_entries, max_bytes)
        if not parts:
            return None
        batch = Batch(self.sent_position, tuple(parts), size_bytes)
        self.sent_position = batch.last_position
        self.popped.append(parts)
        self.popped_entries += len(parts)
        self.popped_bytes += size_bytes
        return batch

    def erase(self, position: int) -> None:
        """Everything at or below `position` is acknowledged."""
        while self.popped and self.popped[0][-1].position <= position:
            self._subtract(self.popped.popleft())
        if self.popped and self.popped[0][0].position <= position:
            parts = self.popped[0]
            count = bisect_right(parts, position, key=_position)
            self._subtract(parts[:count])
            del parts[:count]

    def _subtract(self, parts: list[Part]) -> None:
        self.popped_entries -= len(parts)
        self.popped_bytes -= sum([part.size_bytes for part in parts])


def _position(part: Part) -> int:
    return part.position
