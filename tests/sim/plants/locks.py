"""Plants in the locks, held against the `locking` workload."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.locks.lock_versions import LockVersions
from lockstep.storage.open_frame import OpenFrame
from tests.sim.faces import Plant

OFTEN = {"segment_bytes": 32768, "nodes": 3, "think_ms": 20}


@contextmanager
def notes_left_out() -> Iterator[None]:
    """Only the leader knows what is raised: nothing of it goes into the log."""
    with patch.object(OpenFrame, "add_notes", lambda self, data: None):
        yield


@contextmanager
def tail_locks_stay() -> Iterator[None]:
    """What was raised by batches that are cut away counts on, and checkpoints are not read."""
    with patch.object(LockTable, "restore", lambda self, data: None):
        yield


@contextmanager
def old_marks_forgotten() -> Iterator[None]:
    """A lock that leaves the exact part was never raised."""
    with patch.object(LockVersions, "_forget", lambda self, lock, mark: None):
        yield


@contextmanager
def mark_is_first_offset() -> Iterator[None]:
    """A mark is one less than the end of its batch."""
    real = LockVersions.raise_lock

    def raised(self: LockVersions, lock: bytes, offset: int) -> None:
        real(self, lock, offset - 1)

    with patch.object(LockVersions, "raise_lock", raised):
        yield


PLANTS = (
    Plant(
        "lock-notes-left-out",
        "what a batch raises is not written beside it",
        notes_left_out,
        workload="locking",
        overrides=OFTEN,
        source="the specification: locks, table",
    ),
    Plant(
        "tail-locks-stay",
        "locks raised by a truncated tail stay raised, those of a checkpoint are lost",
        tail_locks_stay,
        workload="locking",
        overrides=OFTEN,
        source="the specification: locks, in-flight holders",
    ),
    Plant(
        "old-marks-forgotten",
        "a lock that is no longer among the newest counts as never raised",
        old_marks_forgotten,
        workload="locking",
        overrides=OFTEN,
        source="the specification: locks, table",
    ),
    Plant(
        "mark-too-low",
        "a mark lies below the end of its batch",
        mark_is_first_offset,
        workload="locking",
        overrides=OFTEN,
        source="the specification: locks, meaning",
    ),
)
