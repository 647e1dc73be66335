"""What idempotent producers have appended to each partition: epochs, sequences, the last five batches.

A tail machine of its log group: it follows the appended log. `check` says what a batch is without changing
anything; `record` notes an appended batch, live and at replay alike, so that a restart ends in the same
state. The append path answers a duplicate only once everything appended is committed.

Source: KIP-98 (idempotence), KIP-360 (higher epochs start at 0); Kafka's five remembered batches.
"""

from __future__ import annotations

from collections import deque
from struct import Struct
from typing import Final

from protocol.records.batch import BatchHeader, read_header
from storage.types import Buffer, DirectoryEntry

REMEMBERED_BATCHES: Final = 5
"""Kafka's number: what `max.in.flight.requests.per.connection` may be for idempotent producers."""

_SEQUENCE_SPACE: Final = 1 << 31
_PRODUCER: Final = Struct(">iqhqB")
_BATCH: Final = Struct(">iiq")

NEW: Final = -1
"""`check`'s answer for a batch that should be appended."""


class OutOfOrderSequence(Exception):
    """A sequence that does not follow the last one, or a new epoch that does not start at 0."""


class StaleProducerEpoch(Exception):
    """The producer has been replaced by one of a higher epoch."""


class Producer:
    """One producer id's history in one partition."""

    __slots__ = ("batches", "last_sequence", "last_time_ms", "producer_epoch")

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.last_sequence = -1
        self.last_time_ms = 0
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """(first sequence, last sequence, base offset) of the newest batches, oldest first."""


class ProducerState:
    """Every partition's producers, by partition number and producer id.

    Args:
        expiration_ms: a producer silent for longer is forgotten when a checkpoint is cut
            (producer.id.expiration.ms); time is the leader's, from the frames.
    """

    def __init__(self, expiration_ms: int) -> None:
        self._expiration_ms = expiration_ms
        self._partitions: dict[int, dict[int, Producer]] = {}

    def check(self, partition: int, header: BatchHeader) -> int:
        """The base offset this very batch already has, or NEW.

        Raises:
            OutOfOrderSequence, StaleProducerEpoch: it must not be appended.
        """
        producers = self._partitions.get(partition)
        producer = producers.get(header.producer_id) if producers else None
        if producer is None:
            return NEW
        if header.producer_epoch != producer.producer_epoch:
            if header.producer_epoch < producer.producer_epoch:
                raise StaleProducerEpoch(
                    f"producer {header.producer_id}: epoch {header.producer_epoch} is older than "
                    f"{producer.producer_epoch}"
                )
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id}: epoch {header.producer_epoch} starts at sequence "
                    f"{header.base_sequence}, not 0"
                )
            return NEW
        expected = (producer.last_sequence + 1) % _SEQUENCE_SPACE
        if header.base_sequence == expected:
            return NEW
        sequences = (header.base_sequence, header.last_sequence)
        for first, last, base_offset in producer.batches:
            if (first, last) == sequences:
                return base_offset
        raise OutOfOrderSequence(
            f"producer {header.producer_id}: sequence {header.base_sequence} arrived, {expected} expected"
        )

    def record(self, partition: int, header: BatchHeader, base_offset: int, time_ms: int) -> None:
        """Note a batch that was appended at `base_offset`; batches without a producer id change nothing."""
        if header.producer_id < 0:
            return
        producers = self._partitions.setdefault(partition, {})
        producer = producers.get(header.producer_id)
        if producer is None or producer.producer_epoch != header.producer_epoch:
            producer = producers[header.producer_id] = Producer(header.producer_epoch)
        last_sequence = header.last_sequence
        producer.last_sequence = last_sequence
        producer.last_time_ms = time_ms
        producer.batches.append((header.base_sequence, last_sequence, base_offset))

    def of(self, partition: int) -> list[tuple[int, Producer]]:
        """The producers that a partition remembers, by id."""
        return sorted(self._partitions.get(partition, {}).items(), key=lambda item: item[0])

    def forget(self, partition: int) -> None:
        """The partition is gone."""
        self._partitions.pop(partition, None)

    def count(self) -> int:
        """How many (partition, producer) pairs are remembered."""
        return sum(map(len, self._partitions.values()))

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """A recovered batch; see StateMachine."""
        self.record(entry.partition, read_header(payload), entry.base_offset, time_ms)

    def snapshot(self, time_ms: int) -> bytes:
        """All producers that have not expired by `time_ms`; forgets the others. See StateMachine."""
        pieces = []
        for partition, producers in list(self._partitions.items()):
            oldest = time_ms - self._expiration_ms
            for producer_id in [key for key, each in producers.items() if each.last_time_ms < oldest]:
                del producers[producer_id]
            if not producers:
                del self._partitions[partition]
            for producer_id, producer in producers.items():
                pieces.append(
                    _PRODUCER.pack(
                        partition,
                        producer_id,
                        producer.producer_epoch,
                        producer.last_time_ms,
                        len(producer.batches),
                    )
                )
                pieces.extend(_BATCH.pack(*batch) for batch in producer.batches)
        return b"".join(pieces)

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot. See StateMachine."""
        self._partitions = {}
        position = 0
        while position < len(data):
            partition, producer_id, epoch, time_ms, batches = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            producer = Producer(epoch)
            producer.last_time_ms = time_ms
            for _ in range(batches):
                producer.batches.append(_BATCH.unpack_from(data, position))
                position += _BATCH.size
            producer.last_sequence = producer.batches[-1][1]
            self._partitions.setdefault(partition, {})[producer_id] = producer
