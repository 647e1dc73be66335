"""Produce: append each partition's batch, respond when all appended batches are committed.

Versions 3 to 13 are served and 0 to 13 advertised: old librdkafka takes a lowest version of 3 for "no
compression" (KAFKA-18659). 7 allows zstd (KIP-110); 8 carries an error's text and the invalid records
(KIP-467); 10 names the leader of a partition led elsewhere (KIP-951); 11 knows TRANSACTION_ABORTABLE, 12 adds
partitions to the transaction (KIP-890, `broker/transactions/verification_queue.py`); 13 names topics by id
(KIP-516). acks=1 is served like acks=all. acks=0 has no response, but counts as in flight until the commit,
so that its producer is slowed down like others; an error closes the connection, as in Kafka. Transactions may
use acks=0, locks may not, since no client would learn of a conflict. A request that takes more than one time
slice continues in later ones (`broker/produce/sliced_produce.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.produce.api.atomic_produce import append_atomically, is_atomic
from lockstep.broker.produce.append_result import AppendPaths
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.delayed_produce import DelayedProduce
from lockstep.broker.produce.sliced_produce import SlicedProduce
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.requests.request_context import ClientContext, HandlerResponse, RequestHandler
from lockstep.broker.requests.time_slices import TimeSlicer, run_slice
from lockstep.protocol.acl_codes import AclOperation, AclResourceType
from lockstep.protocol.api import ApiKey, RequestHeader
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.produce import ProduceRequest
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, TRANSACTIONAL_FLAG
from lockstep.protocol.staged_messages import staged_query

VALID_ACKS: Final = (-1, 0, 1)
ATTRIBUTES_LOW_BYTE: Final = 22
"""Its place in a batch."""


class Produce(RequestHandler):
    """See the module.

    Args:
        appenders: the append path into each data group.
        transactional: the append paths for a transactional id.
        staged: the append paths for a transactional id of a query's staged batches.
    """

    api_key = ApiKey.PRODUCE
    versions = (3, 13)

    def __init__(
        self,
        cluster: MetadataCache,
        appenders: Mapping[int, Appender],
        endpoints: NodeEndpoints,
        time_slicer: TimeSlicer,
        transactional: Callable[[str], AppendPaths],
        staged: Callable[[str, str], AppendPaths],
        authorizer: Authorizer = ALLOW_ALL,
    ) -> None:
        self._access = authorizer.access(self.api_key)
        self._cluster = cluster
        self._appenders = appenders
        self._endpoints = endpoints
        self._time_slicer = time_slicer
        self._transactional = transactional
        self._staged = staged

    def handle(
        self, client: ClientContext, header: RequestHeader, request: ProduceRequest
    ) -> HandlerResponse:
        """Serve one Produce request; the response waits for the commit of what it appended."""
        transactional_id = request.transactional_id
        paths: AppendPaths
        if transactional_id is None:
            paths = self._appenders
        elif (query := staged_query(transactional_id)) is not None:
            paths = self._staged(transactional_id, query)
        else:
            paths = self._transactional(transactional_id)
        version, is_unacknowledged = header.api_version, request.acks == 0
        delayed = DelayedProduce(
            self._cluster, self._appenders, self._endpoints, client, version, paths, is_unacknowledged,
            self._access,
        )  # fmt: skip
        topics = request.topic_data
        try:
            if self._access.is_checked:
                self._check_transactional_id(client, request)
            if request.acks not in VALID_ACKS:
                problem = f"acks must be -1, 0 or 1, not {request.acks}"
                raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, problem)
            if request.unknown_tags and is_atomic(request):
                delayed.append_all(
                    topics, lambda batches: append_atomically(batches, self._appenders, version)
                )
            elif len(topics) == 1 and len(topics[0].partition_data) == 1:  # most: no clock is read
                delayed.append_first(topics[0])
            else:
                steps = delayed.steps(topics)
                if not run_slice(steps):
                    _copy_batches(request)
                    delayed.start_later_slices()
                    return SlicedProduce(self._time_slicer, steps, delayed, delayed)
        except RequestError as error:
            delayed.reject_all(topics, error)
        return delayed.respond()

    def _check_transactional_id(self, client: ClientContext, request: ProduceRequest) -> None:
        """Raises RequestError where transactional batches are not in the name of an id that the client may
        write; staged batches are in the name of their query."""
        name = request.transactional_id
        query = None if name is None else staged_query(name)
        if query is None and not _has_transactional_batch(request):
            return
        if name is None or not self._access.allows(
            client, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, query or name
        ):
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            raise RequestError(error, error.message)


def _has_transactional_batch(request: ProduceRequest) -> bool:
    """True if a batch is part of a transaction."""
    batches = (each.records for topic in request.topic_data for each in topic.partition_data)
    return any(
        batch is not None
        and len(batch) >= BATCH_HEADER_BYTES
        and batch[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG
        for batch in batches
    )


def _copy_batches(request: ProduceRequest) -> None:
    """Copy the batches that are left out of the receive buffer."""
    for topic in request.topic_data:
        for each in topic.partition_data:
            if each.records is not None:
                each.records = bytes(each.records)
