"""What clients were told: acknowledged is committed, at that very offset, once; refused is never seen.

Owns `Write`, one batch that a client wants in a partition, through all its attempts; and `Clients`, which
holds every write against the committed history in the moment one of the two moves. Every record has a value
of its own in the whole run, so a batch in the history says which write it is. Source: the rules of Jepsen's
Kafka workload (duplicate, lost-write, G1a), restated; KIP-98 for sequences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.protocol.records.record import key_values
from tests.sim.checks.history import Batch, Entry, History
from tests.sim.faces import Check

if TYPE_CHECKING:
    from tests.sim.world import World

CRC_FROM = 21
"""A batch's bytes from here on are the client's; what is before them the broker may write."""


class Write:
    """One batch. `partition` is the group's number for it, known when somebody has answered."""

    __slots__ = ("acknowledged", "committed", "data", "doubtful", "first_value", "refused")

    def __init__(self, data: bytes, first_value: bytes) -> None:
        self.data = data
        self.first_value = first_value
        self.committed: Batch | None = None
        self.acknowledged = False
        self.refused = False
        self.doubtful = False
        """An attempt has had no clear answer: it may be there, now or later."""

    def __repr__(self) -> str:
        return f"{self.first_value!r}"


class Clients(Check):
    """See the module."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._history = History.of(world)
        self._history.listeners.append(self._committed)
        self._writes: dict[bytes, Write] = {}
        self._sequences: dict[tuple[int, int], tuple[int, int]] = {}
        """By (partition, producer id): epoch and next sequence of the history."""
        self.acknowledged_end: dict[int, int] = {}
        """By partition: where the last batch ends that a client knows to be committed."""
        self.acknowledged_count = 0

    # --- told by clients ----------------------------------------------------------------------------------

    def begin(self, data: bytes, first_value: bytes) -> Write:
        """A batch that is about to be sent for the first time."""
        write = self._writes[first_value] = Write(data, first_value)
        return write

    def acknowledged(self, write: Write, number: int, base_offset: int) -> None:
        """The client has been told that its batch is committed there."""
        batch = write.committed
        if batch is None:
            text = f"{write} at {base_offset} of partition {number}: no node has committed it"
            self.world.violate("acknowledged, not committed", text)
            return
        if (batch.partition, batch.base_offset) != (number, base_offset):
            text = (
                f"{write}: told {base_offset} of partition {number}, it is at {batch.base_offset} "
                f"of {batch.partition}"
            )
            self.world.violate("acknowledged at another offset", text)
        write.acknowledged = True
        self.acknowledged_count += 1
        end = batch.next_offset
        if end > self.acknowledged_end.get(number, 0):
            self.acknowledged_end[number] = end

    def refused(self, write: Write) -> None:
        """The client has been told that its batch was not appended, and no attempt is in doubt."""
        if write.doubtful:
            return
        write.refused = True
        if write.committed is not None:
            self._refused_is_visible(write)

    # --- told by the history ------------------------------------------------------------------------------

    def _committed(self, entry: Entry) -> None:
        for batch in entry.batches:
            if self.is_ours(batch):
                self._match(batch)

    def is_ours(self, batch: Batch) -> bool:
        """Is it a client's, not one of the group's own or of another machine?"""
        return batch.data[61:].find(VALUE_MARK) >= 0

    def _match(self, batch: Batch) -> None:
        where = f"partition {batch.partition} offset {batch.base_offset}"
        value = key_values(batch.data)[0][1]
        write = self._writes.get(bytes(value or b""))
        if write is None or write.data[CRC_FROM:] != batch.data[CRC_FROM:]:
            self.world.violate("bytes", f"{where}: committed is a batch that no client has sent: {value!r}")
            return
        if write.committed is not None:
            first = write.committed
            self.world.violate(
                "duplicate",
                f"{write} is at {first.base_offset} (entry {first.index}) and at {batch.base_offset} (entry "
                f"{batch.index}) of partition {batch.partition}",
            )
        write.committed = batch
        if write.refused:
            self._refused_is_visible(write)
        if batch.header.producer_id >= 0:
            self._follows(batch, where)

    def _follows(self, batch: Batch, where: str) -> None:
        header = batch.header
        key = batch.partition, header.producer_id
        known = self._sequences.get(key)
        self._sequences[key] = header.producer_epoch, header.last_sequence + 1
        if known is None or (header.producer_epoch > known[0] and header.base_sequence == 0):
            return
        if (header.producer_epoch, header.base_sequence) != known:
            text = f"{where}: producer {header.producer_id} has (epoch, sequence) "
            text += f"{(header.producer_epoch, header.base_sequence)}, expected {known}"
            self.world.violate("sequences", text)

    def _refused_is_visible(self, write: Write) -> None:
        batch = write.committed
        assert batch is not None
        text = f"{write} was refused for good; it is at {batch.base_offset} of partition {batch.partition}"
        self.world.violate("a refused write is visible", text)


VALUE_MARK = b"write:"
"""Begins the value of every record that a client of the simulator writes."""
