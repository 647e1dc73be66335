"""Checks the records of a compressed batch against their topic's max.decompressed.message.bytes.

Only batches of topics with a value below Kafka's default are decompressed. As in Kafka the limit is that of
one record, and an uncompressed batch is not checked: max.message.bytes limits that. A batch of more than 64
MiB or MAX_RECORDS, which is never decompressed, is rejected. Source: Kafka's LogValidator and
DefaultRecord.readFrom.
"""

from __future__ import annotations

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.settings.topic_default_settings import MAX_DECOMPRESSED_BYTES
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import MalformedBatch
from lockstep.protocol.records.batch_body import BatchBody
from lockstep.protocol.records.batch_filter import MAX_RECORDS
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import read_varint


def check_record_sizes(body: BatchBody, max_bytes: int) -> None:
    """Raises RequestError, INVALID_RECORD, where a record has more bytes, or the batch cannot be opened."""
    if max_bytes == MAX_DECOMPRESSED_BYTES or body.header.codec == Codec.NONE:
        return
    count = body.header.record_count
    try:
        if count > MAX_RECORDS:
            raise MalformedBatch(f"{count} records in a compressed batch, {MAX_RECORDS} are looked at")
        data, at = body.data(), 0
        for index in range(count):
            length, at = read_varint(data, at)
            if length > max_bytes:
                raise MalformedBatch(
                    f"record {index} of the batch has {length} bytes decompressed; "
                    f"max.decompressed.message.bytes is {max_bytes}"
                )
            if not 0 <= length <= len(data) - at:
                raise MalformedBatch(f"record {index} of the batch does not fit into it")
            at += length
    except IndexError:
        raise RequestError(ErrorCode.INVALID_RECORD, f"a batch of less than {count} records") from None
    except MalformedBatch as error:
        raise RequestError(ErrorCode.INVALID_RECORD, str(error)) from None
