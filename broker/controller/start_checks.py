"""The start of a node alone: metadata and partitions that do not fit together.

A cluster of several nodes does none of this: what one of them has lost the others still have.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, METADATA_TOPIC_ID, MetadataCache
from lockstep.broker.metadata.metadata_image import TopicEntry
from lockstep.protocol.plural import pluralize
from lockstep.storage.log_group import LogGroup
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import CONTROL_PARTITION, StorageError

log = logging.getLogger("lockstep.topics")


def _partitions_of_topics(group: LogGroup) -> Iterator[PartitionLog]:
    return (each for each in group.partitions.values() if each.local_id != CONTROL_PARTITION)


def check_metadata(cluster: MetadataCache) -> None:
    """Raises StorageError where records are there and the metadata were lost: a cluster has its id before its
    first topic. Without this check the data would be closed as that of no topic."""
    if cluster.image.cluster_id is not None:
        return
    for group in cluster.groups.values():
        for partition in _partitions_of_topics(group):
            if partition.topic_id != METADATA_TOPIC_ID:
                raise StorageError(
                    f"log group {METADATA_GROUP} is empty, but log group {group.group_id} holds partitions: "
                    f"groups/{METADATA_GROUP} of the data directory was lost or replaced; bring it back"
                )


def lost_partitions(cluster: MetadataCache, entry: TopicEntry) -> list[int]:
    """The partitions of a topic that a power loss took: with log.flush=os it may take those of one group and
    leave their topic in another. Raises StorageError for any other loss."""
    lost = []
    for index, group_id in enumerate(entry.groups):
        group = cluster.groups.get(group_id)
        if cluster.open_partition(entry.topic_id, group_id, index) is not None:
            continue
        if group is None or (group.log.checkpoint is None and not group.log.report.frames_scanned):
            raise StorageError(
                f"topic {entry.name} has no partition {index}: groups/{group_id} of the data directory was "
                "lost; bring it back"
            )
        if cluster.settings.log_flush != "os":
            raise StorageError(
                f"topic {entry.name} has no partition {index} in the records of log group {group_id}; after "
                "a power loss with log.flush=os, start with that once more"
            )
        lost.append(index)
    return lost


async def close_orphans(cluster: MetadataCache) -> None:
    """Close the partitions of no topic: a crash came after they were opened. No other node can have recorded
    their topic meanwhile."""
    topics = cluster.image.topics
    known = {(each.topic_id, index) for each in topics.values() for index in range(len(each.groups))}
    known.add((METADATA_TOPIC_ID, 0))
    for group in cluster.groups.values():
        orphans = [
            each.local_id for each in _partitions_of_topics(group) if (each.topic_id, each.index) not in known
        ]
        if orphans:
            log.warning(
                "log group %d: closing %s of no topic", group.group_id, pluralize(len(orphans), "partition")
            )
            await group.close_partitions(orphans)
