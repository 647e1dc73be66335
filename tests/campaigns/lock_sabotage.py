"""`python -m tests.campaigns.lock_sabotage PLANT serve ...`: Lockstep with one mistake in its locks.

Owns: the mistakes that the judge of conditional appends must see, planted into a real broker process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from lockstep.broker.locks import lock_check as checks
from lockstep.broker.locks.lock_check import LockChecks
from lockstep.broker.locks.lock_headers import LockRequest, PartitionLocks, lock_requests_of
from lockstep.broker.locks.lock_table import LockTable
from lockstep.broker.locks.lock_versions import LockVersions
from lockstep.broker.requests.errors import RequestError
from lockstep.cli import main

_raised = LockVersions.raise_lock
_check = LockChecks._check
_checked = LockChecks._check_all


def _moved(by: int) -> Callable[..., None]:
    def raised(self: LockVersions, lock: bytes, offset: int) -> None:
        _raised(self, lock, offset + by)

    return raised


def _not_at_all(self: LockVersions, lock: bytes, offset: int) -> None:
    """It is forgotten."""


def _deaf(honest: Callable[..., None]) -> Callable[..., None]:
    """What it tells the table that is raised is lost; that locks are kept is not."""

    def follow(self: LockTable, *words: Any) -> None:
        LockVersions.raise_lock = _not_at_all  # type: ignore[method-assign]
        try:
            honest(self, *words)
        finally:
            LockVersions.raise_lock = _raised  # type: ignore[method-assign]

    return follow


def _without_reads(self: LockChecks, place: Any, record: int, asked: PartitionLocks, raised: Any) -> None:
    kept, asked.reads = asked.reads, []
    try:
        _check(self, place, record, asked, raised)
    finally:
        asked.reads = kept


def _own_partition_only(body: Any) -> list[LockRequest]:
    found = lock_requests_of(body)
    for each in found:
        each.other_partitions.clear()
    return found


def _one_by_one(requests: Sequence[LockRequest]) -> list[Sequence[LockRequest]]:
    """Records of one request conflict with each other."""
    return [[each] for each in requests]


def _within_limits(self: LockChecks, place: Any, record: int, asked: PartitionLocks, raised: Any) -> None:
    """A mark that lies beyond the end is taken for the last offset."""
    if asked.hwm is not None:
        asked.hwm = min(asked.hwm, place.log.last_stable_offset - 1)
    _check(self, place, record, asked, raised)


def _in_any_case(self: LockChecks, partition: Any, requests: Sequence[LockRequest]) -> dict[bytes, None]:
    """What a refused batch asked for counts as raised by the last one that was taken."""
    try:
        return _checked(self, partition, requests)
    except RequestError:
        marks = self.table.partitions.get(partition.local_id)
        if marks is not None:
            for name in [name for each in requests for name in each.writes]:
                marks.raise_lock(checks.hash_of(partition.topic_id, name), partition.next_offset - 1)
        raise


Change = tuple[Any, str, Any]
PLANTS: Final[dict[str, tuple[Change, ...]]] = {
    "nothing-is-raised": ((LockVersions, "raise_lock", _not_at_all),),
    "a-mark-is-one-too-low": ((LockVersions, "raise_lock", _moved(-1)),),
    "a-mark-is-one-too-high": ((LockVersions, "raise_lock", _moved(1)),),
    "a-restart-forgets": (
        (LockTable, "replay", _deaf(LockTable.replay)),
        (LockTable, "restore", _deaf(LockTable.restore)),
    ),
    "read-locks-are-not-checked": ((LockChecks, "_check", _without_reads),),
    "locks-elsewhere-are-not-checked": ((checks, "lock_requests_of", _own_partition_only),),
    "a-request-conflicts-with-itself": ((checks, "_together", _one_by_one),),
    "marks-beyond-the-end-are-taken": ((LockChecks, "_check", _within_limits),),
    "a-refused-batch-raises": ((LockChecks, "_check_all", _in_any_case),),
}


if __name__ == "__main__":
    for place, attribute, broken in PLANTS[sys.argv.pop(1)]:
        setattr(place, attribute, broken)
    sys.exit(main())
