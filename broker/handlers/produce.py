"""Produce: append each partition's batch, answer when everything that was appended is committed.

Versions 3 to 13 are served and 0 to 13 advertised: old librdkafka takes a lowest version of 3 for "no
compression" (KAFKA-18659). 7 allows zstd (KIP-110); 8 carries an error's text (KIP-467); 10 names the leader
to whom it is not here (KIP-951); 12 changes nothing without transactions (KIP-890); 13 names
topics by id (KIP-516). acks=1 is answered like acks=all; acks=0 has no response, and a refusal closes the
connection as Kafka does.
"""

from __future__ import annotations

from typing import Final

from broker.append import Appended
from broker.context import Answer, ClientContext, ConnectionRefused, Deferred
from broker.handlers.partition_checks import known_leader
from broker.metadata import Topic
from broker.refused import Refused
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from storage.group import LogGroup

API_KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (3, 13)
LEADERS_SINCE: Final = 10
TOPIC_IDS_SINCE: Final = 13
VALID_ACKS: Final = (-1, 0, 1)


class UnacknowledgedRefusal(ConnectionRefused):
    """A batch sent with acks=0 was refused: closing the connection is the only way to say so."""


def handle(context: ClientContext, header: RequestHeader, request: ProduceRequest) -> Answer:
    """Serve one Produce request; the response waits for the commit of what it appended."""
    produced = _Produced(context, header.api_version)
    if request.acks not in VALID_ACKS:
        error = Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
        topics = [produced.refuse_topic(topic, error) for topic in request.topic_data]
    else:
        topics = [produced.topic(topic) for topic in request.topic_data]
    response = ProduceResponse(responses=topics)
    if request.acks == 0:
        if produced.refusal is not None:
            raise UnacknowledgedRefusal(str(produced.refusal))
        return None
    if produced.is_moved:
        produced.tell_leaders(response)
    if not produced.groups:
        return response
    return _Answer(response, produced)


class _Produced:
    """What one request has done so far."""

    __slots__ = ("context", "groups", "is_moved", "produce_version", "refusal")

    def __init__(self, context: ClientContext, produce_version: int) -> None:
        self.context = context
        self.produce_version = produce_version
        self.groups: list[LogGroup] = []
        """The groups that a response must wait for."""
        self.refusal: Refused | None = None
        self.is_moved = False
        """A partition is not led here: the response says who leads it (KIP-951)."""

    def topic(self, data: TopicProduceData) -> TopicProduceResponse:
        """Append what the request has for one topic."""
        cluster = self.context.services.cluster
        if self.produce_version >= TOPIC_IDS_SINCE:
            topic = cluster.topic_by_id(data.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = cluster.topic(data.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            return self.refuse_topic(data, Refused(unknown, unknown.message))
        if topic.is_internal:
            # Kafka lets a client named __admin_client write here; what it writes would be replayed at once.
            problem = f"Cannot append to internal topic {topic.name}"
            return self.refuse_topic(data, Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem))
        return TopicProduceResponse(
            name=data.name,
            topic_id=data.topic_id,
            partition_responses=[self.partition(topic, each) for each in data.partition_data],
        )

    def partition(self, topic: Topic, data: PartitionProduceData) -> PartitionProduceResponse:
        """Append one partition's batch."""
        try:
            if not 0 <= data.index < len(topic.partitions):
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise Refused(error, error.message)
            partition = topic.partitions[data.index]
            if not data.records:
                raise Refused(ErrorCode.INVALID_RECORD, "no record batch; exactly one is allowed")
            group = partition.group
            appended: Appended = self.context.services.appenders[group.group_id].append(
                partition.log, data.records, topic.config, self.produce_version
            )
        except Refused as refusal:
            return self.refuse(data, refusal)
        if group not in self.groups:
            self.groups.append(group)
        return PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=partition.log.log_start_offset,
        )

    def refuse_topic(self, data: TopicProduceData, refusal: Refused) -> TopicProduceResponse:
        """The same refusal for each of the topic's partitions."""
        return TopicProduceResponse(
            name=data.name,
            topic_id=data.topic_id,
            partition_responses=[self.refuse(each, refusal) for each in data.partition_data],
        )

    def refuse(self, data: PartitionProduceData, refusal: Refused) -> PartitionProduceResponse:
        """Say why a batch was not appended; record_errors stays empty: the whole batch was refused."""
        self.refusal = refusal
        self.is_moved = self.is_moved or refusal.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        return PartitionProduceResponse(
            index=data.index,
            error_code=refusal.error,
            base_offset=-1,
            error_message=refusal.message,
        )

    def tell_leaders(self, response: ProduceResponse) -> None:
        """Say who leads the partitions that are not led here, as far as this node knows."""
        if self.produce_version < LEADERS_SINCE:
            return
        cluster, here = self.context.services.cluster, self.context.endpoint()
        by_id = self.produce_version >= TOPIC_IDS_SINCE
        for told in response.responses:
            topic = cluster.topic_by_id(told.topic_id) if by_id else cluster.topic(told.name)
            for each in told.partition_responses:
                partition = cluster.partition(topic.name, each.index) if topic is not None else None
                if partition is None or each.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    continue
                leader_id, leader_epoch = known_leader(partition)
                each.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
                if leader_id == here.node_id:
                    response.node_endpoints = [
                        NodeEndpoint(node_id=leader_id, host=here.host, port=here.port, rack=here.rack)
                    ]


class _Answer(Deferred):
    """A Produce response that waits for one commit in each group it touched."""

    __slots__ = ("_pending", "_produced", "_waiting_response")

    def __init__(self, response: ProduceResponse, produced: _Produced) -> None:
        super().__init__()
        self._waiting_response = response
        self._produced = produced
        self._pending = len(produced.groups)
        for group in produced.groups:
            group.when_committed(self._committed)

    def _committed(self, error: BaseException | None) -> None:
        if error is not None:
            _withdraw(self._waiting_response)
            self._produced.tell_leaders(self._waiting_response)
        self._pending -= 1
        if self._pending == 0:
            self.complete(self._waiting_response)


def _withdraw(response: ProduceResponse) -> None:
    """Leadership was lost before the commit: nothing in this response may read as success."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code == ErrorCode.NONE:
                partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                partition.base_offset = -1
