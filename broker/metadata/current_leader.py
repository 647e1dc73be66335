"""The current leader in error responses of Produce and Fetch (KIP-951).

A client that sends a request to a node which does not lead the partition learns the leader, its epoch and
its address from the error response, and needs no Metadata request. Owns: the versions and errors that have
the leader. The fields of the messages are filled by `broker/produce/delayed_produce.py` and
`broker/fetch/partition_check.py` with `broker/fetch/api/fetch.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lockstep.broker.metadata.metadata_cache import Partition
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.errors import ErrorCode

PRODUCE_MIN_VERSION: Final = 10
FETCH_MIN_VERSION: Final = 16
PRODUCE_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER,)
FETCH_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""The errors whose responses name the leader, as in Kafka."""


def current_leader(partition: Partition) -> tuple[int, int]:
    """The leader that this node knows (-1: none), and the leader epoch."""
    return partition.group.leader_id, partition.leader_epoch


def leader_endpoints(
    leader_ids: Iterable[int], endpoints: NodeEndpoints, client: ClientContext
) -> list[Endpoint]:
    """The endpoints of leaders that the client can reach, each once, in the order of `leader_ids`."""
    found = [endpoints.of(leader_id, client) for leader_id in dict.fromkeys(leader_ids)]
    return [each for each in found if each is not None]
