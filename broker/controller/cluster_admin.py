"""Operators' requests to a cluster: add a node, remove one, transfer a group's leadership.

Each is a step towards the requested state, and the client repeats it until it is done: no state is kept here,
so the change outlives the controller and the client. Invariants: a node is recorded as gone only when no log
group has a part there; nothing is recorded that clearly could not be completed. Does not:
move anything (`broker/membership/` does, wherever a group is led), or parse requests.
"""

from __future__ import annotations

from typing import Final

from lockstep.broker.controller.cluster_status import GroupReports
from lockstep.broker.controller.log_group_report import Document
from lockstep.broker.controller.topics import Topics
from lockstep.broker.controller.transfer_requests import TransferRequests
from lockstep.broker.membership.placement import with_node, without_node
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.metadata.metadata_image import place_command, remove_node_command
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import StorageError

MIN_NODES: Final = 2
"""The fewest nodes with data; no more are removed: a single disk would have everything."""


class ClusterAdmin:
    """On the controller. Raises RequestError throughout."""

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        topics: Topics,
        reports: GroupReports,
        transfers: TransferRequests,
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._topics = topics
        self._reports = reports
        self._transfers = transfers

    def _check_controller(self) -> None:
        if self._cluster.is_single_node:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                "this node is alone and stays so: it was started without --peers, and a cluster takes over "
                "no log of a node alone",
            )
        if not self._topics.leads:
            raise RequestError(ErrorCode.NOT_CONTROLLER, self._no_controller())

    def _no_controller(self) -> str:
        voters = self._cluster.nodes_of(METADATA_GROUP)
        alive = [each for each in voters if self._nodes.is_alive(each)]
        return (
            f"there is no controller: of the nodes that elect it ({_join_numbers(voters)}) this one hears "
            f"{_join_numbers(alive) or 'none'}, and a majority is needed"
        )

    # --- add ------------------------------------------------------------------------------------------------

    async def add(self, node_id: int) -> Document:
        """Places log groups on a node; `waiting` has the groups that are not there yet."""
        self._check_controller()
        image = self._cluster.image
        if node_id not in image.nodes:
            if too_old := self._nodes.metadata_versions.rejection_text(node_id):
                raise RequestError(ErrorCode.UNSUPPORTED_VERSION, too_old)
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"node {node_id} is not registered: start it first, with --peers that list it and the others",
            )
        if not self._groups_of(node_id):
            if not self._nodes.is_alive(node_id):
                raise RequestError(ErrorCode.INVALID_REQUEST, f"node {node_id} has not been heard of lately")
            await self._record(place_command(with_node(image.placement, self._placed_nodes(), node_id)))
        holds = self._groups_of(node_id)
        waiting = []
        for group_id, known in (await self._reports.of_all(holds)).items():
            voters = [] if known is None else known["voters"]
            superfluous = {each["node"] for each in voters} - set(self._cluster.nodes_of(group_id))
            if superfluous or not any(each["node"] == node_id and each["in_sync"] for each in voters):
                waiting.append(group_id)
        return {"done": not waiting, "waiting": waiting, "groups": holds}

    # --- remove ---------------------------------------------------------------------------------------------

    async def remove(self, node_id: int) -> Document:
        """Places a node's groups elsewhere; once none has a replica there, records the node as removed."""
        self._check_controller()
        image = self._cluster.image
        holds = self._groups_of(node_id)
        if holds:
            if len(self._placed_nodes()) <= MIN_NODES:
                raise RequestError(
                    ErrorCode.INVALID_REQUEST,
                    f"{len(self._placed_nodes())} nodes hold all groups, {node_id} is one: add another first",
                )
            await self._record(place_command(without_node(image.placement, self._placed_nodes(), node_id)))
        elif node_id not in image.nodes:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"there is no node {node_id}")
        waiting = []
        for group_id, known in (await self._reports.of_all(image.placement)).items():
            if known is None or known["changing"] or node_id in self._parts(group_id, known):
                waiting.append(group_id)
        if not waiting:
            try:
                await self._topics.record([remove_node_command(node_id)])
            except StorageError:  # this node led group 0: the client retries at the next controller
                waiting = [METADATA_GROUP]
        return {"done": not waiting, "waiting": waiting}

    @staticmethod
    def _parts(group_id: int, known: Document) -> set[int]:
        """The nodes that a group still needs. Every node that is not gone listens to group 0."""
        members = known["voters"] if group_id == METADATA_GROUP else known["voters"] + known["learners"]
        return {each["node"] for each in members}

    # --- transfer -------------------------------------------------------------------------------------------

    async def transfer(self, group_id: int, node_id: int) -> Document:
        """Makes a node the preferred leader of a group, and transfers the leadership to it."""
        self._check_controller()
        placed = self._cluster.image.placement.get(group_id)
        if placed is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"there is no log group {group_id}")
        if node_id not in placed:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                f"log group {group_id} has no part on node {node_id}, but on {_join_numbers(placed)}",
            )
        known = await self._reports.of(group_id)
        if known is None:
            raise RequestError(ErrorCode.LEADER_NOT_AVAILABLE, f"log group {group_id} has no leader now")
        if not any(each["node"] == node_id and each["in_sync"] for each in known["voters"]):
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"node {node_id} has not caught up with log group {group_id}"
            )
        if placed[0] != node_id:
            others = [each for each in placed if each != node_id]
            await self._record(place_command({group_id: (node_id, *others)}))
        if known["leader"] != node_id:
            try:
                await self._transfers.begin(group_id, node_id)
            except (PeerError, StorageError) as error:
                raise RequestError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, str(error)) from None
        return {"done": known["leader"] == node_id}

    # --- private --------------------------------------------------------------------------------------------

    def _groups_of(self, node_id: int) -> list[int]:
        placement = self._cluster.image.placement
        return [group_id for group_id, placed in sorted(placement.items()) if node_id in placed]

    def _placed_nodes(self) -> list[int]:
        """Every node that log groups are placed on."""
        return sorted({each for placed in self._cluster.image.placement.values() for each in placed})

    async def _record(self, command: dict[str, object]) -> None:
        try:
            await self._topics.record([command])
        except StorageError as error:
            raise RequestError(ErrorCode.NOT_CONTROLLER, f"it could not be recorded: {error}") from None


def _join_numbers(numbers: object) -> str:
    assert isinstance(numbers, list | tuple)
    return ", ".join(map(str, numbers))
