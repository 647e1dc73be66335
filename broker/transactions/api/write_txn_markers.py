"""WriteTxnMarkers: end a transaction in partitions that are led here, by an admin's request (KIP-664).

Nodes of this cluster use their own protocol (`broker/transactions/marker_sender.py`); this is what
`kafka-transactions --abort` sends for a transaction that hangs. As in Kafka a marker that names no topic has
no part in the response. Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest.
"""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.request_context import ClientContext, RequestHandler
from lockstep.broker.transactions.marker_sender import MarkerSender
from lockstep.broker.transactions.transaction_records import TopicPartition
from lockstep.protocol.acl_codes import AclOperation
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class WriteTxnMarkers(RequestHandler):
    """See the module."""

    api_key = ApiKey.WRITE_TXN_MARKERS
    versions = (1, 2)

    def __init__(self, markers: MarkerSender, authorizer: Authorizer = ALLOW_ALL) -> None:
        self._access = authorizer.access(self.api_key)
        self._markers = markers

    async def handle(
        self, client: ClientContext, header: RequestHeader, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        """One result per partition that is named, when all is committed."""
        access = self._access
        if not access.allows_on_cluster(
            client, AclOperation.ALTER, is_requested=False
        ) and not access.allows_on_cluster(client, AclOperation.CLUSTER_ACTION):
            denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            return WriteTxnMarkersResponse(
                markers=[
                    _in_response(each, {key: denied for key in _partitions(each)})
                    for each in request.markers
                    if each.topics
                ]
            )
        return WriteTxnMarkersResponse(
            markers=[await self._result(each) for each in request.markers if each.topics]
        )

    async def _result(self, requested: WritableTxnMarker) -> WritableTxnMarkerResult:
        marker = TxnMarkerEntry(
            requested.producer_id,
            requested.producer_epoch,
            requested.coordinator_epoch,
            requested.transaction_result,
            requested.transaction_version,
        )
        return _in_response(requested, await self._markers.write_here(_partitions(requested), marker))


def _partitions(requested: WritableTxnMarker) -> list[TopicPartition]:
    return [(topic.name, index) for topic in requested.topics for index in topic.partition_indexes]


def _in_response(
    requested: WritableTxnMarker, codes: Mapping[TopicPartition, ErrorCode]
) -> WritableTxnMarkerResult:
    topics = [
        WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=[
                WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes[topic.name, index])
                for index in topic.partition_indexes
            ],
        )
        for topic in requested.topics
    ]
    return WritableTxnMarkerResult(producer_id=requested.producer_id, topics=topics)
