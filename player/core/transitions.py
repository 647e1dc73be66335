"""The states of a target's queue, as a table that the queue asserts on every change.

Source: LogPlayer paper, figure 2. The paper's table, and one change of ours: a recovery that is extended.
"""

from __future__ import annotations

from enum import Enum


class QueueState(Enum):
    """The source of a target's entries."""

    NORMAL = "N"
    """Entries come from the main stream."""
    RECOVERY_FETCHING = "RF"
    """Missed entries are being read from the log and sent; newer ones are queued."""
    FETCHING_COMPLETED = "FC"
    """The whole missed range has been read, and some of it is still queued."""
    SUSPENDED = "S"
    """The target is not connected: nothing is queued for it."""


TRANSITIONS: dict[tuple[QueueState, QueueState], str] = {
    (QueueState.SUSPENDED, QueueState.RECOVERY_FETCHING): "it has answered the handshake with its position",
    (QueueState.RECOVERY_FETCHING, QueueState.FETCHING_COMPLETED): "the last of what it has missed is read",
    (
        QueueState.RECOVERY_FETCHING,
        QueueState.NORMAL,
    ): "it has missed nothing, or all of that is read and sent",
    (QueueState.FETCHING_COMPLETED, QueueState.NORMAL): "the last of what it has missed is sent",
    (
        QueueState.FETCHING_COMPLETED,
        QueueState.RECOVERY_FETCHING,
    ): "too much waited: it is dropped, and read again",
    (QueueState.NORMAL, QueueState.SUSPENDED): "its stream is closed",
    (QueueState.RECOVERY_FETCHING, QueueState.SUSPENDED): "its stream is closed",
    (QueueState.FETCHING_COMPLETED, QueueState.SUSPENDED): "its stream is closed",
}


class IllegalQueueTransition(AssertionError):
    """A change that the table does not name: a bug, never an input."""


def check(old: QueueState, new: QueueState) -> None:
    """Raises IllegalTransition unless `old` may become `new`."""
    if (old, new) not in TRANSITIONS:
        raise IllegalQueueTransition(f"{old.value} may not become {new.value}")
