"""A transaction in the making, and what becomes of it: something to be appended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockstep.protocol.lock_words import MAX_LOCK_NAME_BYTES, MAX_LOCK_NAMES, PREFIX
from lockstep.transactions.log import AppendAttempt, PartitionBatch, ReadLocks
from lockstep.transactions.model import Header, NotAppended, Record, RequestId

Name = str | bytes
"""Of a lock; text is taken as UTF-8. See `lockstep.transactions.lock`."""


class PartitionDraft:
    """A draft's records and locks for one partition."""

    __slots__ = ("append_locks", "expected_offset", "read_locks", "records", "write_locks")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.write_locks: list[bytes] = []
        self.read_locks: list[bytes] = []
        self.append_locks: list[bytes] = []
        self.expected_offset: int | None = None

    @property
    def names(self) -> int:
        return len(self.write_locks) + len(self.read_locks) + len(self.append_locks)


class Draft:
    """A transaction in the making: records, and the locks under which they may be appended.

    Everything goes to the transaction's own partition unless another one is named. Records in several
    partitions are appended all or none; those partitions must be in one log group.
    """

    __slots__ = ("_parts", "partition", "partitions")

    def __init__(self, partition: int, partitions: int) -> None:
        self.partition = partition
        self.partitions = partitions
        """The number of partitions of the topic."""
        self._parts: dict[int, PartitionDraft] = {}

    @property
    def parts(self) -> Mapping[int, PartitionDraft]:
        """By partition."""
        return self._parts

    def add(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Iterable[Header] | Mapping[str, bytes | None] = (),
        partition: int | None = None,
    ) -> None:
        """A record. TypeError for text where bytes belong, ValueError for headers of the client's own."""
        for what, given in (("value", value), ("key", key)):
            if given is not None and not isinstance(given, bytes):
                raise TypeError(f"{what}={given!r}: bytes or None")
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        listed = tuple((name, content) for name, content in pairs)
        for name, content in listed:
            if not isinstance(name, str) or not isinstance(content, bytes | None):
                raise TypeError(f"header {name!r}: {content!r}: a str, and bytes or None")
            if name.startswith(PREFIX):
                raise ValueError(f"header {name!r}: names that begin with {PREFIX} are the client's own")
        self._part(partition).records.append(Record(value, key, listed))

    def write_lock(self, *names: Name, partition: int | None = None) -> None:
        """Rejects it if one of these was raised since; raises them. The partition must get a record, too."""
        self._add_names(partition, "write_locks", names)

    def read_lock(self, *names: Name, partition: int | None = None) -> None:
        """Rejects it if one of these was raised since."""
        self._add_names(partition, "read_locks", names)

    def append_lock(self, *names: Name, partition: int | None = None) -> None:
        """Raises these unconditionally. The partition must get a record, too."""
        self._add_names(partition, "append_locks", names)

    def expect_offset(self, offset: int, *, partition: int | None = None) -> None:
        """Rejects it unless the first record there gets exactly this offset."""
        self._part(partition).expected_offset = offset

    def _part(self, partition: int | None) -> PartitionDraft:
        number = self.partition if partition is None else partition
        if not 0 <= number < self.partitions:
            raise ValueError(f"partition {number}: the topic has 0 to {self.partitions - 1}")
        return self._parts.setdefault(number, PartitionDraft())

    def _add_names(self, partition: int | None, kind: str, names: Iterable[Name]) -> None:
        part = self._part(partition)
        for name in names:
            if not isinstance(name, str | bytes):
                raise TypeError(f"lock {name!r}: a name is str or bytes")
            encoded = name.encode() if isinstance(name, str) else bytes(name)
            if not encoded or b"\n" in encoded or len(encoded) > MAX_LOCK_NAME_BYTES:
                raise ValueError(f"lock {name!r}: a name has 1 to {MAX_LOCK_NAME_BYTES} bytes and no newline")
            listed: list[bytes] = getattr(part, kind)
            listed.append(encoded)
        if part.names > MAX_LOCK_NAMES:
            raise ValueError(f"{part.names} locks in one transaction, {MAX_LOCK_NAMES} are allowed")


def append_of(draft: Draft, request: RequestId, marks: Mapping[int, int]) -> AppendAttempt:
    """A draft, and the high-water marks it was computed from. Raises NotAppended for what cannot be."""
    written = {number: part for number, part in draft.parts.items() if part.records}
    if not written:
        raise NotAppended("the transaction has no record: add one, or return False from execute")
    for number, part in draft.parts.items():
        if number not in marks:
            raise NotAppended(f"partition {number} is not assigned to this client: assign() it")
        if number not in written and (
            part.write_locks or part.append_locks or part.expected_offset is not None
        ):
            raise NotAppended(f"partition {number}: only read locks go without a record there")
    other_read_locks = {
        number: ReadLocks(marks[number], tuple(part.read_locks))
        for number, part in draft.parts.items()
        if number not in written and part.read_locks
    }
    first = draft.partition if draft.partition in written else min(written)
    return AppendAttempt(
        request,
        {
            number: _part(part, marks[number], other_read_locks if number == first else {})
            for number, part in sorted(written.items())
        },
    )


def _part(draft: PartitionDraft, mark: int, other_read_locks: Mapping[int, ReadLocks]) -> PartitionBatch:
    return PartitionBatch(
        tuple(draft.records),
        mark,
        tuple(draft.write_locks),
        tuple(draft.read_locks),
        tuple(draft.append_locks),
        draft.expected_offset,
        other_read_locks,
    )
