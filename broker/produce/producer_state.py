"""The state of producers in each partition: epochs, sequences, five batches, open transactions.

A tail machine of its log group: it follows the appended log. `check` classifies a batch without changing
anything; `record` notes an appended batch, live and at replay alike, so that a restart ends in the same
state. The append path responds to a duplicate only once everything appended is committed. A transaction is
open from its first batch to its marker; while it is, its producer is not forgotten. Rejected batches of
producers that a partition does not know are remembered by the node (`broker/metadata/lowest_sequences.py`),
outside of this state.

Source: KIP-98 (idempotence, markers), KIP-360 (higher epochs start at 0), KIP-890 and KIP-1228 (markers that
raise the epoch); Kafka's ProducerAppendInfo and its five remembered batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final

from lockstep.broker.metadata.lowest_sequences import LowestSequences, is_later
from lockstep.protocol.records.batch import (
    BATCH_HEADER_BYTES,
    CONTROL_FLAG,
    CURRENT_MAGIC,
    HEADER,
    LENGTH_PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
)
from lockstep.protocol.records.control import ControlKind, parse
from lockstep.protocol.staged_messages import is_staged
from lockstep.storage.types import NOTES_PARTITION, Buffer, DirectoryEntry, NewerFormat

REMEMBERED_BATCHES: Final = 5
"""Kafka's limit of `max.in.flight.requests.per.connection` for idempotent producers."""

_SEQUENCE_SPACE: Final = 1 << 31
_SEQUENCE_MASK: Final = _SEQUENCE_SPACE - 1
_IN_TRANSACTION: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG
_BATCH_HEADER: Final = HEADER.unpack_from
_VERSIONED: Final = b"\xff\xff\xff\xff"
"""The start of a snapshot with a version; the first snapshots began with a local id instead."""
STATE_VERSION: Final = 1
_HEAD: Final = Struct(">4sH")
_PRODUCER: Final = Struct(">iqhqB")
_TRANSACTION: Final = Struct(">iqq")
_BATCH: Final = Struct(">iiq")

LAST_EPOCH: Final = (1 << 15) - 1
"""The marker of a producer id whose epochs are used up has this one, which cannot be raised."""
EPOCH_BUMP_MIN_VERSION: Final = 2
"""Transaction versions whose markers carry a higher epoch than the batches they end."""

STAGED_EXPIRATION_MS: Final = 900_000
"""Staged ids are used once, and are many: for this time after the end a late batch is still recognised."""

NEW: Final = -1
"""`check`'s result for a batch that should be appended."""


class OutOfOrderSequence(Exception):
    """A sequence that does not follow the last one, or a new epoch that does not start at 0."""

    is_ahead = False
    """True if batches before this one are missing, so that it may be appended after them."""


class StaleProducerEpoch(Exception):
    """The producer has been replaced by one of a higher epoch."""


class NotInTransaction(Exception):
    """The producer's transaction is open here, and this batch is not part of it."""


class CoordinatorFenced(Exception):
    """The marker is a former coordinator's."""


class Producer:
    """One producer id's history in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "ended_at",
        "last_sequence",
        "last_time_ms",
        "open_at",
        "producer_epoch",
    )

    def __init__(self, producer_epoch: int) -> None:
        self.producer_epoch = producer_epoch
        self.last_sequence = -1
        self.last_time_ms = 0
        self.coordinator_epoch = -1
        """The epoch of the coordinator that wrote the newest marker."""
        self.open_at = -1
        """The first offset of the open transaction; -1 for none."""
        self.ended_at = -1
        """The offset of the newest marker."""
        self.batches: deque[tuple[int, int, int]] = deque(maxlen=REMEMBERED_BATCHES)
        """(first sequence, last sequence, base offset) of the newest batches, oldest first."""

    @property
    def is_open(self) -> bool:
        """True while a transaction is open."""
        return self.open_at >= 0

    def append(self, first_sequence: int, last_sequence: int, base_offset: int, time_ms: int) -> None:
        """Records a batch that was appended."""
        self.last_time_ms = time_ms
        self.last_sequence = last_sequence
        self.batches.append((first_sequence, last_sequence, base_offset))

    def begin_epoch(self, producer_epoch: int) -> None:
        """Restarts the sequences; an open transaction stays open."""
        self.producer_epoch = producer_epoch
        self.last_sequence = -1
        self.batches.clear()


class ProducerState:
    """Every partition's producers, by local id and producer id.

    Args:
        expiration_ms: a producer silent for longer is forgotten when a checkpoint is cut
            (producer.id.expiration.ms); time is the leader's, from the frames.
        clock_ms: the time of day. Where the log's is ahead of it, no producer expires by the log's: one frame
            of a leader whose clock was ahead would make all of them look expired.
    """

    def __init__(self, expiration_ms: int, clock_ms: Callable[[], int] | None = None) -> None:
        self.expiration_ms = expiration_ms
        """`producer.id.expiration.ms`; the broker changes it while it runs."""
        self._clock_ms = clock_ms
        self.first_sequences = LowestSequences()
        """Shared by all log groups of the node once clients are served."""
        self.partition_key: Callable[[int], tuple[bytes, int] | None] = lambda local_id: (b"", local_id)
        """Topic id and partition index, by local id; None for a partition that is not open."""
        self._partitions: dict[int, dict[int, Producer]] = {}
        self.open_stages: dict[tuple[int, int], None] = {}
        """Partition and id of staged producers whose batches are not ended, oldest first."""
        self.is_closed: Callable[[int], bool] = lambda local_id: False
        """True if a partition is closed permanently: a replay may restore its producers here."""

    def check(self, partition: int, header: BatchHeader) -> int:
        """The base offset this very batch already has, or NEW.

        Raises:
            OutOfOrderSequence, StaleProducerEpoch, NotInTransaction: it must not be appended.
        """
        producers = self._partitions.get(partition)
        producer = producers.get(header.producer_id) if producers else None
        if producer is None:
            if self.first_sequences:
                self._check_first(partition, header)
            return NEW
        if header.producer_epoch != producer.producer_epoch:
            if header.producer_epoch < producer.producer_epoch:
                raise _stale(producer, header)
            if header.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {header.producer_id}: epoch {header.producer_epoch} starts at sequence "
                    f"{header.base_sequence}, not 0"
                )
            return _part_of(producer, header)
        expected = (producer.last_sequence + 1) % _SEQUENCE_SPACE
        if header.base_sequence == expected:
            return NEW if producer.open_at < 0 else _part_of(producer, header)
        sequences = (header.base_sequence, header.last_sequence)
        for first, last, base_offset in producer.batches:
            if (first, last) == sequences:
                return base_offset
        error = OutOfOrderSequence(
            f"producer {header.producer_id}: sequence {header.base_sequence} arrived, {expected} expected"
        )
        error.is_ahead = (header.base_sequence - expected) % _SEQUENCE_SPACE < _SEQUENCE_SPACE // 2
        raise error

    def producer_continued_by(
        self, partition: int, producer_id: int, producer_epoch: int, sequence: int
    ) -> Producer | None:
        """The producer whose next batch this one is, outside of a transaction; None where `check` must
        classify it."""
        producer = self.find(partition, producer_id)
        if (
            producer is None
            or producer.producer_epoch != producer_epoch
            or producer_epoch < 0
            or producer.open_at >= 0
            or (producer.last_sequence + 1) % _SEQUENCE_SPACE != sequence
        ):
            return None
        return producer

    def _check_first(self, partition: int, header: BatchHeader) -> None:
        key = self.partition_key(partition)
        if key is None:
            return
        lowest = self.first_sequences.lowest(*key, header.producer_id, header.producer_epoch)
        if lowest is not None and is_later(header.base_sequence, lowest):
            error = OutOfOrderSequence(
                f"producer {header.producer_id} is not known here: sequence {header.base_sequence} arrived, "
                f"but the rejected {lowest} must be appended first"
            )
            error.is_ahead = True
            raise error

    def track_lowest_sequence(self, partition: int, header: BatchHeader) -> None:
        """Record a batch that is rejected, or not appended yet, unless the partition knows its producer."""
        producer_id, sequence = header.producer_id, header.base_sequence
        if producer_id >= 0 and sequence >= 0 and not self.knows(partition, producer_id):
            key = self.partition_key(partition)
            if key is not None:
                self.first_sequences.note(*key, producer_id, header.producer_epoch, sequence)

    def has_newest_marker(self, partition: int, producer_id: int) -> bool:
        """True if the newest batch of this producer is a marker."""
        producer = self.find(partition, producer_id)
        if producer is None or producer.is_open:
            return False
        return producer.ended_at > (producer.batches[-1][2] if producer.batches else -1)

    def check_epoch(self, partition: int, header: BatchHeader) -> None:
        """Check the epoch of a batch without sequences. Raises StaleProducerEpoch."""
        producer = self.find(partition, header.producer_id)
        if producer is not None and header.producer_epoch < producer.producer_epoch:
            raise _stale(producer, header)

    def check_end(
        self, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, version: int
    ) -> bool:
        """Returns whether a marker must be written: not where this transaction has ended here already.

        Markers of version 2 have a higher epoch than what they end, so that one which comes late ends nothing
        of the next transaction, and one that was written is known again. Before, transactions share an epoch:
        a marker where nothing is open may end one whose first batch is still being verified.
        Raises CoordinatorFenced, StaleProducerEpoch.
        """
        producer = self.find(partition, producer_id)
        if producer is None:
            return True
        known, is_open = producer.producer_epoch, producer.is_open
        raises = version >= EPOCH_BUMP_MIN_VERSION
        if producer_epoch < known or (
            raises and producer_epoch == known and is_open and producer_epoch != LAST_EPOCH
        ):
            raise StaleProducerEpoch(
                f"producer {producer_id}: a marker of epoch {producer_epoch}, transaction version {version}, "
                f"where {known} is known"
            )
        if coordinator_epoch < producer.coordinator_epoch:
            raise CoordinatorFenced(
                f"producer {producer_id}: a marker of coordinator epoch {coordinator_epoch}, where "
                f"{producer.coordinator_epoch} is known"
            )
        if is_open or producer_epoch != known:
            return True
        return not raises

    def record(self, partition: int, header: BatchHeader, base_offset: int, time_ms: int) -> None:
        """Records a batch that was appended at `base_offset`; one without a producer id changes nothing."""
        if header.producer_id < 0:
            return
        producer = self._producer(partition, header.producer_id, header.producer_epoch)
        producer.last_time_ms = time_ms
        if header.attributes & TRANSACTIONAL_FLAG and producer.open_at < 0:
            producer.open_at = base_offset
            if is_staged(header.producer_id):
                self.open_stages[partition, header.producer_id] = None
        if header.base_sequence >= 0:  # none where a coordinator wrote it
            producer.append(header.base_sequence, header.last_sequence, base_offset, time_ms)

    def record_end(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        offset: int,
        time_ms: int,
    ) -> None:
        """Records a marker that was appended at `offset`."""
        producer = self._producer(partition, producer_id, producer_epoch)
        producer.last_time_ms = time_ms
        producer.coordinator_epoch = coordinator_epoch
        producer.open_at = -1
        producer.ended_at = offset
        self.open_stages.pop((partition, producer_id), None)

    def _producer(self, partition: int, producer_id: int, producer_epoch: int) -> Producer:
        """Set the epoch."""
        producers = self._partitions.setdefault(partition, {})
        producer = producers.get(producer_id)
        if producer is None:
            producer = producers[producer_id] = Producer(producer_epoch)
            if self.first_sequences and (key := self.partition_key(partition)) is not None:
                self.first_sequences.remove(*key, producer_id)
        elif producer.producer_epoch != producer_epoch:
            producer.begin_epoch(producer_epoch)
        return producer

    def find(self, partition: int, producer_id: int) -> Producer | None:
        """The state of a producer in a partition."""
        producers = self._partitions.get(partition)
        return producers.get(producer_id) if producers else None

    def of(self, partition: int) -> list[tuple[int, Producer]]:
        """The producers that a partition remembers, by id."""
        return sorted(self._partitions.get(partition, {}).items(), key=lambda item: item[0])

    def knows(self, partition: int, producer_id: int) -> bool:
        """True if the producer has written to this partition."""
        return producer_id in self._partitions.get(partition, {})

    def forget(self, partition: int) -> None:
        """Remove a closed partition."""
        for producer_id in self._partitions.pop(partition, ()):
            self.open_stages.pop((partition, producer_id), None)

    def count(self) -> int:
        """The number of (partition, producer) pairs."""
        return sum(map(len, self._partitions.values()))

    def replay(self, entry: DirectoryEntry, payload: Buffer, time_ms: int) -> None:
        """Apply a replicated or recovered batch; see StateMachine."""
        if entry.partition != NOTES_PARTITION:
            self._replay(entry.partition, payload, entry.base_offset, time_ms)

    def _replay(self, partition: int, payload: Buffer, base_offset: int, time_ms: int) -> None:
        header = read_header(payload)
        if not header.is_control:
            self.record(partition, header, base_offset, time_ms)
            return
        marker = parse(payload)
        if marker.kind is not ControlKind.OTHER:
            producer_id, producer_epoch = header.producer_id, header.producer_epoch
            coordinator_epoch = marker.coordinator_epoch
            self.record_end(partition, producer_id, producer_epoch, coordinator_epoch, base_offset, time_ms)

    def replay_run(self, partition: int, payloads: Sequence[Buffer], time_ms: int) -> None:
        """Apply neighbouring batches; see RunMachine. Raises MalformedBatch as `replay`."""
        for payload in payloads:
            at, size = 0, len(payload)
            while at < size:
                if size - at < BATCH_HEADER_BYTES:
                    self._replay(partition, payload[at:], 0, time_ms)  # raises
                (base_offset, length, _, magic, _, attributes, last_delta, _, _, producer_id, epoch,
                 sequence, _) = _BATCH_HEADER(payload, at)  # fmt: skip
                after = at + length + LENGTH_PREFIX_BYTES
                if magic != CURRENT_MAGIC or last_delta < 0 or not at + BATCH_HEADER_BYTES <= after <= size:
                    self._replay(partition, payload[at:], base_offset, time_ms)  # raises
                if producer_id >= 0 or attributes & CONTROL_FLAG:
                    producer = self.find(partition, producer_id)
                    if (
                        producer is None
                        or producer.producer_epoch != epoch
                        or sequence < 0
                        or attributes & _IN_TRANSACTION
                    ):
                        self._replay(partition, payload[at:after], base_offset, time_ms)
                    else:
                        producer.append(
                            sequence, sequence + last_delta & _SEQUENCE_MASK, base_offset, time_ms
                        )
                at = after

    def snapshot(self, time_ms: int) -> bytes:
        """All producers that have not expired by `time_ms`; forgets the others. See StateMachine."""
        if self._clock_ms is not None:
            time_ms = min(time_ms, self._clock_ms())
        pieces = []
        for partition in [local_id for local_id in self._partitions if self.is_closed(local_id)]:
            self.forget(partition)  # a replay from before its end has brought it back
        for partition, producers in list(self._partitions.items()):
            oldest = time_ms - self.expiration_ms
            oldest_staged = max(oldest, time_ms - STAGED_EXPIRATION_MS)
            for producer_id in [
                key
                for key, each in producers.items()
                if not each.is_open and each.last_time_ms < (oldest_staged if is_staged(key) else oldest)
            ]:
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
                pieces.append(
                    _TRANSACTION.pack(producer.coordinator_epoch, producer.open_at, producer.ended_at)
                )
                pieces.extend(_BATCH.pack(*batch) for batch in producer.batches)
        return _HEAD.pack(_VERSIONED, STATE_VERSION) + b"".join(pieces) if pieces else b""

    def restore(self, data: bytes) -> None:
        """Replace everything by a snapshot. See StateMachine. Raises NewerFormat."""
        self._partitions = {}
        self.open_stages = {}
        position = 0
        is_versioned = data[: len(_VERSIONED)] == _VERSIONED
        if is_versioned:
            _, version = _HEAD.unpack_from(data)
            if version > STATE_VERSION:
                raise NewerFormat(f"producers of version {version}, known up to {STATE_VERSION}")
            position = _HEAD.size
        while position < len(data):
            partition, producer_id, epoch, time_ms, batches = _PRODUCER.unpack_from(data, position)
            position += _PRODUCER.size
            producer = Producer(epoch)
            producer.last_time_ms = time_ms
            if is_versioned:
                transaction = _TRANSACTION.unpack_from(data, position)
                producer.coordinator_epoch, producer.open_at, producer.ended_at = transaction
                position += _TRANSACTION.size
            for _ in range(batches):
                producer.batches.append(_BATCH.unpack_from(data, position))
                position += _BATCH.size
            if batches:
                producer.last_sequence = producer.batches[-1][1]
            self._partitions.setdefault(partition, {})[producer_id] = producer
            if producer.is_open and is_staged(producer_id):
                self.open_stages[partition, producer_id] = None


def _stale(producer: Producer, header: BatchHeader) -> StaleProducerEpoch:
    known = producer.producer_epoch
    return StaleProducerEpoch(
        f"producer {header.producer_id}: epoch {header.producer_epoch} is older than {known}"
    )


def _part_of(producer: Producer, header: BatchHeader) -> int:
    """NEW; raises if a transaction is open that this batch is not part of."""
    if producer.is_open and not header.attributes & TRANSACTIONAL_FLAG:
        raise NotInTransaction(f"producer {header.producer_id}: a transaction is open here")
    return NEW
