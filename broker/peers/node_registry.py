"""The nodes of the cluster as this one sees them: which are alive, their endpoints, the groups they lead.

Nodes are recorded (`broker/metadata/metadata_image.py`); the groups they lead and their liveness are soft
state, which each node sends all others periodically and on each change. Invariants: of two claims to lead a
group the one of the higher term counts; of one term, what this node's own group knows counts more than other
nodes' reports. Does not: send messages (`peer_rpc.py` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.metadata.metadata_image import MetadataImage, NodeEntry
from lockstep.broker.peers.metadata_versions import MetadataVersions
from lockstep.broker.peers.node_status import Status
from lockstep.broker.requests.endpoint import Endpoint
from lockstep.build_info import build
from lockstep.storage.missing_records import has_damaged_records, may_miss_records

if TYPE_CHECKING:
    from lockstep.storage.log_group import LogGroup

ALIVE_SECONDS: Final = 3.0
"""A node that has sent no status for this time counts as dead."""
RECONNECT_SECONDS: Final = 0.5
"""The time that a node has to reconnect before it counts as dead, once its connection is lost."""
LISTED_SECONDS: Final = 9.0
"""Metadata lists a silent node for this time, as in Kafka (broker.session.timeout.ms): librdkafka
may wait for ever for a group's coordinator that metadata leaves out for a moment (decision 20)."""
REPAIR_SECONDS: Final = 5.0
"""A repair of a damaged segment takes about a second, some more where it is sealed first."""
NOBODY: Final = -1

BUILD: Final = build()
"""Read from files here, once, and not by a request on the event loop."""


class NodeRegistry:
    """See the module.

    Args:
        groups: the log groups of this node.
        seconds: a monotonic clock.
    """

    def __init__(
        self,
        node_id: int,
        image: MetadataImage,
        groups: Mapping[int, LogGroup],
        monotonic: Callable[[], float],
    ) -> None:
        self.node_id = node_id
        self._image = image
        self._monotonic = monotonic
        self.groups = groups
        self.metadata_versions = MetadataVersions(node_id, image)
        self.statuses: dict[int, Status] = {}
        """The last status of each other node."""
        self.on_notification: dict[Callable[[], None], None] = {}
        """Called after each status of another node."""
        self._last_contact: dict[int, float] = {}
        self._last_status_time: dict[int, float] = {}
        self._began = monotonic()
        self._has_replayed_metadata = False
        self.is_removed = False
        """Whether a controller has reported that this node was removed from the cluster: then clients do not
        see it."""
        self._damaged_since: dict[int, float | None] = {}
        """Log group -> the time from which records of it are damaged here; None: they are not."""
        self._leaders: dict[int, tuple[int, int]] = {}
        """Log group -> (term, node), by other nodes' reports."""
        self._out_of_sync: dict[int, tuple[int, tuple[int, ...]]] = {}
        """Log group -> (term, nodes), by the last report of its leader of that term, this node included."""

    # --- who is there ---------------------------------------------------------------------------------------

    def on_status(self, node_id: int, status: Status) -> None:
        """Handles another node's status."""
        self.statuses[node_id] = status
        self._last_contact[node_id] = self._last_status_time[node_id] = self._monotonic()
        for group, term in status.leads.items():
            if term >= self._leaders.get(group, (-1, 0))[0]:
                self._leaders[group] = term, node_id
            self.set_out_of_sync(group, term, status.out_of_sync.get(group, ()))
        for group, (term, leader) in list(self._leaders.items()):
            if leader == node_id and status.leads.get(group) != term:
                self._leaders[group] = term, NOBODY
        for listener in tuple(self.on_notification):
            listener()

    def on_connection_lost(self, node_id: int) -> None:
        """Shortens the time until a node counts as dead: the connection to it is lost."""
        if node_id in self._last_contact:
            latest = self._monotonic() - ALIVE_SECONDS + RECONNECT_SECONDS
            self._last_contact[node_id] = min(self._last_contact[node_id], latest)

    def on_process_stopped(self, node_id: int) -> None:
        """Handles the end of a node's process."""
        self._last_contact.pop(node_id, None)

    def is_alive(self, node_id: int) -> bool:
        """Returns whether a status of the node came lately; this node is alive until it was removed."""
        if node_id == self.node_id:
            return not self.is_removed
        last_contact = self._last_contact.get(node_id)
        return last_contact is not None and self._monotonic() - last_contact < ALIVE_SECONDS

    def alive(self) -> frozenset[int]:
        """The recorded nodes that live, this one included."""
        return frozenset(each for each in {*self._image.nodes, self.node_id} if self.is_alive(each))

    def listed(self) -> frozenset[int]:
        """The recorded nodes that clients see: those that live, or did a moment ago. A node that has just
        started has no status yet and counts all of them."""
        since = self._monotonic() - LISTED_SECONDS
        times = self._last_status_time
        lately = {each for each in self._image.nodes if times.get(each, self._began) > since}
        return self.alive() | lately

    def client_view(self) -> tuple[object, ...]:
        """Equal for two moments at which clients see the same nodes and leaders."""
        hosted = tuple(
            (group.leader_id, group.term, group.raft.configuration.voters) for group in self.groups.values()
        )
        others = tuple(self._leaders.values())
        return hosted, self.alive(), self.listed(), others, tuple(self._out_of_sync.values())

    def registered_ids(self) -> list[int]:
        """Every node of the cluster, alive or not; only this one before a first start is through."""
        return sorted(self._image.nodes) or [self.node_id]

    def endpoints(self, listener: str, here: Endpoint) -> list[Endpoint]:
        """Returns the nodes' endpoints for clients of this listener; `here` is this node's."""
        found = [] if self.is_removed else [here]
        for node_id in self.listed():
            if node_id != self.node_id:
                endpoint = self.endpoint(node_id, listener, here)
                if endpoint is not None:
                    found.append(endpoint)
        return sorted(found, key=lambda each: each.node_id)

    def endpoint(self, node_id: int, listener: str, here: Endpoint) -> Endpoint | None:
        """Returns a node's endpoint for clients of this listener; None where it has no such listener."""
        if node_id == self.node_id:
            return None if self.is_removed else here
        node = self._image.nodes.get(node_id)
        address = node.listeners.get(listener) if node is not None else None
        if node is None or address is None:
            return None
        return Endpoint(node_id, address[0], address[1], node.rack)

    @property
    def has_replayed_metadata(self) -> bool:
        """True once this node has followed the metadata at least as far as at its last stop."""
        if not self._has_replayed_metadata:
            group = self.groups.get(METADATA_GROUP)
            if group is not None and self._image.cluster_id is not None:
                self._has_replayed_metadata = group.applied_index >= group.recovered_index
        return self._has_replayed_metadata

    def is_removed_for_peers(self, applied: int) -> bool:
        """Returns whether a node with newer metadata than this one has no record of this one."""
        return any(
            self.node_id not in status.registered and status.registered and status.applied > applied
            for node_id, status in self.statuses.items()
            if self.is_alive(node_id) and status.cluster_id == self._image.cluster_id
        )

    @property
    def is_registered_for_peers(self) -> bool:
        """Returns whether a live node reports that this one is recorded."""
        statuses = self.statuses.items()
        return any(self.node_id in status.registered and self.is_alive(each) for each, status in statuses)

    # --- who has room ---------------------------------------------------------------------------------------

    @property
    def disk_full(self) -> bool:
        """True where the disk of this node has no room for the writes of one of its groups."""
        return any(group.log.disk_full or group.installer.is_out_of_space for group in self.groups.values())

    def disks_full(self) -> dict[int, bool]:
        """Node -> whether its disk is full, of the nodes that report it."""
        return self._by_node(lambda status: status.disk_full, self.disk_full)

    @property
    def write_failed(self) -> bool:
        """True where a file of one of its groups cannot be written though the disk of this node is not
        full."""
        return any(group.log.write_error for group in self.groups.values())

    def failed_writes(self) -> dict[int, bool]:
        """Node -> whether it cannot write its log though its disk is not full, of the nodes that report
        it."""
        return self._by_node(lambda status: status.write_failed, self.write_failed)

    def unwritable(self) -> dict[int, bool]:
        """Node -> whether its disk is full or cannot be written, of the nodes that report it: it should not
        lead."""
        failed = self.failed_writes()
        return {node: full or failed.get(node, False) for node, full in self.disks_full().items()}

    def _by_node(self, of: Callable[[Status], bool | None], own: bool) -> dict[int, bool]:
        """A part of each node's status, of the nodes that report it."""
        reported = {node: of(status) for node, status in self.statuses.items()}
        return {node: value for node, value in {**reported, self.node_id: own}.items() if value is not None}

    # --- who has all records --------------------------------------------------------------------------------

    def incomplete_local_groups(self) -> tuple[int, ...]:
        """The log groups of which records are missing here that are not skipped, or are damaged and not
        repaired soon."""
        return tuple(sorted(each for each in self.groups if self._misses_records(self.node_id, each)))

    def incomplete(self, group: int) -> frozenset[int]:
        """The nodes that miss records of a log group: none of them should lead it or serve its consumers."""
        return frozenset(node for node in (*self.statuses, self.node_id) if self._misses_records(node, group))

    def may_serve(self, node_id: int, group: int) -> bool:
        """Returns whether a consumer may be sent to a node for a log group: it is alive, and has no missing
        records."""
        return self.is_alive(node_id) and not self._misses_records(node_id, group)

    def _misses_records(self, node_id: int, group: int) -> bool:
        if node_id != self.node_id:
            status = self.statuses.get(node_id)
            return status is not None and group in status.incomplete
        own = self.groups.get(group)
        return own is not None and (may_miss_records(own.log, own.control) or self._is_damaged(group, own))

    def _is_damaged(self, group_id: int, group: LogGroup) -> bool:
        """Returns whether records of a group are damaged here since this node opened it, or for longer than a
        repair takes: a single repair while running is no reason for another leader."""
        if not has_damaged_records(group.log, group.control):
            self._damaged_since[group_id] = None
            return False
        now = self._monotonic()
        since = self._damaged_since.setdefault(group_id, now - REPAIR_SECONDS)
        if since is None:
            self._damaged_since[group_id] = since = now
        return now - since >= REPAIR_SECONDS

    # --- what runs ---------------------------------------------------------------------------------------

    def builds(self) -> dict[int, str]:
        """Node -> its version and commit, of the nodes that report them."""
        reported = {node: status.build for node, status in self.statuses.items() if status.build is not None}
        return {**reported, self.node_id: BUILD}

    # --- who leads ------------------------------------------------------------------------------------------

    def leader_of(self, group: int) -> tuple[int, int]:
        """Returns the leader of a group, (node id or -1, term)."""
        term, leader = self._leaders.get(group, (-1, NOBODY))
        here = self.groups.get(group)
        if here is not None and here.term >= term:
            silent = here.leader_id == NOBODY and here.term == term and leader >= 0 and self.is_alive(leader)
            return (leader if silent else here.leader_id), here.term  # it may be no member
        return leader, max(term, 0)

    def live_leader_of(self, group: int) -> int:
        """Returns the live leader of a group; -1 for none."""
        leader, _ = self.leader_of(group)
        return leader if leader >= 0 and self.is_alive(leader) else NOBODY

    def has_followed(self, node_id: int, metadata_index: int) -> bool:
        """Returns whether a node is known to have applied group 0 up to this index."""
        if node_id == self.node_id:
            return True
        status = self.statuses.get(node_id)
        return status is not None and status.applied >= metadata_index

    def set_out_of_sync(self, group: int, term: int, nodes: tuple[int, ...]) -> None:
        """Records the replicas that are out of sync, by the leader of a group in this term."""
        if term >= self._out_of_sync.get(group, (-1, ()))[0]:
            self._out_of_sync[group] = term, nodes

    def out_of_sync(self, group: int) -> tuple[int, ...]:
        """The nodes that are out of sync in a group (`in_sync_replicas.py`), as its leader reported last.
        It counts until the next leader reports: without a leader no replica catches up."""
        _, found = self._out_of_sync.get(group, (-1, ()))
        return found

    def member_of(self, group: int) -> dict[int, int]:
        """The member id that each node reports for a group."""
        found = {
            node: status.members[group] for node, status in self.statuses.items() if group in status.members
        }
        here = self.groups.get(group)
        if here is not None:
            found[self.node_id] = here.raft.member_id
        return found

    def entry_of(self, node_id: int) -> NodeEntry | None:
        """A node as it is recorded."""
        return self._image.nodes.get(node_id)
