"""The cluster's status as one node knows it: nodes, log groups, and the progress of each group's members.

Owns: requests for the report of a group (`log_group_report.py`), which only its leader can give. Invariant:
what no leader confirms now is unknown, never guessed. Does not: change anything (`cluster_admin.py` does).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Final

from lockstep.broker.controller.damage_reports import DamageReports
from lockstep.broker.controller.log_group_report import Document, report
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.peers.controller_quorum import ControllerQuorum
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.requests.request_context import ClientContext
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.types import StorageError

REPORT_SECONDS: Final = 1.0
"""The timeout of a request to a group's leader: a status must also come from an unhealthy cluster."""


class GroupReports:
    """Reports of groups, wherever they are led. Args: peer_rpc: None for a node alone."""

    def __init__(self, cluster: MetadataCache, peer_rpc: PeerRpc | None) -> None:
        self._cluster = cluster
        self._peer_rpc = peer_rpc
        if peer_rpc is not None:
            peer_rpc.handlers[RequestKind.REPORT] = self._handle_request

    async def of(self, group_id: int) -> Document | None:
        """Returns a group's report by its leader; None where no leader responds."""
        if self._peer_rpc is None:
            group = self._cluster.groups.get(group_id)
            return report(group) if group is not None and group.is_leader else None
        body = json.dumps({"group": group_id}).encode()
        try:
            response = await self._peer_rpc.request_from_leader(
                group_id, RequestKind.REPORT, body, REPORT_SECONDS, REPORT_SECONDS
            )
        except (PeerError, StorageError):
            return None
        found: Document = json.loads(response)
        return found

    async def of_all(self, numbers: Iterable[int]) -> dict[int, Document | None]:
        """All of these at once."""
        ordered = sorted(numbers)
        found = await asyncio.gather(*(self.of(group_id) for group_id in ordered))
        return dict(zip(ordered, found, strict=True))

    async def _handle_request(self, node_id: int, body: bytes) -> bytes:
        group_id = int(json.loads(body)["group"])
        group = self._cluster.groups.get(group_id)
        if group is None or not group.has_lease:  # one that was cut off may think that it leads
            raise NotLeaderHere(f"group {group_id} is not led here")
        return json.dumps(report(group)).encode()


class ClusterStatus:
    """The whole cluster as one node knows it. Args: quorum: None for a cluster of one node."""

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        endpoints: NodeEndpoints,
        reports: GroupReports,
        damage_reports: DamageReports,
        quorum: ControllerQuorum | None,
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._endpoints = endpoints
        self._reports = reports
        self._damage_reports = damage_reports
        self._quorum = quorum

    async def document(self, client: ClientContext) -> Document:
        """Returns the status of the whole cluster; any node serves it, also without a controller."""
        image, nodes, here = self._cluster.image, self._nodes, self._nodes.node_id
        placement = image.placement or {group_id: (here,) for group_id in self._cluster.groups}
        reports = await self._reports.of_all(placement)
        damage, silent = await self._damage_reports.all_damage()
        groups = [
            _group(group_id, placed, reports[group_id], nodes)
            for group_id, placed in sorted(placement.items())
        ]
        known = {here, *image.nodes, *(node for placed in placement.values() for node in placed)}
        metadata, builds = reports.get(METADATA_GROUP), nodes.builds()
        disks_full, failed_writes = nodes.disks_full(), nodes.failed_writes()
        node_documents = [
            {
                **self._node(client, each, metadata),
                "disk_full": disks_full.get(each) if nodes.is_alive(each) else None,
                "write_failed": failed_writes.get(each) if nodes.is_alive(each) else None,
                "build": builds.get(each),
            }
            for each in sorted(known)
        ]
        in_order = bool(groups) and all(map(_is_healthy, groups))
        return {
            "cluster_id": self._cluster.cluster_id,
            "answered_by": here,
            "controller": nodes.live_leader_of(METADATA_GROUP),
            "healthy": in_order
            and not any(each["disk_full"] or each["write_failed"] for each in node_documents)
            and all(each["given_up"] for each in damage),
            "waits_for_majority": self._missing_majority(),
            "metadata_version": nodes.metadata_versions.document(),
            "nodes": node_documents,
            "groups": groups,
            "damage": damage,
            "damage_unknown": silent,
        }

    def _missing_majority(self) -> Document | None:
        """Returns the voters that are missing here for a majority of group 0; None where it has one."""
        reach = None if self._quorum is None else self._quorum.reach()
        if reach is None or reach.is_majority:
            return None
        return {
            "reached": reach.reached_count,
            "voters": list(reach.voters),
            "unreached": [{"node": each, "why": why} for each, why in reach.unreached.items()],
        }

    def _node(self, client: ClientContext, node_id: int, metadata: Document | None) -> Document:
        nodes = self._nodes
        entry, alive = nodes.entry_of(node_id), nodes.is_alive(node_id)
        if node_id == nodes.node_id and nodes.is_removed:
            entry = None  # as the controller reports; this node may never get the record
        listeners = (
            {} if entry is None else {name: _at(*address) for name, address in entry.listeners.items()}
        )
        rack = None if entry is None else entry.rack
        if node_id == nodes.node_id and not listeners:
            endpoint = self._endpoints.own(client)
            listeners, rack = {client.listener: _at(endpoint.host, endpoint.port)}, endpoint.rack
        return {
            "node": node_id,
            "alive": alive,
            "registered": entry is not None or not self._cluster.image.nodes,
            "listeners": listeners,
            "peer": None if entry is None else _at(*entry.peer),
            "rack": rack,
            "controller": nodes.live_leader_of(METADATA_GROUP) == node_id,
            "metadata": _part(node_id, metadata),
        }


def _group(group_id: int, placed: tuple[int, ...], known: Document | None, nodes: NodeRegistry) -> Document:
    leader, term = nodes.live_leader_of(group_id), nodes.leader_of(group_id)[1]
    unknown = {
        "leader": leader,
        "term": term,
        "commit_index": None,
        "last_index": None,
        "changing": None,
        "voters": None,
        "learners": None,
    }
    return {
        "group": group_id,
        "preferred_leader": placed[0] if placed else -1,
        "placed": list(placed),
        **(unknown if known is None else known),
    }


def _is_healthy(group: Document) -> bool:
    return group["leader"] >= 0 and bool(group["voters"]) and all(each["in_sync"] for each in group["voters"])


def _part(node_id: int, metadata: Document | None) -> str:
    """Voter, learner or none of group 0."""
    if metadata is None:
        return "unknown"
    for part in ("voters", "learners"):
        if any(each["node"] == node_id for each in metadata[part]):
            return part.removesuffix("s")
    return "none"


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
