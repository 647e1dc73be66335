"""The interface between an application and a transaction client.

Owns: `Application`, the base class of a user's own, the arguments of its methods (`Committed`, `Refusal`),
and the errors that clients raise. `Transaction` and `Draft` have modules of their own.

A partition's high-water mark is the last offset of its log that has been applied; -1 for none. Source: seeds
003 and 004 (Waltz's programming model).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Mapping
from typing import Final, NamedTuple, Self

from lockstep.protocol.client_errors import ClientError

Header = tuple[str, bytes | None]

_log = logging.getLogger("lockstep.transactions")


class TransactionError(Exception):
    """A transaction did not come to its end; the text has the reason."""


class RefusedForGood(TransactionError):
    """The log rejects the transaction permanently: it is not appended."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class NotAppended(TransactionError):
    """The transaction is not in the log and will never be: it is too large, its partition is not assigned, or
    the client was closed."""


class Expired(TransactionError):
    """The transaction's timeout is over. `is_known`: it is not in the log and will never be; else it may
    be."""

    def __init__(self, text: str, *, is_known: bool) -> None:
        super().__init__(text)
        self.is_known = is_known


class HighWaterMarkAhead(TransactionError):
    """The application's high-water mark is beyond the log: it belongs to another topic."""


class SubscriptionClosed(TransactionError):
    """The partition was unassigned, or the client closed, during a wait for it."""


class SubscriptionStalled(TransactionError):
    """The partition's subscription has stopped, and why; see `TransactionClient.resume`."""


class NotApplied(TransactionError):
    """The transaction is in the log, at `offsets` by partition; the application had not applied it in
    time."""

    def __init__(self, text: str, offsets: Mapping[int, int]) -> None:
        super().__init__(text)
        self.offsets = offsets


class Refusal(NamedTuple):
    """The reason why the log rejected an append."""

    reason: str
    """LOCK, EXPECTED_OFFSET, AHEAD, TRIMMED and so on, as in docs/locks.md."""
    is_final: bool
    """True if the log will reject the same append again."""
    partition: int
    """The partition of the conflict."""
    conflict_offset: int | None
    """The offset that must be applied before it can pass; None: everything that the log had at the
    rejection."""
    is_exact: bool
    """Whether the lock was raised at that offset; otherwise the broker knows only an upper bound."""
    lock: bytes | None
    text: str
    """The broker's error text."""


class RequestId(NamedTuple):
    """The client of a transaction, and its number there; each execution has its own."""

    client: str
    generation: int
    """Rises with each fence of the client."""
    sequence: int

    def __str__(self) -> str:
        return f"{self.client}/{self.generation}/{self.sequence}"

    @classmethod
    def parse(cls, value: bytes | None) -> Self | None:
        """Parses a `lockstep-request` header; returns None for any other value."""
        found = _REQUEST.fullmatch(value or b"")
        return found and cls(found[1].decode(), int(found[2]), int(found[3]))


_REQUEST: Final = re.compile(rb"([!-.0-~]{1,64})/(\d{1,18})/(\d{1,18})")


class Record(NamedTuple):
    """One record of a transaction. Headers that begin with `lockstep-` are not among `headers`."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()


class Committed:
    """One transaction in one partition's log; a record of another producer is one, too."""

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
        """The offset of its last record: the partition's high-water mark once it is applied."""
        self.previous = previous
        """The `offset` of the transaction before it: the high-water mark of a state that has applied all but
        this."""
        self.records = records
        self.request = request
        """None where another client wrote it."""
        self.timestamp_ms = timestamp_ms

    @property
    def value(self) -> bytes | None:
        """The value of the first of `records`; most transactions have one."""
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
    """Partition -> offset of the transaction's last record in it."""
    tries: int
    """The number of its executions: 1 without a conflict."""


def lock(name: str, number: int | str) -> bytes:
    """Returns a lock's name from a kind and an id: `lock("account", 12)` is `account/12`.

    Raises TypeError for bytes, whose text would be another name.
    """
    if not isinstance(name, str) or not isinstance(number, int | str):
        raise TypeError(f"lock({name!r}, {number!r}): a str, and an int or str")
    return f"{name}/{number}".encode()


class Application:
    """An application's state, changed by its subscriptions: derive from it. Methods are plain or `async`."""

    def on_open(self, topic_id: str) -> Awaitable[None] | None:
        """The client has opened the topic with this id, as Kafka's tools show it; called before anything
        else.

        A topic that is created again under its name has another id, and other records at its offsets: an
        application that stores marks stores the id with them, and raises here for another one.
        """

    def high_water_mark(self, partition: int) -> int | Awaitable[int]:
        """The offset up to which the application has applied this partition; -1 for nothing."""
        raise NotImplementedError(f"{type(self).__name__} has no high_water_mark")

    def apply(self, committed: Committed) -> Awaitable[None] | None:
        """Applies one transaction, and stores `committed.offset` as the new high-water mark with it.

        Called in the order of the log, one at a time within a partition. An exception stalls the partition:
        nothing is skipped, nothing tried again until `TransactionClient.resume`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no apply")

    def on_exception(self, partition: int, offset: int, error: BaseException) -> Awaitable[None] | None:
        """`apply` failed at this offset, and the partition is stalled; or a transaction's own callback did
        (both numbers are -1 then, and nothing is stalled). The default logs it."""
        is_explained = isinstance(error, ClientError | TransactionError)
        _log.error(
            "partition %d, offset %d: %s",
            partition,
            offset,
            f"{type(error).__name__}: {error}",
            exc_info=None if is_explained else error,
        )
        return None
