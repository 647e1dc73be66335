"""Handlers of transactions.

| subject | handlers |
|---|---|
| a producer's transaction | `init_producer_id`, `add_partitions_to_txn`, `add_offsets_to_txn`, `end_txn` |
| tools | `list_transactions`, `describe_transactions` |
| markers between nodes | `write_txn_markers` |
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.transactions.api.add_offsets_to_txn import AddOffsetsToTxn
from lockstep.broker.transactions.api.add_partitions_to_txn import AddPartitionsToTxn
from lockstep.broker.transactions.api.describe_transactions import DescribeTransactions
from lockstep.broker.transactions.api.end_txn import EndTxn
from lockstep.broker.transactions.api.init_producer_id import InitProducerId
from lockstep.broker.transactions.api.list_transactions import ListTransactions
from lockstep.broker.transactions.api.write_txn_markers import WriteTxnMarkers
from lockstep.broker.transactions.marker_sender import MarkerSender
from lockstep.broker.transactions.transaction_coordinator import ProducerIdSource
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators


def build_handlers(
    transactions: TransactionCoordinators,
    producer_ids: ProducerIdSource,
    markers: MarkerSender,
    cluster: MetadataCache,
    partition_of_group: Callable[[str], int],
    clock_ms: Callable[[], int],
    authorizer: Authorizer = ALLOW_ALL,
) -> list[RequestHandler]:
    """Builds the handlers of this package."""
    return [
        InitProducerId(transactions, producer_ids, authorizer),
        AddPartitionsToTxn(transactions, cluster, authorizer),
        AddOffsetsToTxn(transactions, partition_of_group, authorizer),
        EndTxn(transactions, authorizer),
        ListTransactions(transactions, clock_ms, authorizer),
        DescribeTransactions(transactions, authorizer),
        WriteTxnMarkers(markers, authorizer),
    ]
