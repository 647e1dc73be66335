"""WriteTxnMarkers (27): write the ends of transactions into partitions; of brokers and admin tools (KIP-664).

Versions: 1 flexible, 0 is gone since Kafka 4.0; 2 the version of the transaction a marker ends (KIP-1228).
"""

from __future__ import annotations

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)


@struct()
class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct()
class WritableTxnMarker(Struct):
    """One producer's transaction, how it ends, and where."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(versions="2+", ignorable=True)


@message(api_key=27, versions="1-2", flexible="1+", kind="request")
class WriteTxnMarkersRequest(Struct):
    """Markers to write."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


@struct()
class WritableTxnMarkerPartitionResult(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class WritableTxnMarkerTopicResult(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


@struct()
class WritableTxnMarkerResult(Struct):
    """The topics of one marker."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(api_key=27, versions="1-2", flexible="1+", kind="response")
class WriteTxnMarkersResponse(Struct):
    """A result for each partition of each marker."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
