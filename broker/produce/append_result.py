"""The results of an append, and the protocols of append paths.

An append path appends a batch at once, or lets it wait, or raises RequestError: then nothing has changed.
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


AppendOutcome = AppendResult | RequestError


def _ignore(outcome: AppendOutcome) -> None:
    """Until the request has set its callback."""


class DelayedAppend:
    """A batch that waits: `on_outcome` is called with its outcome, never before the next turn of the loop."""

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

    def __getitem__(self, number: int) -> AppendPath:
        """The append path into a data group. Raises RequestError."""
