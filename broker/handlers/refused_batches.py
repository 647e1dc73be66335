"""A batch that a Produce request could not append: later ones of its producer must not be taken in its place.

Owns: finding out which partition and which producer a refused batch is of, even where this node does not know
the topic yet, or any more. What is remembered, and for how long, is in `broker/first_sequences.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.append import Appender
from broker.metadata import Cluster, Topic
from protocol.messages.produce import PartitionProduceData, TopicProduceData
from protocol.primitives import ZERO_UUID
from protocol.records.batch import BATCH_HEADER_BYTES, MalformedBatch, peek_header


def note_refused(
    cluster: Cluster, appenders: Mapping[int, Appender], wanted: TopicProduceData, data: PartitionProduceData
) -> None:
    """Remember that this batch was not appended, unless its partition knows the producer."""
    records = data.records
    if records is None or len(records) < BATCH_HEADER_BYTES or data.index < 0:
        return
    try:
        header = peek_header(records)
    except MalformedBatch:
        return
    if header.producer_id < 0 or header.base_sequence < 0:
        return
    firsts = cluster.first_sequences
    topic, name = _topic(cluster, wanted)
    if topic is None:
        key = name or wanted.topic_id
        firsts.note(key, data.index, header.producer_id, header.producer_epoch, header.base_sequence)
        return
    if data.index < len(topic.partitions):
        partition = topic.partitions[data.index]
        appender = appenders.get(partition.group.group_id) if partition.is_here else None
        if appender is not None and appender.producers.knows(partition.log.number, header.producer_id):
            return
    firsts.note(topic.topic_id, data.index, header.producer_id, header.producer_epoch, header.base_sequence)


def _topic(cluster: Cluster, wanted: TopicProduceData) -> tuple[Topic | None, str | None]:
    """The topic that the batch will be sent to again, and its name where that is known."""
    if wanted.topic_id == ZERO_UUID:
        return cluster.topic(wanted.name), wanted.name
    topic = cluster.topic_by_id(wanted.topic_id)
    if topic is not None:
        return topic, topic.name
    name = cluster.first_sequences.former_name(wanted.topic_id)
    return cluster.topic(name), name
