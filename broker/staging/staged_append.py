"""The append path of staged batches: a batch must belong to the query that its request names.

Owns: the append paths of one Produce request of staged batches. Invariants: a batch is transactional, of a
staged producer id of the query that the request names, and of the one epoch that such ids write in.
Does not: request verification, as coordinators do not know staged ids. Source: the project's own
(docs/staged.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.produce.append_result import AppendResult
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.batch_validation import AppendLimits
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.staging.stage_commit import StageCommit
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, BatchHeader, MalformedBatch, peek_header
from lockstep.protocol.staged_messages import STAGED_PRODUCER_EPOCH, is_staged_by
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer


class StagedAppenders:
    """The append paths as a request of one query's staged batches finds them, by data group."""

    __slots__ = ("_appenders", "_query", "_stage_commit", "_transactional_id")

    def __init__(
        self, appenders: Mapping[int, Appender], stage_commit: StageCommit, transactional_id: str, query: str
    ) -> None:
        self._appenders = appenders
        self._stage_commit = stage_commit
        self._transactional_id = transactional_id
        self._query = query

    def __getitem__(self, group_id: int) -> _StagedAppender:
        """Raises RequestError where the query was abandoned: a new stage would never be ended."""
        if self._stage_commit.is_abandoned(group_id, self._query):
            raise RequestError(
                ErrorCode.INVALID_TXN_STATE, f"the query {self._query!r} was abandoned by its driver"
            )
        return _StagedAppender(self._appenders[group_id], self._transactional_id, self._query)


class _StagedAppender:
    __slots__ = ("_appender", "_query", "_transactional_id")

    def __init__(self, appender: Appender, transactional_id: str, query: str) -> None:
        self._appender = appender
        self._transactional_id = transactional_id
        self._query = query

    def append(
        self, partition: PartitionLog, records: Buffer, limits: AppendLimits, produce_version: int
    ) -> AppendResult:
        """Appends like `Appender.append`; a staged batch begins its transaction by itself."""
        header = _header(records)
        if header is not None:
            if not header.is_transactional:
                raise RequestError(ErrorCode.INVALID_RECORD, "a staged batch is marked as transactional")
            if not is_staged_by(header.producer_id, self._query):
                text = f"producer {header.producer_id} stages nothing for the query {self._query!r}"
                raise RequestError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)
            if header.producer_epoch != STAGED_PRODUCER_EPOCH:
                text = f"staged batches have the epoch {STAGED_PRODUCER_EPOCH}, not {header.producer_epoch}"
                raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, text)
        result = self._appender.append_transactional(
            partition, records, limits, produce_version, self._transactional_id, verified=True
        )
        assert isinstance(result, AppendResult), "a verified batch without a guard needs no verification"
        return result


def _header(records: Buffer) -> BatchHeader | None:
    """The batch header; None where it is malformed, which the append path reports."""
    try:
        return peek_header(records) if len(records) >= BATCH_HEADER_BYTES else None
    except MalformedBatch:
        return None
