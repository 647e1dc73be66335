"""One partition of a log in memory: its records, and the offset at which each lock was last raised. Pure.

It implements docs/locks.md in the plainest way: a dict that forgets nothing. It shares no code
with the broker on purpose, so that each is a check of the other. What is here is committed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NoReturn
from urllib.parse import quote_from_bytes

from lockstep.protocol.lock_words import MAX_LOCK_NAMES, REJECTION_PREFIX
from lockstep.transactions.log import AppendRefused, Chunk, PartitionBatch, Trimmed
from lockstep.transactions.model import Committed, Record, Refusal, RequestId


class MemoryPartition:
    """Its transactions in order, and its marks."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic: Final = topic
        self.number: Final = number
        self.entries: list[Committed] = []
        self.marks: dict[bytes, int] = {}
        """Lock -> last offset of the batch that raised it last."""
        self.next_offset = 0
        self.log_start_offset = 0

    def append(
        self,
        records: Iterable[Record],
        *,
        raised: Iterable[bytes] = (),
        request: RequestId | None = None,
        timestamp_ms: int = -1,
    ) -> int:
        """One transaction, whatever its condition; the offset of its last record, which is the new mark."""
        listed = tuple(records)
        self.next_offset += len(listed)
        offset = self.next_offset - 1
        self.entries.append(
            Committed(self.number, offset, listed, request=request, timestamp_ms=timestamp_ms)
        )
        self.marks.update(dict.fromkeys(raised, offset))
        return offset

    def skip(self, offsets: int) -> None:
        """Offsets that no application sees, as a marker of Kafka's transactions takes one."""
        self.next_offset += offsets

    def trim(self, offset: int) -> None:
        """Deletes the records below `offset`; a transaction is deleted as a whole, lock versions stay."""
        kept = self._at(min(offset, self.next_offset))
        if kept < len(self.entries):
            first = self.entries[kept]
            offset = min(offset, first.offset - len(first.records) + 1)
        self.log_start_offset = max(self.log_start_offset, min(offset, self.next_offset))
        del self.entries[:kept]

    def read(self, position: int, max_entries: int) -> Chunk:
        """Up to `max_entries` transactions from `position` on, copies that the reader may change. Raises
        Trimmed."""
        if position < self.log_start_offset:
            raise Trimmed(f"{self.topic}-{self.number} begins at {self.log_start_offset}, not {position}")
        first = self._at(position)
        found = self.entries[first : first + max_entries]
        is_all = first + max_entries >= len(self.entries)
        end = max(position, self.next_offset) if is_all else found[-1].offset + 1
        return Chunk([_copy(each) for each in found], end)

    def check(self, part: PartitionBatch) -> None:
        """Check an append's conditions on the partition that it writes to. Raises AppendRefused."""
        if part.expected_offset is not None and part.expected_offset != self.next_offset:
            is_beyond = part.expected_offset > self.next_offset
            self.refuse(
                "EXPECTED_OFFSET",
                f"expected={part.expected_offset}",
                is_final=is_beyond,
                conflict_offset=None if is_beyond else self.next_offset - 1,
            )
        names = [part.write_locks, part.read_locks, part.append_locks]
        names += [each.read_locks for each in part.other_read_locks.values()]
        if sum(map(len, names)) > MAX_LOCK_NAMES:
            self.refuse("TOO_MANY_LOCKS", f"more than {MAX_LOCK_NAMES} locks in one record", is_final=True)
        self.check_locks(part.hwm, part.write_locks, part.read_locks)

    def check_locks(self, hwm: int, write_locks: Sequence[bytes], read_locks: Sequence[bytes]) -> None:
        """Check that no lock was raised above `hwm`. Raises AppendRefused."""
        if not (write_locks or read_locks):
            return
        if hwm >= self.next_offset:
            self.refuse("AHEAD", f"hwm={hwm} last_stable_offset={self.next_offset}", is_final=True)
        marks = (
            (self.marks.get(name, -1), mode, name) for mode, name in _with_modes(write_locks, read_locks)
        )
        conflicts = [
            (mark < self.log_start_offset, mark, mode, name) for mark, mode, name in marks if mark > hwm
        ]
        if conflicts:
            is_trimmed, mark, mode, name = max(conflicts, key=lambda each: each[:2])
            self.refuse(
                "TRIMMED" if is_trimmed else "LOCK",
                f"lock={quote_from_bytes(name, '')} mode={mode} hwm={hwm}",
                is_final=is_trimmed,
                conflict_offset=mark,
                lock=name,
            )

    def refuse(
        self,
        reason: str,
        rest: str,
        *,
        is_final: bool = False,
        conflict_offset: int | None = None,
        lock: bytes | None = None,
    ) -> NoReturn:
        """Raises AppendRefused, in the broker's words."""
        name = quote_from_bytes(self.topic.encode(), "")
        text = f"{REJECTION_PREFIX}reason={reason} record=0 topic-partition={name}-{self.number} {rest}"
        if conflict_offset is not None:
            text += f" conflict_offset={conflict_offset} exact"
        is_exact = conflict_offset is not None
        raise AppendRefused(Refusal(reason, is_final, self.number, conflict_offset, is_exact, lock, text))

    def _at(self, offset: int) -> int:
        """The place of the first transaction that ends at `offset` or later."""
        return bisect_left(self.entries, offset, key=lambda entry: entry.offset)


def _with_modes(write_locks: Iterable[bytes], read_locks: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    for name in write_locks:
        yield "W", name
    for name in read_locks:
        yield "R", name


def _copy(entry: Committed) -> Committed:
    return Committed(
        entry.partition,
        entry.offset,
        entry.records,
        request=entry.request,
        timestamp_ms=entry.timestamp_ms,
    )
