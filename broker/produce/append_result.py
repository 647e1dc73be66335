"""The results of an append, and the protocols of append paths.

An append path appends a batch at once, or queues it, or raises RequestError: then nothing has changed. After
the results of a verification (KIP-890) nothing has changed either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lockstep.broker.produce.batch_validation import AppendLimits
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer

SPECULATIVE_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Errors that depend on batches which may not be committed yet: they are returned after the commit."""


class AppendResult:
    """The offset of a batch that was just appended, or that was appended by an earlier attempt of its
    producer."""

    __slots__ = ("base_offset", "log_append_time_ms")

    def __init__(self, base_offset: int, log_append_time_ms: int) -> None:
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms


class VerificationRequired:
    """The batch would begin a transaction here, which its coordinator must verify first.

    `guard` is for the retry: a marker that is written meanwhile makes the coordinator's response void.
    """

    __slots__ = ("guard", "producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int, guard: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.guard = guard


class VerificationGuardMismatch:
    """A marker was written during the verification: the coordinator's response may be of an ended
    transaction.

    A correct producer of transaction version 2 may cause it: its next transaction begins when the last is
    decided, and that one's marker comes later. Another verification, with this `guard`, is safe there.
    """

    __slots__ = ("guard",)

    def __init__(self, guard: int) -> None:
        self.guard = guard

    def error(self) -> RequestError:
        """The error for a producer that cannot be verified again."""
        return RequestError(ErrorCode.INVALID_TXN_STATE, "the transaction ended during its verification")


Unverified = VerificationRequired | VerificationGuardMismatch
"""The results of an append that its coordinator has not verified, or not for this transaction."""

AppendOutcome = AppendResult | RequestError


def _ignore(outcome: AppendOutcome) -> None:
    """Until the request has set its callback."""


class DelayedAppend:
    """A queued batch: `on_outcome` is called with its outcome, in a later iteration of the loop."""

    __slots__ = ("on_outcome",)

    def __init__(self) -> None:
        self.on_outcome: Callable[[AppendOutcome], None] = _ignore


class AppendPath(Protocol):
    """The append path into one data group."""

    def append(
        self, partition: PartitionLog, records: Buffer, limits: AppendLimits, produce_version: int
    ) -> AppendResult | DelayedAppend:
        """Append the one batch in `records`. Raises RequestError."""


class AppendPaths(Protocol):
    """The append paths of one request."""

    def __getitem__(self, group_id: int) -> AppendPath:
        """The append path into a data group. Raises RequestError."""
