"""Where a partition is and who leads it, as Metadata and its kin tell it.

A log group's partitions share their replicas; those whose nodes live are in sync, but for those that lag,
as their leader said last (`broker/cluster/lagging.py`). A leader is named only once it is known to have
followed group 0 to where the partition appears: before, it would refuse what is sent to it (KAFKA-15591).
While clients have a group moved, both those that come and those that go are replicas, and who does not vote
yet, or any more, is not in sync.
"""

from __future__ import annotations

from copy import copy

from broker.cluster.reassigning import Way, way_of
from broker.context import ClientContext, Services
from broker.metadata import TopicPartition
from protocol.errors import ErrorCode
from storage.group_options import node_of


class Replicas:
    """Of one log group. `leader_id` is -1, and `error` says so, where no living node is known to lead, or
    the one that does has no listener by which the client could reach it; such a replica counts as offline."""

    __slots__ = ("error", "in_sync", "leader_id", "nodes", "offline", "term")

    def __init__(self, context: ClientContext, number: int) -> None:
        services = context.services
        nodes, cluster = services.nodes, services.cluster
        way = way_of(cluster, number)
        self.nodes = way.replicas
        away = [each for each in self.nodes if not nodes.is_alive(each)]
        self.offline = [each for each in self.nodes if each in away or context.endpoint_of(each) is None]
        self.leader_id = nodes.live_leader_of(number)
        self.term = nodes.leader_of(number)[1]
        out = {*away, *nodes.behind(number)} - {self.leader_id}  # a new one may not have spoken yet
        self.in_sync = [each for each in self.nodes if each not in out]
        if way.adding or way.removing:
            voting = _voting(services, number, way)
            self.in_sync = [each for each in self.in_sync if each in voting]
        self.error = ErrorCode.NONE if self.leader_id >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        if self.leader_id >= 0 and context.endpoint_of(self.leader_id) is None:
            is_known = nodes.entry_of(self.leader_id) is not None
            self.error = ErrorCode.LISTENER_NOT_FOUND if is_known else ErrorCode.LEADER_NOT_AVAILABLE
            self.leader_id = -1

    def without_leader(self) -> Replicas:
        """The same with LEADER_NOT_AVAILABLE, for a partition that the leader may not know yet."""
        other = copy(self)
        other.leader_id, other.error = -1, ErrorCode.LEADER_NOT_AVAILABLE
        return other


def _voting(services: Services, number: int, way: Way) -> set[int]:
    """Who votes in a group that moves; where the group is not known here, those that it comes from."""
    group = services.cluster.groups.get(number)
    voters = group.raft.configuration.voters if group is not None else ()
    return {node_of(each) for each in voters} or set(way.replicas) - set(way.adding)


class ReplicasOfAll:
    """The replicas of each log group as it is asked for, for one answer."""

    __slots__ = ("_context", "_found", "_unserved", "awaited")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._found: dict[int, Replicas] = {}
        self._unserved: dict[int, Replicas] = {}
        self.awaited: dict[int, int] = {}
        """Leaders that are not known to serve a partition that was looked up -> the index in group 0's log up
        to which they have to follow."""

    @property
    def is_settled(self) -> bool:
        """Whether the leader of each partition that was looked up is known to serve it."""
        return not self.awaited

    def of(self, partition: TopicPartition) -> Replicas:
        """Where a partition is."""
        number = partition.group.group_id
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = Replicas(self._context, number)
        nodes = self._context.services.nodes
        if found.leader_id < 0 or nodes.has_followed(found.leader_id, partition.shown_at):
            return found
        self.awaited[found.leader_id] = max(self.awaited.get(found.leader_id, 0), partition.shown_at)
        unserved = self._unserved.get(number)
        if unserved is None:
            unserved = self._unserved[number] = found.without_leader()
        return unserved
