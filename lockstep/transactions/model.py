"""What an application and a transaction client tell each other.

Owns: the two classes that an application derives from (`Transaction`, `Application`), what they are handed
(`Draft`, `Committed`, `Refusal`), and the errors that come back.

A partition's high-water mark is the offset up to which, that one included, its log has been applied; -1 for
nothing. Source: seeds 003 and 004 (Waltz's programming model).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Iterable, Mapping
from typing import Final, NamedTuple, Self

Header = tuple[str, bytes | None]
Name = str | bytes
"""Of a lock; text is taken as UTF-8. See `lock`."""

_log = logging.getLogger("lockstep.transactions")

OWN_PREFIX: Final = "lockstep-"
MOST_NAMES: Final = 256
"""Lock names of one transaction in one partition, as the broker has it."""
LONGEST_NAME: Final = 1024
"""Bytes of a lock name."""


class TransactionError(Exception):
    """A transaction did not come to its end; says why."""


class RefusedForGood(TransactionError):
    """The log refuses it, and will refuse it again: it is not appended."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class NotAppended(TransactionError):
    """It is not in the log and will never be: too large, the partition is not ours, the client was closed."""


class Expired(TransactionError):
    """Its time is over. `is_known`: it is not in the log and will never be; otherwise it may be, or come."""

    def __init__(self, text: str, *, is_known: bool) -> None:
        super().__init__(text)
        self.is_known = is_known


class NotApplied(TransactionError):
    """It is in the log, at `offsets` by partition; the application had not applied it in time."""

    def __init__(self, text: str, offsets: Mapping[int, int]) -> None:
        super().__init__(text)
        self.offsets = offsets


class Refusal(NamedTuple):
    """Why the log did not take an append."""

    reason: str
    """LOCK, EXPECTED_OFFSET, AHEAD, TRIMMED and so on, as in docs/locks.md."""
    is_final: bool
    """It will never pass as it is."""
    partition: int
    """Where the conflict is."""
    conflict_offset: int | None
    """What must be applied before it can pass; None: everything that was there when it was refused."""
    is_exact: bool
    """Whether that lock was raised at that offset; otherwise the broker knows an upper bound."""
    lock: bytes | None
    text: str
    """The broker's own words."""


class RequestId(NamedTuple):
    """Who asked for a transaction, and which of theirs it is; each execution has its own."""

    client: str
    generation: int
    """Rises with each fence of the client."""
    sequence: int

    def __str__(self) -> str:
        return f"{self.client}/{self.generation}/{self.sequence}"

    @classmethod
    def parse(cls, value: bytes | None) -> Self | None:
        """From a `lockstep-request` header; None for what is none."""
        found = _REQUEST.fullmatch(value or b"")
        return found and cls(found[1].decode(), int(found[2]), int(found[3]))


_REQUEST: Final = re.compile(rb"([!-.0-~]{1,64})/(\d{1,18})/(\d{1,18})")


class Record(NamedTuple):
    """One record of a transaction. Headers that begin with `lockstep-` are not among `headers`."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()


class Committed:
    """One transaction, as it stands in one partition's log; a record of another producer is one, too."""

    __slots__ = ("offset", "partition", "previous", "records", "request", "timestamp_ms")

    def __init__(
        self,
        partition: int,
        offset: int,
        records: tuple[Record, ...],
        *,
        previous: int = -1,
        request: RequestId | None = None,
        timestamp_ms: int = -1,
    ) -> None:
        self.partition = partition
        self.offset = offset
        """Of its last record: the partition's high-water mark once it is applied."""
        self.previous = previous
        """The `offset` of what was applied before it: what a store holds that has applied all but this."""
        self.records = records
        self.request = request
        """None where it was not a transaction client's."""
        self.timestamp_ms = timestamp_ms

    @property
    def value(self) -> bytes | None:
        """Of the first record; most transactions have one."""
        return self.records[0].value

    @property
    def key(self) -> bytes | None:
        return self.records[0].key

    @property
    def headers(self) -> tuple[Header, ...]:
        return self.records[0].headers

    def __repr__(self) -> str:
        return f"Committed(partition={self.partition}, offset={self.offset}, request={self.request!s})"


class Appended(NamedTuple):
    """A transaction that is in the log, and applied."""

    offsets: Mapping[int, int]
    """Partition -> offset of its last record there."""
    tries: int
    """How often it was executed: 1 where nothing stood in its way."""


def lock(name: str, number: int | str) -> bytes:
    """A lock's name from a kind of thing and which of them: `lock("account", 12)` is `account/12`."""
    return f"{name}/{number}".encode()


class PartitionDraft:
    """What a draft has for one partition."""

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
        """How many the topic has."""
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
        headers: Iterable[Header] = (),
        partition: int | None = None,
    ) -> None:
        """A record. ValueError for a header that begins with `lockstep-`."""
        listed = tuple(headers)
        for name, _ in listed:
            if name.startswith(OWN_PREFIX):
                raise ValueError(f"header {name!r}: names that begin with {OWN_PREFIX} are the client's own")
        self._part(partition).records.append(Record(value, key, listed))

    def write_lock(self, *names: Name, partition: int | None = None) -> None:
        """Refuse it if one of these was raised since; raise them. The partition must get a record, too."""
        self._add_names(partition, "write_locks", names)

    def read_lock(self, *names: Name, partition: int | None = None) -> None:
        """Refuse it if one of these was raised since."""
        self._add_names(partition, "read_locks", names)

    def append_lock(self, *names: Name, partition: int | None = None) -> None:
        """Raise these, whatever they were. The partition must get a record, too."""
        self._add_names(partition, "append_locks", names)

    def expect_offset(self, offset: int, *, partition: int | None = None) -> None:
        """Refuse it unless the first record there gets exactly this offset."""
        self._part(partition).expected_offset = offset

    def _part(self, partition: int | None) -> PartitionDraft:
        number = self.partition if partition is None else partition
        if not 0 <= number < self.partitions:
            raise ValueError(f"partition {number}: the topic has 0 to {self.partitions - 1}")
        return self._parts.setdefault(number, PartitionDraft())

    def _add_names(self, partition: int | None, kind: str, names: Iterable[Name]) -> None:
        part = self._part(partition)
        for name in names:
            encoded = name.encode() if isinstance(name, str) else bytes(name)
            if not encoded or b"\n" in encoded or len(encoded) > LONGEST_NAME:
                raise ValueError(f"lock {name!r}: a name has 1 to {LONGEST_NAME} bytes and no newline")
            listed: list[bytes] = getattr(part, kind)
            listed.append(encoded)
        if part.names > MOST_NAMES:
            raise ValueError(f"{part.names} locks in one transaction, {MOST_NAMES} are allowed")


class Transaction:
    """Something to be done, as often as it takes: derive from it and give it `execute`.

    The methods may be plain or `async`. None but `execute` is needed. An exception in an `on_` method
    goes to the application's `on_exception` and changes nothing. They must not wait for another transaction:
    the feed waits for them.
    """

    def partition(self, partitions: int) -> int:
        """Which partition it is about, of so many; asked before each execution."""
        return 0

    def execute(self, draft: Draft) -> bool | Awaitable[bool | None] | None:
        """Read the application's state, add records and locks to the draft. False: nothing is to be done.

        Executed again after a refusal, when what stood in its way has been applied; it must change nothing.
        """
        raise NotImplementedError

    def on_completion(self, is_appended: bool) -> Awaitable[None] | None:
        """It is in the log; or, with False, `execute` did not want it to be. Nothing is tried any more."""

    def on_application(self, committed: Committed) -> Awaitable[None] | None:
        """The application has applied it, or found it applied; called once per partition that it wrote to."""

    def on_refusal(self, refusal: Refusal) -> Awaitable[None] | None:
        """The log refused it; unless the refusal is final it will be executed again."""

    def on_exception(self, error: BaseException) -> Awaitable[None] | None:
        """`execute` failed, or the log cannot take it; nothing is tried any more."""

    def on_expiration(self, is_known: bool) -> Awaitable[None] | None:
        """Its time is over. True: it is not in the log and will never be. False: nobody knows yet."""


class Application:
    """An application's state, as the feed changes it: derive from it. The methods may be plain or `async`."""

    def high_water_mark(self, partition: int) -> int | Awaitable[int]:
        """The offset up to which the application has applied this partition; -1 for nothing."""
        raise NotImplementedError

    def apply(self, committed: Committed) -> Awaitable[None] | None:
        """Apply one transaction, and remember `committed.offset` as the new high-water mark with it.

        Called in the order of the log, one at a time within a partition. An exception stalls the partition:
        nothing is skipped, nothing tried again until `TransactionClient.resume`.
        """
        raise NotImplementedError

    def on_exception(self, partition: int, offset: int, error: BaseException) -> Awaitable[None] | None:
        """`apply` failed at this offset, and the partition is stalled; or a transaction's own callback did
        (both numbers are -1 then, and nothing is stalled). The default logs it."""
        _log.error("partition %d, offset %d: %r", partition, offset, error, exc_info=error)
        return None
