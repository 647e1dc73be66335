"""What a reader of committed records leaves out of a Fetch's answer: control batches, and what was aborted.

Owns: the transactions that are being aborted at each batch. Invariants: a batch is judged as Kafka's
consumers judge it, wherever the answer begins, as long as each of its batches is asked about, in order.
Does not: open batches, but for a marker's one record; know where a transaction that is open begins (the
broker answers below the last stable offset). Source: KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.messages.fetch import AbortedTransaction
from protocol.records.batch import BatchHeader, Buffer, verify
from protocol.records.control import ControlKind, parse


class CommittedReader:
    """One answer's. `aborted` is what the broker says beside the records."""

    __slots__ = ("_aborted", "_open")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(((each.first_offset, each.producer_id) for each in aborted), reverse=True)
        self._open: set[int] = set()

    def is_visible(self, records: Buffer, pos: int, header: BatchHeader) -> bool:
        """Whether the records of the batch at `pos` are to be seen; asked of each, in order.

        Raises CorruptBatch, and MalformedBatch for a marker that is none.
        """
        verify(records, pos, header)
        while self._aborted and self._aborted[-1][0] <= header.last_offset:
            self._open.add(self._aborted.pop()[1])
        if header.is_control:
            if parse(records, pos).kind is ControlKind.ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)
