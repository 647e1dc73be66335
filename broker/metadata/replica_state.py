"""The replicas, leader and in-sync replicas (ISR) of partitions, as Metadata and similar APIs report them.

This module shows the ISR to clients; `broker/peers/in_sync_replicas.py` computes it, on each leader. A log
group's partitions share their replicas; those of living nodes are in sync, except those that their leader
last reported as out of sync. A leader is named only once it is
known to have replayed group 0 up to the partition's record: before, it would reject produce requests
(KAFKA-15591). During a reassignment, replicas that are added or removed are listed, and one that does not
vote yet, or any more, is not in sync.
"""

from __future__ import annotations

from copy import copy

from lockstep.broker.metadata.metadata_cache import MetadataCache, Partition
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.node_view import NodeStates
from lockstep.broker.metadata.replica_change import ReplicaChange, replica_change_of
from lockstep.broker.requests.request_context import ClientContext
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.group_options import node_of


class ReplicaState:
    """The state of one log group. `leader_id` is -1, with an `error`, if no live leader is known, or if it
    has no listener by which the client could reach it; such a replica counts as offline."""

    __slots__ = ("error", "in_sync", "leader_id", "nodes", "offline", "term")

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeStates,
        endpoints: NodeEndpoints,
        client: ClientContext,
        group_id: int,
    ) -> None:
        change = replica_change_of(cluster, group_id)
        self.nodes = change.replicas
        unreachable = [each for each in self.nodes if not nodes.is_alive(each)]
        self.offline = [
            each for each in self.nodes if each in unreachable or endpoints.of(each, client) is None
        ]
        self.leader_id = nodes.live_leader_of(group_id)
        self.term = nodes.leader_of(group_id)[1]
        out_of_sync = {*unreachable, *nodes.out_of_sync(group_id)} - {
            self.leader_id
        }  # a new one may not have spoken yet
        self.in_sync = [each for each in self.nodes if each not in out_of_sync]
        if change.adding or change.removing:
            voters = _voters(cluster, group_id, change)
            self.in_sync = [each for each in self.in_sync if each in voters]
        self.error = ErrorCode.NONE if self.leader_id >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        if self.leader_id >= 0 and endpoints.of(self.leader_id, client) is None:
            is_known = nodes.entry_of(self.leader_id) is not None
            self.error = ErrorCode.LISTENER_NOT_FOUND if is_known else ErrorCode.LEADER_NOT_AVAILABLE
            self.leader_id = -1

    def without_leader(self) -> ReplicaState:
        """The same with LEADER_NOT_AVAILABLE, for a partition that the leader may not know yet."""
        copied = copy(self)
        copied.leader_id, copied.error = -1, ErrorCode.LEADER_NOT_AVAILABLE
        return copied


def _voters(cluster: MetadataCache, group_id: int, change: ReplicaChange) -> set[int]:
    """The voters of a group during a reassignment; the former replicas where this node does not know the
    group."""
    group = cluster.groups.get(group_id)
    voters = group.raft.configuration.voters if group is not None else ()
    return {node_of(each) for each in voters} or set(change.replicas) - set(change.adding)


class ReplicaStates:
    """The state of each log group on demand, for one response."""

    __slots__ = (
        "_client",
        "_cluster",
        "_endpoints",
        "_nodes",
        "_states",
        "_without_leader",
        "unconfirmed_leaders",
    )

    def __init__(
        self, cluster: MetadataCache, nodes: NodeStates, endpoints: NodeEndpoints, client: ClientContext
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._endpoints = endpoints
        self._client = client
        self._states: dict[int, ReplicaState] = {}
        self._without_leader: dict[int, ReplicaState] = {}
        self.unconfirmed_leaders: dict[int, int] = {}
        """Leaders that are not known to serve a looked-up partition -> the index of group 0's log that they
        must replay."""

    @property
    def is_complete(self) -> bool:
        """True if the leader of each looked-up partition is known to serve it."""
        return not self.unconfirmed_leaders

    def of(self, partition: Partition) -> ReplicaState:
        """The state of a partition."""
        group_id = partition.group.group_id
        state = self._states.get(group_id)
        if state is None:
            state = self._states[group_id] = ReplicaState(
                self._cluster, self._nodes, self._endpoints, self._client, group_id
            )
        nodes = self._nodes
        if state.leader_id < 0 or nodes.has_followed(state.leader_id, partition.visible_from_index):
            return state
        self.unconfirmed_leaders[state.leader_id] = max(
            self.unconfirmed_leaders.get(state.leader_id, 0), partition.visible_from_index
        )
        without_leader = self._without_leader.get(group_id)
        if without_leader is None:
            without_leader = self._without_leader[group_id] = state.without_leader()
        return without_leader
