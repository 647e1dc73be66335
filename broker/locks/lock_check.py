"""The check of a batch's locks before its append, and the locks that it raises.

Owns the rules and the words of a rejection. Records are checked in order, each against the state that those
before it leave; records of one request never conflict with each other. A batch is taken or rejected whole,
and a rejection changes nothing. It may depend on batches that are not committed yet: its response waits for
those.

POLICY_VIOLATION means: catch up and compute it again. INVALID_RECORD means that it will never pass as it is.
Source: the project's rules for locks; seeds 003 and 004; KIP-27.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn
from urllib.parse import quote_from_bytes

from lockstep.broker.locks.lock_headers import (
    BadLockHeader,
    LockRequest,
    PartitionLocks,
    TooManyLocks,
    lock_requests,
    lock_requests_of,
)
from lockstep.broker.locks.lock_table import LockTable, begin, end, raises, since
from lockstep.broker.locks.lock_versions import HASH_BYTES, LockVersions
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_config import LOCKS_IGNORED, LOCKS_KEPT
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.lock_words import REJECTION_PREFIX
from lockstep.protocol.records.batch import MalformedBatch, read_header
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer

if TYPE_CHECKING:
    from lockstep.broker.metadata.metadata_cache import MetadataCache
    from lockstep.storage.log_group import LogGroup

RETRY: Final = ErrorCode.POLICY_VIOLATION
NOT_RETRIABLE: Final = ErrorCode.INVALID_RECORD


class LockConflict(RequestError):
    """Another batch has raised the lock since. `is_exact`: not by an estimate."""

    def __init__(self, error: ErrorCode, message: str, is_exact: bool) -> None:
        super().__init__(error, message)
        self.is_exact = is_exact


class _Conflict(NamedTuple):
    """The lock that conflicts; of several the one with the greatest version, so that reading up to one offset
    is enough."""

    is_trimmed: bool
    mark: int
    name: bytes
    mode: str
    is_exact: bool
    is_of_same_batch: bool = False
    """An earlier record of the rejected batch raises the lock: reading on does not help."""


class _LockedPartition:
    """One partition in which locks are looked up."""

    __slots__ = ("hashes", "log", "marks")

    def __init__(self, log: PartitionLog, marks: LockVersions | None) -> None:
        self.log = log
        self.marks = LockVersions(log.next_offset - 1) if marks is None else marks
        """Where locks were not kept, any lock may have been raised by the present records."""
        self.hashes: dict[bytes, bytes] = {}
        """The hashes of the names that were checked."""

    def hash_of(self, name: bytes) -> bytes:
        """Returns the hash of a lock of this partition."""
        lock = self.hashes.get(name)
        if lock is None:
            lock = self.hashes[name] = hash_of(self.log.topic_id, name)
        return lock


class LockChecks:
    """The checks for one log group's partitions, while it is led here."""

    def __init__(self, table: LockTable, group: LogGroup, cluster: MetadataCache) -> None:
        self.table = table
        self._group = group
        self._cluster = cluster
        self.accepted = 0
        """Batches with locks or expected offsets that were accepted."""
        self.rejected = 0
        self.rejected_by_estimate = 0
        """The rejected ones whose offset may be too high."""

    def check_and_encode(self, partition: PartitionLog, body: BatchBody, mode: str) -> bytes:
        """Checks a batch, the next of its partition; returns its notes for the tail machines.

        Args: mode: the topic's `lockstep.locks`.
        Raises RequestError: the batch may not be appended.
        """
        header, local_id, next_offset = body.header, partition.local_id, partition.next_offset
        marks, metadata_index = self.table.partitions.get(local_id), self._cluster.metadata_index
        if mode == LOCKS_IGNORED:
            if marks is None:
                return b""
            if marks.since <= metadata_index:
                return end(local_id, next_offset)
            mode = LOCKS_KEPT  # this node does not know of the setting yet that the log knows of
        requests = self._requests(partition, body)
        if mode != LOCKS_KEPT:
            if requests:
                self._reject_permanently("LOCKS_OFF", partition, requests[0].record, "lockstep.locks=false")
            return b""
        if marks is None:
            found = begin(local_id, next_offset - 1, metadata_index)
        else:
            found = since(local_id, metadata_index) if metadata_index > marks.since else b""
        if not requests:
            return found
        if header.is_transactional:
            self._reject_permanently("TRANSACTIONAL", partition, requests[0].record, "use an atomic append")
        try:
            raised = self._check_all(partition, requests)
        except RequestError as rejection:
            self.rejected += 1
            self.rejected_by_estimate += isinstance(rejection, LockConflict) and not rejection.is_exact
            raise
        self.accepted += 1
        return found + raises(local_id, next_offset + header.last_offset_delta, raised) if raised else found

    def _requests(self, partition: PartitionLog, body: BatchBody) -> list[LockRequest]:
        """Returns the lock requests to check. Raises RequestError."""
        try:
            return [each for each in lock_requests_of(body) if each.is_conditional]
        except TooManyLocks as error:
            self._reject_permanently("TOO_MANY_LOCKS", partition, error.record, error)
        except BadLockHeader as error:
            self._reject_permanently("BAD_HEADER", partition, error.record, error)
        except MalformedBatch as error:
            raise RequestError(NOT_RETRIABLE, str(error)) from None

    def _check_all(self, partition: PartitionLog, requests: Sequence[LockRequest]) -> dict[bytes, None]:
        """The hashes of what the batch raises, in the records' order."""
        here = self._place(partition)
        raised: dict[bytes, None] = {}
        for records in _together(requests):
            for each in records:
                self._check_record(here, each, raised)
            for each in records:
                raised.update(dict.fromkeys([here.hash_of(name) for name in each.writes + each.appends]))
        return raised

    def _check_record(self, here: _LockedPartition, request: LockRequest, raised: Container[bytes]) -> None:
        log, record = here.log, request.record
        own = log.next_offset + record
        if request.expected_offset is not None and request.expected_offset != own:
            self._reject_offset(log, record, request.expected_offset, own)
        self._check(here, record, request, raised)
        for (topic, index), locks in request.other_partitions.items():
            name = f"{topic}-{index}"
            partition = self._cluster.partition(topic, index)
            if partition is None:
                raise RequestError(
                    NOT_RETRIABLE, self._line("UNKNOWN_PARTITION", log, record, f"other={_quote(name)}")
                )
            if partition.group is not self._group:
                raise RequestError(
                    NOT_RETRIABLE, self._line("OTHER_GROUP", log, record, f"other={_quote(name)}")
                )
            if partition.topic.config.lockstep_locks != LOCKS_KEPT:
                raise RequestError(
                    NOT_RETRIABLE, self._line("LOCKS_OFF", log, record, f"other={_quote(name)}")
                )
            there = self._place(partition.log)
            self._check(there, record, locks, raised if partition.log is log else ())

    def _reject_offset(self, log: PartitionLog, record: int, expected: int, own: int) -> NoReturn:
        """An offset that is taken may be of a batch that is not committed: only RETRY waits for that."""
        if expected > own:
            self._require_lease()
            raise RequestError(
                NOT_RETRIABLE, self._line("EXPECTED_OFFSET", log, record, f"expected={expected}")
            )
        text = f"expected={expected} conflict_offset={log.next_offset - 1} exact"
        raise LockConflict(RETRY, self._line("EXPECTED_OFFSET", log, record, text), True)

    def _check(
        self, locked: _LockedPartition, record: int, locks: PartitionLocks, raised: Container[bytes]
    ) -> None:
        log = locked.log
        if locks.topic_id is not None and locks.topic_id != log.topic_id:
            raise RequestError(
                NOT_RETRIABLE, self._line("OTHER_TOPIC", log, record, "the topic was re-created")
            )
        if not (locks.writes or locks.reads):
            return
        hwm = locks.hwm
        if hwm is None:
            raise RequestError(
                NOT_RETRIABLE, self._line("NO_HWM", log, record, "read and write locks need lockstep-hwm")
            )
        if hwm >= log.last_stable_offset:
            self._require_lease()
            text = f"hwm={hwm} last_stable_offset={log.last_stable_offset}"
            raise RequestError(NOT_RETRIABLE, self._line("AHEAD", log, record, text))
        worst: _Conflict | None = None
        for mode, names in (("W", locks.writes), ("R", locks.reads)):
            for name in names:
                lock = locked.hash_of(name)
                mark, is_exact = locked.marks.of(lock)
                if lock in raised:
                    # By a record that is rejected with this one: it is never appended.
                    conflict = _Conflict(False, log.next_offset - 1, name, mode, True, True)
                elif mark > hwm:
                    conflict = _Conflict(mark < log.log_start_offset, mark, name, mode, is_exact)
                else:
                    continue
                if worst is None or conflict[:2] > worst[:2]:
                    worst = conflict
        if worst is not None:
            raise self._conflict(log, record, hwm, worst)

    def _conflict(self, log: PartitionLog, record: int, hwm: int, by: _Conflict) -> LockConflict:
        text = (
            f"lock={quote_from_bytes(by.name, '')} mode={by.mode} hwm={hwm} conflict_offset={by.mark} "
            f"{'exact' if by.is_exact else 'estimate'}"
        )
        if by.is_of_same_batch:
            text += " raised_by=same-batch"
        reason = "TRIMMED" if by.is_trimmed else "LOCK"
        return LockConflict(
            NOT_RETRIABLE if by.is_trimmed else RETRY, self._line(reason, log, record, text), by.is_exact
        )

    def _require_lease(self) -> None:
        """Raises RequestError without a lease. Called before a final error about a high-water mark beyond the
        log: another leader may have more."""
        if not self._group.has_lease:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node may lead the partition by now")

    def _place(self, log: PartitionLog) -> _LockedPartition:
        return _LockedPartition(log, self.table.partitions.get(log.local_id))

    def _reject_permanently(
        self, reason: str, partition: PartitionLog, record: int, problem: object
    ) -> NoReturn:
        self.rejected += 1
        raise RequestError(NOT_RETRIABLE, self._line(reason, partition, record, str(problem))) from None

    def _line(self, reason: str, log: PartitionLog, record: int, rest: str) -> str:
        topic = self._cluster.topic_by_id(log.topic_id)
        name = _quote(f"{topic.name if topic else '?'}-{log.index}")
        return f"{REJECTION_PREFIX}reason={reason} record={record} topic-partition={name} {rest}"


def require_no_locks(records: Buffer, most_bytes: int) -> None:
    """For a batch without a response (acks=0). Raises RequestError where a record has locks.

    One of more than `most_bytes` is rejected anyway, and not opened for that.
    """
    if len(records) > most_bytes:
        return
    try:
        if any(each.is_conditional for each in lock_requests(records, read_header(records))):
            raise RequestError(NOT_RETRIABLE, "locks need acks=1 or acks=all")
    except (BadLockHeader, MalformedBatch) as error:
        raise RequestError(NOT_RETRIABLE, str(error)) from None


def hash_of(topic_id: bytes, name: bytes) -> bytes:
    """Returns the hash of a lock in a topic."""
    return blake2b(name, digest_size=HASH_BYTES, key=topic_id).digest()


def _together(requests: Sequence[LockRequest]) -> Iterator[Sequence[LockRequest]]:
    """The records of each request."""
    at = 0
    while at < len(requests):
        end = at + 1
        if requests[at].parts > 1:
            while end < len(requests) and requests[end].request == requests[at].request:
                end += 1
        yield requests[at:end]
        at = end


def _quote(name: str) -> str:
    return quote_from_bytes(name.encode(), "")
