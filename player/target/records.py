"""The records that a target is given to apply: those of the parts that are stored in one transaction.

Owns: opening a part (a record batch, compressed or not), once for each batch; how what came is named.
Invariants: records come in the order of their offsets; a part is one whole batch whose checksum is right, or
MalformedBatch is raised and nothing of it is applied.
Does not: apply, store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lockstep.player.core.messages import Part
from lockstep.protocol.records.batch import MalformedBatch, read_header, verify
from lockstep.protocol.records.record import Record, iter_records


class LogName(NamedTuple):
    """The log that entries belong to."""

    log_id: str
    """Cluster, topic id and partition or log group: a mark is kept for each."""
    topic: str
    partition: int
    """-1 where the log is several partitions of the topic: then each entry names its own."""


class EntryRecords(NamedTuple):
    """This target's records of one entry of the log: the same records each time that the entry is sent."""

    position: int
    records: Sequence[Record]
    """Each with its `offset`, `timestamp` (ms since 1970), `key`, `value` and `headers`."""
    partition: int = 0
    """The partition of the topic that the offsets are of."""


class Delivered:
    """The entries of one transaction; they follow on the stored position, without a gap.

    Which entries are taken together is not fixed: after a crash, those that were not stored come again, and
    perhaps more or fewer at a time.
    """

    __slots__ = ("entries", "name", "position", "previous_position", "records")

    def __init__(
        self, name: LogName, previous_position: int, position: int, entries: Sequence[EntryRecords]
    ) -> None:
        self.name = name
        self.previous_position = previous_position
        """The mark that is stored now."""
        self.position = position
        """The mark that is stored with what this changes; it may lie behind the last entry."""
        self.entries = entries
        if len(entries) == 1:
            self.records = entries[0].records
        else:
            self.records = [record for entry in entries for record in entry.records]

    @property
    def log_id(self) -> str:
        return self.name.log_id

    @property
    def topic(self) -> str:
        return self.name.topic

    @property
    def partition(self) -> int:
        """-1 where the log is several: look at `entries`."""
        return self.name.partition

    def __repr__(self) -> str:
        return (
            f"Delivered({self.topic}-{self.partition}, {len(self.records)} records, "
            f"after {self.previous_position} to {self.position})"
        )


def records_of(payload: object) -> list[Record]:
    """The records of one part. Raises MalformedBatch: it is not one whole batch of records."""
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise MalformedBatch(f"a part is the bytes of a record batch, not {type(payload).__name__}")
    header = read_header(payload)
    if header.total_bytes != len(payload):
        raise MalformedBatch(f"{len(payload) - header.total_bytes} bytes after the record batch of a part")
    if header.is_control:
        raise MalformedBatch(f"the batch at {header.base_offset} holds markers, and no records")
    verify(payload, 0, header)
    return list(iter_records(payload))


def open_parts(parts: Sequence[Part], partition: int = 0) -> list[EntryRecords]:
    """The records of some parts, none of which is a dummy; `partition`: of those that name none.

    Raises MalformedBatch.
    """
    return [
        EntryRecords(
            part.position,
            records_of(part.payload),
            partition if part.partition is None else part.partition,
        )
        for part in parts
    ]
