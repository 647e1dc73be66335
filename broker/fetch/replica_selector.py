"""Selects the replica for a consumer: a follower in its rack, if the settings choose that (KIP-392).

Owns: the leader's choice for one Fetch request. Invariants: only a follower is named that is a voter, lives,
keeps up, has no missing records and has everything below the offset; none is named if the leader is in the
consumer's rack.
Does not: serve reads (the Fetch handler does). Source: Kafka's ReplicaManager.findPreferredReadReplica and
RackAwareReplicaSelector; "in the ISR" is what `lockstep cluster status` calls in sync.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lockstep.broker.membership.group_view import is_up_to_date
from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.requests.request_context import ClientContext
from lockstep.storage.group_options import node_of
from lockstep.storage.log_group import LogGroup

NO_NODE: Final = -1
MAX_SCANNED_BYTES: Final = 64 << 20
"""The newest frames, which are in memory: more than an in-sync follower may be missing."""


class RackAwareReplicaSelector:
    """The followers in one consumer's rack, looked for once per log group that it reads from here."""

    __slots__ = ("_client", "_cluster", "_endpoints", "_found", "_may_serve", "_rack")

    def __init__(
        self,
        rack: str,
        client: ClientContext,
        endpoints: NodeEndpoints,
        cluster: MetadataCache,
        may_serve: Callable[[int, int], bool],
    ) -> None:
        self._rack = rack
        self._client = client
        self._endpoints = endpoints
        self._cluster = cluster
        self._may_serve = may_serve
        self._found: dict[int, list[tuple[int, dict[int, int]]]] = {}

    def select(self, partition: Partition, offset: int) -> int:
        """The node from which to read a partition that this node leads; -1: from this node."""
        group, log = partition.group, partition.log
        followers = self._found.get(group.group_id)
        if followers is None:
            followers = self._found[group.group_id] = self._followers(group)
        if offset <= log.high_watermark:
            for node_id, missing in followers:
                if offset <= missing.get(log.local_id, offset):
                    return node_id
        return NO_NODE

    def _followers(self, group: LogGroup) -> list[tuple[int, dict[int, int]]]:
        """Each in-sync follower in the rack, and its missing offsets; the most complete first."""
        endpoints, client, raft = self._endpoints, self._client, group.raft
        if endpoints.own(client).rack == self._rack:
            return []
        placed = self._cluster.nodes_of(group.group_id)
        candidates = []
        for member in raft.configuration.voters:
            node_id, progress = node_of(member), raft.progress(member)
            endpoint = endpoints.of(node_id, client)
            if endpoint is None or endpoint.rack != self._rack or node_id not in placed:
                continue  # clients use only replicas that Metadata lists
            if (
                progress is not None
                and self._may_serve(node_id, group.group_id)
                and is_up_to_date(raft, member)
            ):
                candidates.append((progress.match_index, node_id))
        followers = [
            (node_id, missing_offsets(group, match_index))
            for match_index, node_id in sorted(candidates, reverse=True)
        ]
        return [(node_id, missing) for node_id, missing in followers if missing is not None]


def missing_offsets(group: LogGroup, match_index: int) -> dict[int, int] | None:
    """The first missing offset of each partition for a replica with the log up to `match_index`; None where
    those frames are not all in memory."""
    committed = group.applied_index
    if match_index >= committed:
        return {}
    frames = group.log.frames(match_index + 1, MAX_SCANNED_BYTES)
    if not frames or frames[-1].index < committed:
        return None
    missing: dict[int, int] = {}
    for frame in frames:
        for local_id, base_offset, *_ in frame.entries:
            missing.setdefault(local_id, base_offset)
    return missing
