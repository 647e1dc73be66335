"""Records the batches that Produce rejected, so that no later one of the producer takes their place.

Owns: finding the partition and the producer of a rejected batch, even if the topic does not exist on this
node yet, or no longer. The content and the lifetime of the record are in
`broker/metadata/lowest_sequences.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.metadata.metadata_cache import MetadataCache, Topic
from lockstep.broker.produce.appender import Appender
from lockstep.protocol.messages.produce import PartitionProduceData, TopicProduceData
from lockstep.protocol.primitives import ZERO_UUID
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, MalformedBatch, peek_header


def record_rejected(
    cluster: MetadataCache,
    appenders: Mapping[int, Appender],
    topic_data: TopicProduceData,
    data: PartitionProduceData,
) -> None:
    """Record a rejected batch, unless its partition knows the producer."""
    records = data.records
    if records is None or len(records) < BATCH_HEADER_BYTES or data.index < 0:
        return
    try:
        header = peek_header(records)
    except MalformedBatch:
        return
    if header.producer_id < 0 or header.base_sequence < 0:
        return
    first_sequences = cluster.first_sequences
    topic, name = _topic(cluster, topic_data)
    if topic is None:
        key = name or topic_data.topic_id
        first_sequences.note(key, data.index, header.producer_id, header.producer_epoch, header.base_sequence)
        return
    if data.index < len(topic.partitions):
        partition = topic.partitions[data.index]
        appender = appenders.get(partition.group.group_id) if partition.is_here else None
        if appender is not None and appender.producers.knows(partition.log.local_id, header.producer_id):
            return
    first_sequences.note(
        topic.topic_id, data.index, header.producer_id, header.producer_epoch, header.base_sequence
    )


def _topic(cluster: MetadataCache, topic_data: TopicProduceData) -> tuple[Topic | None, str | None]:
    """The topic to which the client will retry the batch, and its name; None for what is not known."""
    if topic_data.topic_id == ZERO_UUID:
        return cluster.topic(topic_data.name), topic_data.name
    topic = cluster.topic_by_id(topic_data.topic_id)
    if topic is not None:
        return topic, topic.name
    name = cluster.first_sequences.former_name(topic_data.topic_id)
    return cluster.topic(name), name
