"""Lock headers: the conditions of a record for its append. Pure.

Owns the grammar: a decimal number, or names with newlines between them; no null values and no repeated keys
are needed, since some clients offer neither. What concerns another partition ends in `@TOPIC-PARTITION`. A
header that begins with `lockstep-` and is not known is rejected: a misspelt lock would not lock.
Source: the project's rules for locks; KIP-27 for the expected offset.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Final

from lockstep.protocol.lock_words import (
    APPEND,
    EXPECTED,
    HWM,
    MAX_LOCK_NAME_BYTES,
    MAX_LOCK_NAMES,
    PART,
    PREFIX,
    READ,
    REQUEST,
    TOPIC_ID,
    WRITE,
)
from lockstep.protocol.records.batch import BatchHeader
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.record import Headers, TooManyRecords, headers_with_prefix
from lockstep.storage.types import Buffer

LISTS: Final = (WRITE, READ, APPEND)
OF_ANY_PARTITION: Final = (READ, HWM, TOPIC_ID)
KNOWN: Final = (*LISTS, HWM, EXPECTED, TOPIC_ID, REQUEST, PART)

MAX_RECORDS: Final = 10_000
"""LIMIT. Records of a batch with locks, which the event loop reads: as many as librdkafka's largest has."""
MAX_NAMES_OF_BATCH: Final = 20_000
MAX_OPENED_BYTES: Final = 16 << 20
"""LIMIT. Decompressed bytes of a batch on a topic with locks."""
MAX_TOPIC_LENGTH: Final = 249

_PREFIX: Final = PREFIX.encode()
_OFFSET: Final = re.compile(rb"-1|\d{1,18}")
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")
_REQUEST: Final = re.compile(rb"[!-.0-~]{1,64}/\d{1,18}/\d{1,18}")
_PART: Final = re.compile(rb"([1-9]\d{0,5})/([1-9]\d{0,5})")
_TOPIC_ID_CHARACTERS: Final = 22


class BadLockHeader(ValueError):
    """`record` is the index of the record in its batch."""

    def __init__(self, problem: str, record: int = 0) -> None:
        super().__init__(problem)
        self.record = record


class TooManyLocks(BadLockHeader):
    """More names than a record may have, or one that is too long."""


class PartitionLocks:
    """The locks of one partition that a record requests."""

    __slots__ = ("hwm", "reads", "topic_id", "writes")

    def __init__(self) -> None:
        self.hwm: int | None = None
        """The writer has applied everything at or below it; -1 for nothing."""
        self.writes: list[bytes] = []
        self.reads: list[bytes] = []
        self.topic_id: bytes | None = None


class LockRequest(PartitionLocks):
    """The lock request of one record. `record` is its index in the batch."""

    __slots__ = (
        "appends",
        "expected_offset",
        "names",
        "other_partitions",
        "part",
        "parts",
        "record",
        "request",
    )

    def __init__(self, record: int) -> None:
        super().__init__()
        self.record = record
        self.appends: list[bytes] = []
        self.expected_offset: int | None = None
        self.other_partitions: dict[tuple[str, int], PartitionLocks] = {}
        """Locks of other partitions, by topic and partition; read only."""
        self.request: bytes | None = None
        self.part, self.parts = 1, 1
        self.names = 0
        """The number of lock names, of all kinds."""

    @property
    def is_conditional(self) -> bool:
        """True where there is anything to check or raise."""
        scalars = self.expected_offset, self.topic_id
        return bool(self.names or self.other_partitions) or scalars != (None, None)


def lock_requests(records: Buffer, header: BatchHeader) -> list[LockRequest]:
    """Returns the lock requests of the one batch in `records`. Raises as `lock_requests_of`."""
    return lock_requests_of(BatchBody(records, header))


def lock_requests_of(body: BatchBody) -> list[LockRequest]:
    """Returns the lock requests of a batch, without records that have none.

    Raises BadLockHeader, TooManyLocks; MalformedBatch where it cannot be opened.
    """
    try:
        of_records = headers_with_prefix(body, _PREFIX, MAX_RECORDS, MAX_OPENED_BYTES)
    except TooManyRecords as error:
        raise TooManyLocks(f"{error} in a batch with locks, at most {MAX_RECORDS} are looked at") from None
    found = []
    for record_index, headers in enumerate(of_records):
        if headers:
            try:
                found.append(_request(record_index, headers))
            except BadLockHeader as bad:
                bad.record = record_index
                raise
    if sum([each.names for each in found]) > MAX_NAMES_OF_BATCH:
        raise TooManyLocks(f"more than {MAX_NAMES_OF_BATCH} locks in one batch")
    _check_parts(found)
    return found


def _request(record_index: int, headers: Headers) -> LockRequest:
    request = LockRequest(record_index)
    seen: set[str] = set()
    for key, value in headers:
        if value is None:
            raise BadLockHeader(f"{key[:80]!r} without a value")
        kind, at, target = key.partition("@")
        if kind not in (OF_ANY_PARTITION if at else KNOWN):
            raise BadLockHeader(f"{key[:80]!r} is not known")
        locks = _other_partition(request, target) if at else request
        if kind in LISTS:
            listed = value.split(b"\n")
            request.names += len(listed)
            _check_names(kind, listed, request.names)
            _list_of(locks, request, kind).extend(listed)
            continue
        if key in seen:
            raise BadLockHeader(f"{key[:80]!r} appears twice")
        seen.add(key)
        _set(locks, request, kind, value)
    return request


def _set(locks: PartitionLocks, request: LockRequest, kind: str, value: bytes) -> None:
    if kind == HWM:
        locks.hwm = _offset(kind, value)
    elif kind == TOPIC_ID:
        locks.topic_id = _topic_id(value)
    elif kind == EXPECTED:
        request.expected_offset = _offset(kind, value)
    elif kind == PART:
        request.part, request.parts = _part(value)
    elif _REQUEST.fullmatch(value):
        request.request = value
    else:
        raise BadLockHeader(f"{kind}: {value[:80]!r} is not CLIENT/GENERATION/SEQUENCE")


def _list_of(locks: PartitionLocks, request: LockRequest, kind: str) -> list[bytes]:
    if kind == READ:
        return locks.reads
    return request.writes if kind == WRITE else request.appends


def _check_names(kind: str, listed: Sequence[bytes], names: int) -> None:
    if names > MAX_LOCK_NAMES:
        raise TooManyLocks(f"more than {MAX_LOCK_NAMES} locks in one record")
    for name in listed:
        if not name:
            raise BadLockHeader(f"{kind}: a lock without a name")
        if len(name) > MAX_LOCK_NAME_BYTES:
            raise TooManyLocks(f"{kind}: a name of {len(name)} bytes, {MAX_LOCK_NAME_BYTES} are allowed")


def _other_partition(request: LockRequest, target: str) -> PartitionLocks:
    topic, _, number = target.rpartition("-")
    if not topic or len(topic) > MAX_TOPIC_LENGTH or not _INDEX.fullmatch(number):
        raise BadLockHeader(f"@{target[:80]!r} is not @TOPIC-PARTITION")
    return request.other_partitions.setdefault((topic, int(number)), PartitionLocks())


def _offset(kind: str, value: bytes) -> int:
    if not _OFFSET.fullmatch(value) or (kind == EXPECTED and value == b"-1"):
        raise BadLockHeader(f"{kind}: {value[:80]!r} is no offset in decimal")
    return int(value)


def _part(value: bytes) -> tuple[int, int]:
    found = _PART.fullmatch(value)
    if found is None or int(found[1]) > int(found[2]):
        raise BadLockHeader(f"{PART}: {value[:80]!r} is not I/N with I from 1 to N")
    return int(found[1]), int(found[2])


def _topic_id(value: bytes) -> bytes:
    """Decodes a topic id in Kafka's text form."""
    try:
        if len(value) == _TOPIC_ID_CHARACTERS:
            return base64.b64decode(value + b"==", b"-_", validate=True)
    except ValueError:
        pass
    raise BadLockHeader(f"{TOPIC_ID}: {value[:80]!r} is no topic id as Kafka writes it")


def _check_parts(requests: Sequence[LockRequest]) -> None:
    """The records of one request stand one after the other, all of them in one batch."""
    left: LockRequest | None = None
    seen: set[bytes] = set()
    for each in requests:
        if each.part == 1 and each.request is not None:
            if each.request in seen:
                raise BadLockHeader(f"request {each.request!r} is in this batch twice", each.record)
            seen.add(each.request)
        if left is not None:
            follows = (each.request, each.part, each.parts) == (left.request, left.part + 1, left.parts)
            if not follows or each.record != left.record + 1:
                raise BadLockHeader(f"part {left.part + 1} of {left.parts} does not follow", left.record)
        elif each.part != 1:
            raise BadLockHeader(f"part {each.part} of {each.parts} does not follow its first", each.record)
        elif each.parts > 1 and each.request is None:
            raise BadLockHeader(f"{PART} without {REQUEST}", each.record)
        left = each if each.part < each.parts else None
    if left is not None:
        raise BadLockHeader(f"part {left.part + 1} of {left.parts} is not in this batch", left.record)
