"""Reassignment of partitions by clients' requests: whole log groups, or nothing.

Owns: which requests can be met, where a partition is while its group moves, and the reports that a
group has arrived. The rule: a partition's replicas are the members of its log group, so a request that moves
one names every partition that clients have in that group, and the same brokers for all; the broker's own
topics move with the group and are not named. The brokers are as many as a log group has. A partition that
stays may be named alone; a whole group's preferred leader is the first broker of its first named partition.
Invariants: the target is recorded in group 0 before anything moves, so that any leader of the group, or
group 0, next continues; a move ends when the group's leader reports that its voters are the target, and that
the added ones are in sync, so that clients never see the one before the other. Does not: change members
(`broker/membership/` does), or speak Kafka's messages (the handlers do). Source: KIP-455, KIP-860; Kafka's
ReplicationControlManager for the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lockstep.broker.controller.cluster_status import GroupReports
from lockstep.broker.controller.replica_assignment import check_replicas
from lockstep.broker.controller.topics import Topics
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.metadata_image import (
    Command,
    finish_reassignment_command,
    place_command,
    start_reassignment_command,
)
from lockstep.broker.metadata.replica_change import replica_change_of
from lockstep.broker.metadata.topic_names import MAX_NAME_CHARACTERS
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.types import StorageError

if TYPE_CHECKING:
    from lockstep.broker.peers.node_registry import NodeRegistry

MAX_NAMED: Final = 100
"""LIMIT. Partitions that a rejection lists; only the error of a group's first partition has the whole
list."""


@dataclass
class ReassignmentRequest:
    """The requested replicas of one partition; None: those before. `error` becomes why it will not be."""

    topic: str
    index: int
    broker_ids: Sequence[int] | None
    error: RequestError | None = None

    @property
    def target(self) -> frozenset[int] | None:
        """The brokers in no order."""
        return None if self.broker_ids is None else frozenset(self.broker_ids)


class Reassignment:
    """One request, on the controller. Args: may_resize: whether the number of replicas may change."""

    def __init__(self, cluster: MetadataCache, nodes: NodeRegistry, topics: Topics, may_resize: bool) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._topics = topics
        self._may_resize = may_resize
        self._partitions: dict[int, list[tuple[str, int]]] | None = None
        """The partitions of clients' topics in each log group, once they were needed."""

    async def make(self, requests: Sequence[ReassignmentRequest]) -> None:
        """Records the requests that can be met and sets the error of each other one. Raises RequestError
        where none can be met."""
        if not self._cluster.is_single_node and not self._topics.leads:
            raise RequestError(ErrorCode.NOT_CONTROLLER, "There is no controller now, or not here.")
        by_group: dict[int, list[ReassignmentRequest]] = {}
        for request in requests:
            try:
                by_group.setdefault(self._group_of(request), []).append(request)
            except RequestError as error:
                request.error = error
        planned = [self._plan(group_id, requests) for group_id, requests in by_group.items()]
        commands = [command for command in planned if command is not None]
        if commands:
            try:
                await self._topics.record(commands)
            except StorageError as error:
                raise RequestError(ErrorCode.NOT_CONTROLLER, f"it could not be recorded: {error}") from None

    def _group_of(self, request: ReassignmentRequest) -> int:
        """The log group that a wish is about, where it makes sense by itself. Raises RequestError."""
        if self._cluster.topic(request.topic) is None:
            shown = request.topic[:MAX_NAME_CHARACTERS]  # each partition's error has it
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {shown}.")
        partition = self._cluster.partition(request.topic, request.index)
        if partition is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Unable to find partition {request.topic}:{request.index}.",
            )
        group_id = partition.group.group_id
        origin = self._cluster.image.moving.get(group_id)
        registered = self._nodes.registered_ids()
        if request.broker_ids is not None:
            check_replicas(request.broker_ids, registered)
            self._check_size(group_id, request.broker_ids)
        elif origin is None:
            error = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            raise RequestError(error, error.message)
        else:
            check_replicas(origin, registered)
        return group_id

    def _check_size(self, group_id: int, broker_ids: Sequence[int]) -> None:
        """A group has as many nodes as survive the loss of one, if there are so many. Raises RequestError."""
        now, count = len(self._cluster.nodes_of(group_id)), len(self._nodes.registered_ids())
        least = min(self._cluster.data_replicas, count)
        if len(broker_ids) == now:
            return
        if len(broker_ids) != least or not self._may_resize:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is {now} and cannot become {len(broker_ids)}: with {count} brokers "
                f"it is {least}{'' if self._may_resize else ', and this request is not to change it'}.",
            )

    def _plan(self, group_id: int, requests: Sequence[ReassignmentRequest]) -> Command | None:
        """Returns the command that moves the group as requested, if that is possible."""
        placed = self._cluster.nodes_of(group_id)
        movers = [request for request in requests if request.target != frozenset(placed)]
        missing = self._unrequested(group_id, requests)
        first = requests[0].broker_ids
        if not movers:
            turned = first is not None and not missing and tuple(first) != placed
            return place_command({group_id: list(first or ())}) if turned else None
        if len(movers) < len(requests) or len({request.target for request in movers}) > 1:
            _refuse(movers, group_id, f"Partitions of log group {group_id} are sent to different brokers")
            return None
        if missing:
            more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
            listed = ", ".join(f"{name}-{index}" for name, index in missing[:MAX_NAMED])
            _refuse(
                movers, group_id, f"Name the other partitions of log group {group_id}, too: {listed}{more}"
            )
            return None
        origin = self._cluster.image.moving.get(group_id)
        if first is None:
            assert origin is not None
            return place_command({group_id: origin})
        if origin is not None and set(first) == set(origin):
            return place_command({group_id: first})
        return start_reassignment_command({group_id: first})

    def _unrequested(self, group_id: int, requests: Sequence[ReassignmentRequest]) -> list[tuple[str, int]]:
        """Partitions of the group that should have been named and were not."""
        if self._partitions is None:
            self._partitions = {}
            for topic in self._cluster.topics():
                for partition in () if topic.is_internal else topic.partitions:
                    found = self._partitions.setdefault(partition.group.group_id, [])
                    found.append((topic.name, partition.index))
        named = {(request.topic, request.index) for request in requests}
        return [each for each in self._partitions.get(group_id, ()) if each not in named]


def _refuse(requests: Sequence[ReassignmentRequest], group_id: int, why: str) -> None:
    error = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    requests[0].error = RequestError(
        error, f"{why}. The partitions of a log group move together or not at all."
    )
    for request in requests[1:]:
        request.error = RequestError(
            error, f"The partitions of log group {group_id} move together or not at all."
        )


async def note_arrivals(
    cluster: MetadataCache, nodes: NodeRegistry, topics: Topics, reports: GroupReports
) -> None:
    """On the controller: records which groups have finished their reassignment. Raises StorageError."""
    moving = list(cluster.image.moving)
    arrived = []
    for group_id, known in (await reports.of_all(moving)).items():
        placed = set(cluster.nodes_of(group_id))
        if known is None or known["changing"] or known["learners"]:
            continue
        if {each["node"] for each in known["voters"]} != placed or group_id not in cluster.image.moving:
            continue
        if not set(replica_change_of(cluster, group_id).adding) & set(nodes.out_of_sync(group_id)):
            arrived.append(group_id)
    if arrived:
        await topics.record([finish_reassignment_command(arrived)])
