"""Transactions as records: encodes lock headers, decodes committed records and rejections. Pure.

Owns the client's side of what `lockstep.broker.locks.lock_headers` and `lockstep.broker.locks.lock_check` own
for the broker. All records of an append have its request and their place in it; its condition is on the
first one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.ids import format_uuid
from lockstep.protocol.lock_words import (
    EXPECTED,
    HWM,
    PART,
    PREFIX,
    READ,
    REJECTION_PREFIX,
    REQUEST,
    TOPIC_ID,
)
from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.primitives import Buffer
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.committed import CommittedReader
from lockstep.protocol.records.record import BatchBuilder, iter_records
from lockstep.protocol.records.record import Record as StoredRecord
from lockstep.transactions.log import PartitionBatch
from lockstep.transactions.model import Committed, Header, Record, Refusal, RequestId

_PART_OF: Final = re.compile(rb"([1-9]\d{0,5})/([1-9]\d{0,5})")
_NO_REASON: Final = Refusal("POLICY_VIOLATION", False, -1, None, False, None, "the broker gave no reason")


class ProducerIdentity(NamedTuple):
    """A producer's, and where it is in one partition: what makes a batch the same when it is sent again."""

    producer_id: int
    producer_epoch: int
    sequence: int


def batch_of(
    part: PartitionBatch,
    request: RequestId,
    identity: ProducerIdentity,
    topic: str,
    topic_id: bytes,
    timestamp_ms: int,
) -> bytes:
    """The one batch that a partition gets of an append."""
    builder = BatchBuilder(
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=identity.sequence,
    )
    count = len(part.records)
    own: list[Header] = [(REQUEST, str(request).encode())]
    for number, record in enumerate(part.records, 1):
        headers = [*own, (PART, b"%d/%d" % (number, count))] if count > 1 else list(own)
        if number == 1:
            headers += condition_of(part, topic, format_uuid(topic_id).encode())
        builder.append(
            record.value, record.key, timestamp_ms=timestamp_ms, headers=[*headers, *record.headers]
        )
    return builder.build()


def condition_of(part: PartitionBatch, topic: str, topic_id: bytes) -> list[Header]:
    """The headers with the conditions of a batch's append."""
    found: list[Header] = [(TOPIC_ID, topic_id)]
    if part.write_locks or part.read_locks:
        found.append((HWM, b"%d" % part.hwm))
    for kind, names in (
        ("write", part.write_locks),
        ("read", part.read_locks),
        ("append", part.append_locks),
    ):
        if names:
            found.append((f"{PREFIX}{kind}-lock", b"\n".join(names)))
    if part.expected_offset is not None:
        found.append((EXPECTED, b"%d" % part.expected_offset))
    for partition, locks in part.other_read_locks.items():
        where = f"@{topic}-{partition}"
        found.append((f"{TOPIC_ID}{where}", topic_id))
        found.append((f"{HWM}{where}", b"%d" % locks.hwm))
        found.append((f"{READ}{where}", b"\n".join(locks.read_locks)))
    return found


def refusal_of(code: int, text: str | None, partition: int) -> Refusal:
    """Parse a rejection. `partition` is that of the response; the text may name another one."""
    is_final = code == ErrorCode.INVALID_RECORD
    if text is None or not text.startswith(REJECTION_PREFIX):
        return _NO_REASON._replace(is_final=is_final, partition=partition, text=text or _NO_REASON.text)
    words = dict(word.partition("=")[::2] for word in text[len(REJECTION_PREFIX) :].split(" "))
    where = words.get("topic-partition", "").rpartition("-")[2]
    conflict = words.get("conflict_offset", "")
    name = words.get("lock")
    return Refusal(
        words.get("reason", "unknown"),
        is_final,
        int(where) if where.isdecimal() else partition,
        int(conflict) if conflict.isdecimal() else None,
        "exact" in words,
        None if name is None else unquote_to_bytes(name),
        text,
    )


def committed_in(
    records: Buffer, partition: int, position: int, aborted: Sequence[AbortedTransaction] | None
) -> tuple[list[Committed], int]:
    """The transactions from `position` on in a read_committed Fetch, and the position behind them.

    Raises MalformedBatch for what cannot be read.
    """
    entries: list[Committed] = []
    reader = CommittedReader(aborted or ())
    for pos, header in iter_headers(records):
        if reader.is_visible(records, pos, header) and header.last_offset >= position:
            found = (each for each in iter_records(records, pos) if each.offset >= position)
            entries.extend(_entries(partition, found))
        position = max(position, header.next_offset)
    return entries, position


def _entries(partition: int, records: Iterable[StoredRecord]) -> Iterator[Committed]:
    """The records of one request are one transaction; any other record is one of its own."""
    gathered: list[_Read] = []
    for stored in records:
        read = _read(stored)
        if gathered and not read.follows(gathered[-1]):
            yield _parse_committed(partition, gathered)
            gathered = []
        gathered.append(read)
    if gathered:
        yield _parse_committed(partition, gathered)


class _Read(NamedTuple):
    """A record, and the request and the part in its headers."""

    stored: StoredRecord
    headers: tuple[Header, ...]
    request: RequestId | None
    part: tuple[int, int] | None

    def follows(self, other: _Read) -> bool:
        """True if both are parts of one transaction. Records of a time without locks may have any headers."""
        if self.part is None or other.part is None or self.request is None or self.request != other.request:
            return False
        return self.part == (other.part[0] + 1, other.part[1])


def _read(stored: StoredRecord) -> _Read:
    if not any(name.startswith(PREFIX) for name, _ in stored.headers):
        return _Read(stored, tuple(stored.headers), None, None)
    own = {name: value for name, value in stored.headers if name.startswith(PREFIX)}
    part = _PART_OF.fullmatch(own.get(PART) or b"")
    return _Read(
        stored,
        tuple(each for each in stored.headers if not each[0].startswith(PREFIX)),
        RequestId.parse(own.get(REQUEST)),
        part and (int(part[1]), int(part[2])),
    )


def _parse_committed(partition: int, gathered: Sequence[_Read]) -> Committed:
    last = gathered[-1]
    return Committed(
        partition,
        last.stored.offset,
        tuple(Record(each.stored.value, each.stored.key, each.headers) for each in gathered),
        request=last.request,
        timestamp_ms=last.stored.timestamp,
    )
