"""Whether every record of a batch has a key, as a compacted topic demands.

The one place on the produce path that opens records: nothing else could tell, and compaction would throw away
what has no key. Only compacted topics pay for it. Source: Kafka's LogValidator.validateKey.
"""

from __future__ import annotations

from broker.refused import Refused
from protocol.errors import ErrorCode
from protocol.records.batch import MalformedBatch
from protocol.records.filtering import keyless
from storage.types import Buffer


def require_keys(records: Buffer) -> None:
    """Raises Refused where a record of the one batch in `records` has no key, or it cannot be opened."""
    try:
        places = keyless(records)
    except MalformedBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    if places:
        raise Refused(
            ErrorCode.INVALID_RECORD,
            f"Compacted topic cannot accept message without key: record {places[0]} of the batch"
            f"{f' and {len(places) - 1} more' if len(places) > 1 else ''}.",
        )
