"""The checks of one partition of a Fetch request, before its records are read.

Owns: finding the partition, and the error, the redirect to a nearby replica (KIP-392) or the diverging epoch
(KIP-595) that its client gets in place of records. Does not: read records
(`broker/fetch/partition_reads.py`).
Source: Kafka's ReplicaManager.fetchMessages and Partition.readRecords for the errors.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.authorization.authorizer import Access
from lockstep.broker.fetch.fetch_session import FetchItem
from lockstep.broker.fetch.follower_fetch import follower_error, offset_error
from lockstep.broker.fetch.replica_selector import RackAwareReplicaSelector
from lockstep.broker.metadata.current_leader import FETCH_ERRORS, FETCH_MIN_VERSION, current_leader
from lockstep.broker.metadata.leader_epoch_check import end_of_epoch, epoch_error
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import EpochEndOffset, LeaderIdAndEpoch, PartitionData

STORAGE_ERRORS_MIN_VERSION: Final = 6
FOLLOWER_READ_MIN_VERSION: Final = 11
NO_RECORDS: Final = b""


class FetchAccess:
    """The access of a Fetch request's client: a consumer's by topic, a replica's to everything or nothing."""

    __slots__ = ("_access", "_client", "_is_replica", "_may_replicate")

    def __init__(self, access: Access, client: ClientContext, is_replica: bool, may_replicate: bool) -> None:
        self._access = access
        self._client = client
        self._is_replica = is_replica
        self._may_replicate = may_replicate

    def allows(self, name: str, is_requested: bool = True) -> bool:
        """True if the client may read a topic; checked again for each response, so that a change of ACLs ends
        also what a session or a waiting request has been allowed before."""
        if self._is_replica:
            return self._may_replicate
        return self._access.allows(
            self._client, AclOperation.READ, AclResourceType.TOPIC, name, is_requested=is_requested
        )


class PartitionCheck:
    """The checks of one request.

    Args: replica_id: the replica id in the request; -1 for a consumer. nearby_replicas: None
    where clients are not sent to another replica. access: None where everything is allowed.
    """

    __slots__ = ("_access", "_api_version", "_cluster", "_nearby_replicas", "_read_committed", "_replica_id")

    def __init__(
        self,
        cluster: MetadataCache,
        api_version: int,
        replica_id: int,
        read_committed: bool,
        nearby_replicas: RackAwareReplicaSelector | None,
        access: FetchAccess | None = None,
    ) -> None:
        self._access = access
        self._cluster = cluster
        self._api_version = api_version
        self._replica_id = replica_id
        self._read_committed = read_committed
        self._nearby_replicas = nearby_replicas

    @property
    def is_plain(self) -> bool:
        """True for a consumer that is not sent to another replica."""
        return self._replica_id < 0 and self._nearby_replicas is None

    def may_read(self, partition: Partition) -> bool:
        """True if the client may read a partition; a denial is not logged yet."""
        return self._access is None or self._access.allows(partition.topic.name, is_requested=False)

    def check(self, item: FetchItem) -> PartitionData:
        """Find the partition of `item` and check the request against it; the records are still missing."""
        item.is_diverging = False
        if self._access is not None and not self._is_allowed(self._access, item):
            item.partition = None
            data = self.error_data(item, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            data.aborted_transactions = []
            return data
        partition = item.partition
        if partition is None or partition.topic.deleted:
            partition = item.partition = self.find_partition(item)
        if partition is None:
            data = self.error_data(item, self._unknown_error(item))
            data.aborted_transactions = []
            return data
        error = self._item_error(partition, item)
        if error is not ErrorCode.NONE:
            return self.error_data(item, error)
        log = partition.log
        offset = item.fetch_offset
        high_watermark = log.high_watermark
        data = PartitionData(
            partition_index=item.index,
            high_watermark=high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if self._read_committed else None,
            records=NO_RECORDS,
        )
        if self._nearby_replicas is not None and not item.is_follower_read:
            data.preferred_read_replica = self._nearby_replicas.select(partition, offset)
            if data.preferred_read_replica >= 0:
                return data  # as in Kafka, nothing more is looked at here
        if item.last_fetched_epoch >= 0:
            epoch, end_offset = end_of_epoch(partition, item.last_fetched_epoch)
            if epoch < 0:
                return self.error_data(item, ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < item.last_fetched_epoch or end_offset < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
                item.is_diverging = True
        return data

    def _item_error(self, partition: Partition, item: FetchItem) -> ErrorCode:
        """NONE, or the error for which nothing is read for this item."""
        is_follower_read = item.is_follower_read = not partition.group.is_leader
        check = (
            follower_error
            if is_follower_read and self._api_version >= FOLLOWER_READ_MIN_VERSION
            else epoch_error
        )
        error = check(partition, item.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error
        if self._replica_id >= 0:
            # Only replicas of this cluster may name a replica id, and none of them uses Fetch.
            known_epoch = item.current_leader_epoch >= 0
            return ErrorCode.UNKNOWN_LEADER_EPOCH if known_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_follower_read:
            return offset_error(partition, item.fetch_offset)
        if not partition.log.log_start_offset <= item.fetch_offset <= partition.log.next_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _is_allowed(self, access: FetchAccess, item: FetchItem) -> bool:
        """True if the client may read this topic; an id that no topic has is allowed, and unknown."""
        topic_key = item.topic
        if isinstance(topic_key, str):
            return access.allows(topic_key)
        topic = self._cluster.topic_by_id(topic_key)
        return topic is None or access.allows(topic.name)

    def find_partition(self, item: FetchItem) -> Partition | None:
        """The partition that an item names now."""
        cluster = self._cluster
        topic_key = item.topic
        topic = cluster.topic_by_id(topic_key) if isinstance(topic_key, bytes) else cluster.topic(topic_key)
        if topic is None or not 0 <= item.index < len(topic.partitions):
            return None
        return topic.partitions[item.index]

    def _unknown_error(self, item: FetchItem) -> ErrorCode:
        topic_key = item.topic
        if isinstance(topic_key, bytes) and self._cluster.topic_by_id(topic_key) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def error_data(self, item: FetchItem, error: ErrorCode) -> PartitionData:
        """The content for a partition that is not read because of an error."""
        if error is ErrorCode.KAFKA_STORAGE_ERROR and self._api_version < STORAGE_ERRORS_MIN_VERSION:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER  # clients that may not know the other error retry
        data = PartitionData(
            partition_index=item.index,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=None,
            records=NO_RECORDS,
        )
        if error in FETCH_ERRORS and self._api_version >= FETCH_MIN_VERSION and item.partition is not None:
            leader_id, leader_epoch = current_leader(item.partition)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        return data
