"""The filter of a read_committed consumer: it drops control batches and aborted transactions from a Fetch
response.

Owns: the transactions that are being aborted at each batch. Invariants: a batch is treated as Kafka's
consumers treat it, wherever the response begins, as long as each of its batches is passed in, in order.
Does not: open batches, but for a marker's one record; know where a transaction that is open begins (the
broker responds below the last stable offset). Source: KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.protocol.messages.fetch import AbortedTransaction
from lockstep.protocol.records.batch import BatchHeader, Buffer, verify
from lockstep.protocol.records.control import ControlKind, parse


class CommittedReader:
    """The filter of one response. `aborted`: the aborted transactions that the response lists."""

    __slots__ = ("_aborted", "_open")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(((each.first_offset, each.producer_id) for each in aborted), reverse=True)
        self._open: set[int] = set()

    def is_visible(self, records: Buffer, pos: int, header: BatchHeader) -> bool:
        """Returns whether the records of the batch at `pos` are visible; called for each batch, in order.

        Raises CorruptBatch, and MalformedBatch for a malformed marker.
        """
        verify(records, pos, header)
        while self._aborted and self._aborted[-1][0] <= header.last_offset:
            self._open.add(self._aborted.pop()[1])
        if header.is_control:
            if parse(records, pos).kind is ControlKind.ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)
