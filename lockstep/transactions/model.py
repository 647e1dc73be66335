"""The interface between an application and a transaction client.

Owns: `Application`, which a user derives from, what its methods are handed (`Committed`, `Refusal`), and the
errors that come back. `Transaction` and `Draft` have modules of their own.

A partition's high-water mark is the offset up to which, that one included, its log has been applied; -1 for
nothing. Source: seeds 003 and 004 (Waltz's programming model).
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
    """The log rejects it, and will reject it again: it is not appended."""

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


class HighWaterMarkAhead(TransactionError):
    """The application's high-water mark is beyond the log: it belongs to another topic."""


class SubscriptionClosed(TransactionError):
    """The partition was unassigned, or the client closed, during a wait for it."""


class SubscriptionStalled(TransactionError):
    """The partition's subscription has stopped, and why; see `TransactionClient.resume`."""


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
    """What must be applied before it can pass; None: everything that was there when it was rejected."""
    is_exact: bool
    """Whether that lock was raised at that offset; otherwise the broker knows an upper bound."""
    lock: bytes | None
    text: str
    """The broker's own words."""


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
    """Partition -> offset of its last record there."""
    tries: int
    """How often it was executed: 1 where nothing stood in its way."""


def lock(name: str, number: int | str) -> bytes:
    """A lock's name from a kind of thing and which of them: `lock("account", 12)` is `account/12`.

    TypeError for bytes, whose text would be another name.
    """
    if not isinstance(name, str) or not isinstance(number, int | str):
        raise TypeError(f"lock({name!r}, {number!r}): a str, and an int or str")
    return f"{name}/{number}".encode()


class Application:
    """An application's state, changed by its subscriptions: derive from it. Methods are plain or `async`."""

    def on_open(self, topic_id: str) -> Awaitable[None] | None:
        """The client has opened the topic with this id, as Kafka's tools show it; called before anything
        else.

        A topic that is made anew under its name has another id, and its offsets mean something else: whoever
        keeps marks for longer than a process lives keeps the id with them, and raises here.
        """

    def high_water_mark(self, partition: int) -> int | Awaitable[int]:
        """The offset up to which the application has applied this partition; -1 for nothing."""
        raise NotImplementedError(f"{type(self).__name__} has no high_water_mark")

    def apply(self, committed: Committed) -> Awaitable[None] | None:
        """Apply one transaction, and remember `committed.offset` as the new high-water mark with it.

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
