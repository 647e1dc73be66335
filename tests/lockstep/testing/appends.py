"""Appends in few words, and the smallest client there can be of a `Log`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.transactions.log import AppendAttempt, AppendUnknown, Log, PartitionBatch, ReadLocks
from lockstep.transactions.model import Committed, Record, RequestId

TIMEOUT_S = 1.0


class Writer:
    """Numbers its appends, and knows what it has read."""

    def __init__(self, log: Log, name: str = "ann") -> None:
        self.log = log
        self.name = name
        self.sequence = 0
        self.positions: dict[int, int] = {}
        self.read_entries: list[Committed] = []

    def one(
        self,
        value: bytes = b"v",
        *,
        partition: int = 0,
        hwm: int = -1,
        write: Sequence[bytes] = (),
        read: Sequence[bytes] = (),
        append: Sequence[bytes] = (),
        expected: int | None = None,
        other_read_locks: Mapping[int, ReadLocks] | None = None,
        records: int = 1,
    ) -> AppendAttempt:
        """Of one partition."""
        part = PartitionBatch(
            (Record(value),) * records,
            hwm,
            tuple(write),
            tuple(read),
            tuple(append),
            expected,
            other_read_locks or {},
        )
        return self.of({partition: part})

    def of(self, parts: Mapping[int, PartitionBatch]) -> AppendAttempt:
        self.sequence += 1
        return AppendAttempt(RequestId(self.name, 1, self.sequence), parts)

    async def append(self, append: AppendAttempt) -> Mapping[int, int]:
        return await self.log.append(append, TIMEOUT_S)

    async def catch_up(self, partition: int, position: int | None = None) -> None:
        """Read up to there, or to the end."""
        end = await self.log.end(partition) if position is None else position
        while self.positions.get(partition, 0) < end:
            chunk = await self.log.read(partition, self.positions.get(partition, 0), TIMEOUT_S)
            self.read_entries += chunk.entries
            self.positions[partition] = chunk.position

    async def settled(self, append: AppendAttempt) -> bool:
        """Append it; whether it is in the log. Raises AppendRefused, AppendFailed."""
        try:
            await self.append(append)
            return True
        except AppendUnknown:
            for number, position in (await self._fenced(append)).items():
                await self.catch_up(number, position)
            return any(entry.request == append.request for entry in self.read_entries)

    async def _fenced(self, append: AppendAttempt) -> Mapping[int, int]:
        while True:
            try:
                return await self.log.fence(append, TIMEOUT_S)
            except AppendUnknown:
                continue
