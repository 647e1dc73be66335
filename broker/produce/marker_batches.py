"""The marker batches that end a transaction in one log group's partitions, and their effect on producers.

A marker is a control batch; each partition gets one where its producer's transaction has not ended. Appends
nothing: `broker/produce/appender.py` appends the batches in one frame, and
`broker/transactions/marker_sender.py` sends markers to other log groups.

Source: KIP-98 and KIP-890; Kafka's ProducerAppendInfo.appendEndTxnMarker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lockstep.broker.produce.producer_state import CoordinatorFenced, ProducerState, StaleProducerEpoch
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import BatchHeader, read_header
from lockstep.protocol.records.control import ControlKind, build
from lockstep.storage.partition import PartitionLog


class TxnMarkerEntry(NamedTuple):
    """The end of a transaction, as its coordinator sends it to partitions. Source: Kafka's TxnMarkerEntry."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    version: int
    """The transaction version, 0 to 2; since 2 the marker's epoch is higher than the batches'."""


class MarkerBatch(NamedTuple):
    """The marker of one partition: its control batch with header, and the coordinator epoch."""

    entry: tuple[PartitionLog, bytearray, BatchHeader]
    coordinator_epoch: int


def build_marker_batches(
    producers: ProducerState,
    opened: Mapping[int, PartitionLog],
    partitions: Sequence[PartitionLog],
    marker: TxnMarkerEntry,
    time_ms: int,
) -> list[MarkerBatch]:
    """Builds the batches that end a producer's transaction where it has not ended, one for each partition.

    Args:
        opened: the log group's partitions, by local id; markers of deleted ones are left out.
        time_ms: the time of the markers.
    Raises:
        RequestError: TRANSACTION_COORDINATOR_FENCED or INVALID_PRODUCER_EPOCH.
    """
    unended = [each for each in partitions if _needs_marker(producers, opened, each, marker)]
    batch = build(
        ControlKind.COMMIT if marker.is_commit else ControlKind.ABORT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        coordinator_epoch=marker.coordinator_epoch,
        timestamp_ms=time_ms,
    )
    header, epoch = read_header(batch), marker.coordinator_epoch
    local_ids = dict.fromkeys(each.local_id for each in unended)
    return [MarkerBatch((opened[local_id], bytearray(batch), header), epoch) for local_id in local_ids]


def record_appended_markers(
    producers: ProducerState, markers: Sequence[MarkerBatch], offsets: Sequence[int], time_ms: int
) -> None:
    """Ends the producers' transactions, as a replay of the appended markers does.

    Args:
        offsets: the offsets of an append that begins with the markers, in their order; others may follow.
        time_ms: the time of the frame that has them.
    """
    for ((partition, _, header), coordinator_epoch), offset in zip(markers, offsets, strict=False):
        identity = header.producer_id, header.producer_epoch, coordinator_epoch
        producers.record_end(partition.local_id, *identity, offset, time_ms)


def _needs_marker(
    producers: ProducerState,
    opened: Mapping[int, PartitionLog],
    partition: PartitionLog,
    marker: TxnMarkerEntry,
) -> bool:
    if opened.get(partition.local_id) is not partition:
        return False
    identity = marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
    try:
        return producers.check_end(partition.local_id, *identity, marker.version)
    except CoordinatorFenced as fenced:
        raise RequestError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, str(fenced)) from None
    except StaleProducerEpoch as stale:
        raise RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, str(stale)) from None
