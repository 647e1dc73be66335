"""The aborted transactions that a read_committed fetch reports beside its records (KIP-98).

Such a reader gets everything below the last stable offset, aborted records included; its client leaves them
out by this list and by the markers among the records. The list is exact: batches are walked by their lengths,
and only where a transaction of the partition was aborted at all.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.records.batch import LENGTH_PREFIX_BYTES
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import Buffer


def aborted_transactions(
    log: PartitionLog, offset: int, buffers: Sequence[Buffer]
) -> list[AbortedTransaction]:
    """The aborted transactions with records in these batches, which were read from `offset` on."""
    transactions = log.transactions
    if not buffers or transactions is None or transactions.aborted.last_offset < offset:
        return []
    return [
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in log.aborted_between(offset, offset_after(buffers[-1]))
    ]


def offset_after(batches: Buffer) -> int:
    """The offset after the last of these batches."""
    position = 0
    while True:
        total_bytes = int.from_bytes(batches[position + 8 : position + 12], "big") + LENGTH_PREFIX_BYTES
        if position + total_bytes >= len(batches):
            last_offset_delta = int.from_bytes(batches[position + 23 : position + 27], "big")
            return int.from_bytes(batches[position : position + 8], "big") + last_offset_delta + 1
        position += total_bytes
