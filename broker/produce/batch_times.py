"""Validates the timestamps of a batch's records, and corrects the newest time in its header.

Records are opened in two cases only: where the header's newest time lies before its first, as clients leave
it that count on the broker to compute it (Sarama until 2025), and where a topic limits how old a record may
be, as a batch that holds one from now may hold others. A batch of more than MAX_RECORDS is not opened: the
limit applies to the newest time of its header, and a batch whose newest time must be computed is rejected.
Source: Kafka's LogValidator, which reads each record.
"""

from __future__ import annotations

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import NO_TIMESTAMP, BatchHeader, MalformedBatch, set_max_timestamp
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.batch_filter import MAX_RECORDS, open_body, timestamps


def validate_timestamps(
    batch: bytearray,
    header: BatchHeader,
    body: BatchBody,
    before_max_ms: int,
    after_max_ms: int,
    now_ms: int,
) -> None:
    """Set the newest timestamp of a batch with its producer's times, in `batch` and `header`.

    Args:
        body: the records as they were sent, which another codec leaves as they are.
        before_max_ms, after_max_ms: how far before and after `now_ms` a record may be.
    Raises:
        RequestError: INVALID_TIMESTAMP, or INVALID_RECORD where it cannot be opened.
    """
    oldest = newest = header.max_timestamp
    opens_records = 1 < header.record_count <= MAX_RECORDS and before_max_ms < now_ms
    if newest < header.base_timestamp or opens_records:
        try:
            record_timestamps = timestamps(header, open_body(body).spans)
        except MalformedBatch as error:
            raise RequestError(ErrorCode.INVALID_RECORD, str(error)) from None
        newest = max(record_timestamps)
        oldest = min([each for each in record_timestamps if each != NO_TIMESTAMP], default=NO_TIMESTAMP)
        if newest != header.max_timestamp:
            set_max_timestamp(batch, header, newest)
    for timestamp in (newest, oldest):
        if timestamp != NO_TIMESTAMP and (
            timestamp - now_ms > after_max_ms or now_ms - timestamp > before_max_ms
        ):
            raise RequestError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {timestamp} is out of range: the broker's clock is at {now_ms}",
            )
