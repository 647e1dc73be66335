"""Checks that every record of a batch has a key, as a compacted topic requires, and a valid time.

Records must be decoded for it. Without the check, compaction would remove records without a key. Only
compacted topics cost this. Source: Kafka's LogValidator.validateRecord.
"""

from __future__ import annotations

from lockstep.broker.requests.errors import RecordErrors, RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import MalformedBatch
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.batch_filter import keyless_indexes, open_body, overflowing_timestamps


def check_keys(body: BatchBody, log_append_time: bool) -> None:
    """Raises RequestError where a record of the batch has no key, a time of more than 64
    bits (unless the broker gives it one), or the batch cannot be opened. The error names the records without
    a key."""
    try:
        batch = open_body(body)
    except MalformedBatch as error:
        raise RequestError(ErrorCode.INVALID_RECORD, str(error)) from None
    if not log_append_time and (overflowing := overflowing_timestamps(batch)):
        raise RequestError(
            ErrorCode.INVALID_TIMESTAMP, f"record {overflowing[0]} of the batch has a time beyond 64 bits"
        )
    indexes = keyless_indexes(batch)
    if indexes:
        problem = "Compacted topic cannot accept message without key"
        raise RecordErrors(ErrorCode.INVALID_RECORD, problem, indexes)
