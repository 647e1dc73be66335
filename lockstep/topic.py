"""A topic as the metadata of its cluster describe it. Does not: know the broker that described it, or the
time."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.protocol.messages.metadata import MetadataResponseTopic


@dataclass(frozen=True)
class PartitionMetadata:
    """One partition of a topic."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    error_code: int


@dataclass(frozen=True)
class TopicMetadata:
    """A topic as the cluster's metadata describe it."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionMetadata, ...]


def topic_of(found: MetadataResponseTopic) -> TopicMetadata:
    """Its partitions are in order."""
    partitions = tuple(
        PartitionMetadata(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            partition.error_code,
        )
        for partition in sorted(found.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicMetadata(found.name or "", bytes(found.topic_id), found.is_internal, partitions)
