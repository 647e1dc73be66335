"""A node in a cluster of several: its role at the first start, registration, the log groups placed on it.

Owns: the first start (founder or newcomer), this node's status, registration with the controller, a
reconciler for each group it is a member of, and opening and closing groups as they are placed. Invariants:
Raft sends nothing before the node's role is known and recorded; what is placed here is opened, what is
placed elsewhere is closed only when this node is no member of it any more. Does not: send messages
(`broker/peers/peer_rpc.py`), choose members (`broker/membership/`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from lockstep.broker.controller.cluster_status import GroupReports
from lockstep.broker.controller.reassignment import note_arrivals
from lockstep.broker.controller.topics import Topics
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.membership.group_view import DesiredMembers
from lockstep.broker.membership.reconciler import Reconciler, TransferRejected
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP, MetadataCache
from lockstep.broker.metadata.metadata_image import (
    Command,
    NodeEntry,
    node_command,
    parse_node,
    place_command,
)
from lockstep.broker.node.data_directory import DataDirectory
from lockstep.broker.node.first_start import ClusterPart, explain, nodes_of_unknown_cluster, part_of
from lockstep.broker.node.local_groups import LocalGroups
from lockstep.broker.node.missing_records import MissingRecordsReview
from lockstep.broker.peers.controller_quorum import ControllerQuorum, founding_placement
from lockstep.broker.peers.in_sync_replicas import InSyncReplicas
from lockstep.broker.peers.metadata_versions import TOO_OLD
from lockstep.broker.peers.node_registry import BUILD, NodeRegistry
from lockstep.broker.peers.node_status import Status
from lockstep.broker.peers.peer_rpc import NotLeaderHere, PeerRpc, RequestKind
from lockstep.broker.peers.quorum_watch import QuorumWatch
from lockstep.broker.settings.config import Settings
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.storage.group_options import member_of
from lockstep.storage.log_group import LogGroup
from lockstep.storage.peers.limits import PeerError
from lockstep.storage.raft.messages import Message
from lockstep.storage.threads import in_thread
from lockstep.storage.types import NotLeader, StorageError

log = logging.getLogger("lockstep.cluster")

PART_POLL_INTERVAL_SECONDS: Final = 0.05
"""Interval of the checks of the other nodes' handshakes, while this node's role is not known."""
UNDECIDED_SECONDS: Final = 10.0
"""The time after which a node that waits for its part logs which nodes it waits for."""
WATCH_SECONDS: Final = 1.0
"""Interval of the checks which nodes are connected."""
FOLLOW_SECONDS: Final = 1.0
"""Interval of the checks of the recorded placement while nothing changes: a group may wait to be closed."""
LEADER_TIMEOUT_SECONDS: Final = 5.0
"""The timeout of a search for a leader, to register at or to request a transfer from."""
REMOVED: Final = "was removed from the cluster"
"""The text on the wire by which the controller rejects a registration of a removed node."""


class ClusterNode:
    """See the module.

    Args:
        entry: this node, as it is to be registered.
        after_commit: called once per commit of any group.
    """

    def __init__(
        self,
        settings: Settings,
        directory: DataDirectory,
        local_groups: LocalGroups,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        peer_rpc: PeerRpc,
        topics: Topics,
        consumer_groups: GroupCoordinators,
        transactions: TransactionCoordinators,
        reports: GroupReports,
        quorum: ControllerQuorum,
        entry: NodeEntry,
        after_commit: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._local_groups = local_groups
        self._cluster = cluster
        self._nodes = nodes
        self._peer_rpc = peer_rpc
        self._topics = topics
        self._consumer_groups = consumer_groups
        self._transactions = transactions
        self._reports = reports
        self._quorum = quorum
        self._entry = entry
        self._after_commit = after_commit
        self._loop = asyncio.get_running_loop()
        self._reconcilers: dict[int, Reconciler] = {}
        self._wake = asyncio.Event()
        self._last_warning = ""
        """The text of the last failure, which is logged once."""
        self._registered: set[int] = set()
        """The nodes that were recorded at the last check."""
        self._in_sync_replicas = InSyncReplicas()
        self._placement = founding_placement(settings)
        self._missing_records = MissingRecordsReview(cluster)
        self._is_open = False
        """Whether the groups of this node are open: before that it cannot know what its log has."""
        self._undecided_logged = False
        self._groups_compared = False
        """Whether lockstep.data.groups was held against what is recorded."""
        self.removed = asyncio.Event()
        """Set once a controller reports that this node was removed."""
        self.excluded = asyncio.Event()
        """Set once this node was removed, or is too old for its cluster: the process may end."""
        self.too_old = ""
        """Why it is too old."""
        self.was_part = False
        """Whether others have counted this node in since it started."""
        peer_rpc.handlers[RequestKind.REGISTER] = self._handle_register
        peer_rpc.handlers[RequestKind.TRANSFER] = self._handle_transfer
        peer_rpc.serve(self)
        cluster.on_nodes.append(self._wake.set)

    # --- lifecycle ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Opens the groups that this node is a member of already. Raises what `LocalGroups.open` does."""
        peers = self._settings.peers()
        own = peers[self._settings.node_id]
        self._peer_rpc.address = own.host, own.port
        self._peer_rpc.direct = self._settings.peer_listener() == own
        for node_id, address in peers.items():
            self._peer_rpc.add_node(node_id, address.host, address.port)
        if not self._directory.part:
            self._directory.remove_groups()
            self._is_open = True
            return
        for group_id in self._directory.groups():  # the status of this node is sent to the others meanwhile
            self._serve(await self._local_groups.open(group_id))
        self._is_open = True
        self._peer_rpc.open = True

    async def run(self) -> None:
        """Find this node's part if it has none; then follow the cluster, until cancelled."""
        while not self._directory.part:
            try:
                await self._take_part()
            except Exception as error:  # a full disk, for one: there may be room later
                self._warn(f"taking part in the cluster has to wait: {error}", error)
                await asyncio.sleep(FOLLOW_SECONDS)
        while True:
            self._wake.clear()
            try:
                await self._follow()
            except Exception as error:  # whatever it is, the node continues following
                self._warn(str(error), error)
            else:
                self._last_warning = ""
            with contextlib.suppress(TimeoutError):  # wait_for may swallow a cancellation that meets the wake
                async with asyncio.timeout(FOLLOW_SECONDS):
                    await self._wake.wait()

    async def watch(self) -> None:
        """Logs which nodes this one does not reach while it waits for a majority, until cancelled."""
        watch = QuorumWatch()
        while True:
            if not self.excluded.is_set():
                watch.check(self._quorum.reach(), self._loop.time())
            await asyncio.sleep(WATCH_SECONDS)

    def _warn(self, text: str, error: Exception) -> None:
        """Logs a failure that repeats once."""
        if text != self._last_warning:
            expected = isinstance(error, StorageError | OSError | PeerError)
            log.warning("%s", text, exc_info=None if expected else error)
        self._last_warning = text

    def stop(self) -> None:
        """Stops all changes that this node makes."""
        for reconciler in self._reconcilers.values():
            reconciler.stop()

    async def _take_part(self) -> None:
        began = self._loop.time()
        founders, would_make = self.founders(), len(self._placement) - 1
        part = None
        while part is None:
            waited = self._loop.time() - began
            part = part_of(self._settings.node_id, founders, self._nodes.statuses, waited, would_make)
            if part is None:
                self._log_undecided(waited)
                await asyncio.sleep(PART_POLL_INTERVAL_SECONDS)
        opened: list[LogGroup] = []
        try:
            if part is ClusterPart.FOUNDER:
                for group_id, nodes in self._placement.items():
                    if self._settings.node_id in nodes:
                        opened.append(await self._local_groups.open(group_id, nodes))
            if all(group.group_id != METADATA_GROUP for group in opened):
                opened.append(await self._local_groups.open(METADATA_GROUP))
            self._directory.record_part(part.value)  # no client is served here before
        except BaseException:  # a stop of the node, too
            await self._local_groups.undo_open(opened)
            raise
        log.info("%s", explain(self._settings.node_id, part))
        self._peer_rpc.open = True
        for group in opened:
            self._serve(group)
            nodes = self._placement[group.group_id]
            if part is ClusterPart.FOUNDER and self._settings.node_id in nodes:
                # The preferred node comes first; a little later, when the others are there.
                group.campaign_after(nodes.index(self._settings.node_id) + 2)
        self._peer_rpc.notify_status_soon()

    def _log_undecided(self, waited_seconds: float) -> None:
        """Logs once which nodes may know of this one, but have not confirmed it yet."""
        others = nodes_of_unknown_cluster(self._nodes.statuses)
        if others and waited_seconds >= UNDECIDED_SECONDS and not self._undecided_logged:
            self._undecided_logged = True
            log.warning(
                "node %d has no data and waits: %s %s to a cluster that no node here knows yet; it takes "
                "part once more of the cluster's nodes run",
                self._settings.node_id,
                f"node{'s'[: len(others) != 1]} {', '.join(map(str, others))}",
                "belong" if len(others) != 1 else "belongs",
            )

    def _serve(self, group: LogGroup) -> None:
        group_id = group.group_id
        group.after_commit = self._after_commit if group_id != METADATA_GROUP else self._metadata_committed
        group.on_leading.append(partial(self._on_leading, group_id))
        self._local_groups.serve(group, self._cluster, self._consumer_groups, self._transactions)
        reconciler = Reconciler(
            group,
            partial(self._desired_members, group_id),
            self._loop,
            balance=lambda: self._cluster.settings.auto_leader_rebalance_enable,
        )
        self._reconcilers[group_id] = reconciler
        reconciler.start()

    def _metadata_committed(self) -> None:
        """Other nodes name this one as the leader of a new partition once it reports that it serves it."""
        self._after_commit()
        self._peer_rpc.notify_status_soon()

    def _on_leading(self, group_id: int, leads: bool) -> None:
        term = self._cluster.groups[group_id].term if group_id in self._cluster.groups else 0
        log.info(
            "log group %d: this node %s in term %d", group_id, "leads" if leads else "stopped leading", term
        )
        if group_id == METADATA_GROUP:
            if leads:
                self._topics.become_controller(self._founding_commands())
            else:
                self._topics.resign()
        self._cluster.on_leader_change(group_id)
        self._peer_rpc.notify_status_soon()

    def _founding_commands(self) -> Sequence[Command]:
        return [place_command(self._placement)]

    def _desired_members(self, group_id: int) -> DesiredMembers:
        image = self._cluster.image
        nodes = image.placement.get(group_id, ())
        learners: tuple[int, ...] = ()
        if group_id == METADATA_GROUP:
            learners = tuple(each for each in sorted(image.nodes) if each not in nodes)
        return DesiredMembers(
            nodes,
            learners,
            self._nodes.member_of(group_id),
            self._nodes.alive(),
            self._nodes.unwritable(),
            self._nodes.incomplete(group_id),
        )

    # --- the status of this node for others ----------------------------------------------------------------

    def status(self) -> Status:
        """The present status of this node."""
        groups, image, joined = self._cluster.groups, self._cluster.image, bool(self._directory.part)
        metadata = groups.get(METADATA_GROUP)
        is_empty = self._is_open and (metadata is None or metadata.raft.last_index == 0)
        return Status(
            joined,
            joined and not is_empty,
            image.cluster_id,
            tuple(image.nodes),
            image.placement.get(METADATA_GROUP, ()),
            {group_id: group.term for group_id, group in groups.items() if group.is_leader},
            {group_id: group.raft.member_id for group_id, group in groups.items()},
            metadata.applied_index if metadata is not None else 0,
            max(len(image.placement) - 1, 0),
            self._nodes.disk_full,
            self._update_in_sync_replicas(),
            BUILD,
            self._nodes.write_failed,
            self._nodes.incomplete_local_groups(),
            is_empty and self._is_founder(metadata),
            joined
            and (
                not self._is_open
                or (metadata is not None and metadata.raft.last_index > metadata.applied_index)
            ),
        )

    def _is_founder(self, metadata: LogGroup | None) -> bool:
        """Returns whether this node votes in group 0 from its beginning, and has lost nothing since."""
        if metadata is None or self._directory.part != ClusterPart.FOUNDER.value:
            return False
        has_followed = self._directory.is_registered or self._directory.cluster_id is not None
        return not has_followed and metadata.raft.member_id == member_of(self._settings.node_id)

    def _update_in_sync_replicas(self) -> dict[int, tuple[int, ...]]:
        """Updates the in-sync replicas of groups led here; returns the out-of-sync nodes by log group."""
        placement, nodes, now = self._cluster.image.placement, self._nodes, self._loop.time()
        found: dict[int, tuple[int, ...]] = {}
        for group_id, group in self._cluster.groups.items():
            if group.is_leader:
                replicas, previous = placement.get(group_id, ()), nodes.out_of_sync(group_id)
                found[group_id] = self._in_sync_replicas.update(
                    group_id, group.raft, replicas, nodes.is_alive, previous, now
                )
                nodes.set_out_of_sync(group_id, group.term, found[group_id])
        return found

    def cluster_id(self) -> str | None:
        """Returns the recorded id; until this node has followed so far, the id at its last stop."""
        return self._cluster.cluster_id or self._directory.cluster_id

    def founders(self) -> list[int]:
        """The nodes in this one's settings at its start, in order."""
        return sorted(self._settings.peers())

    def data_groups(self) -> int:
        """Returns the recorded number, or until then the setting here."""
        return self._cluster.data_groups

    def data_replicas(self) -> int:
        """Returns the recorded number, or until then the setting here."""
        return self._cluster.data_replicas

    def receive(self, group_id: int, message: Message) -> None:
        """Raft's message of a peer."""
        group = self._cluster.groups.get(group_id)
        if group is not None:
            group.receive(message)

    def on_link_change(self, node_id: int, up: bool) -> None:
        """The connection to a node came up or went down."""
        if not up:
            for group in self._cluster.groups.values():
                group.report_unreachable(node_id)

    def on_process_stopped(self, node_id: int) -> None:
        """The process of a node has ended: no one waits for the groups it led, and its replicas are out of
        sync from now on, however soon it is back."""
        for group in self._cluster.groups.values():
            group.on_node_stopped(node_id)
        self._peer_rpc.notify_status_soon()

    def on_too_old(self, text: str) -> None:
        """A node with the recorded metadata version rejects this one: nothing can be done here."""
        self.too_old = self.too_old or text
        self.excluded.set()

    # --- following ------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        image = self._cluster.image
        self._missing_records.update()
        if image.cluster_id not in (None, self._directory.cluster_id):
            await in_thread(partial(self._directory.record_cluster, image.cluster_id))
        if image.recorded_version > self._directory.metadata_version:
            with contextlib.suppress(OSError):  # a full disk keeps nothing else from being done
                await in_thread(partial(self._directory.record_metadata_version, image.recorded_version))
        for node in image.nodes.values():
            self._peer_rpc.add_node(node.node_id, *node.peer)
        for gone in self._registered.difference(image.nodes, self._settings.peers()):
            self._peer_rpc.forget(gone)
        self._registered = set(image.nodes)
        self._compare_data_groups()
        for reconciler in self._reconcilers.values():
            reconciler.reconcile()  # the desired members may have changed; a single member's has no timer
        await self._delete_former_groups()  # first: it makes room for others
        problem = await self._open_groups()
        await self._register()
        if self._topics.leads and image.moving:
            await note_arrivals(self._cluster, self._nodes, self._topics, self._reports)
        if problem is not None:
            raise problem

    def _compare_data_groups(self) -> None:
        """Logs once, as soon as it is known, that this node's settings have another number of log groups."""
        recorded, own = len(self._cluster.image.placement) - 1, self._settings.lockstep_data_groups
        if self._groups_compared or recorded <= 0:
            return
        self._groups_compared = True
        if own not in (None, recorded):
            log.warning(
                "the cluster has %d log group%s; lockstep.data.groups=%d of this node has no effect",
                recorded,
                "" if recorded == 1 else "s",
                own,
            )

    async def _delete_former_groups(self) -> None:
        """Deletes groups that were placed on other nodes, once this node is no member of them."""
        leaving = [group for group in self._cluster.groups.values() if self._is_leaving(group)]
        are_out = await asyncio.gather(*map(self._is_removed_from, leaving))
        for group, is_out in zip(leaving, are_out, strict=True):
            # Deleting those before may have taken seconds: this one may have been placed here again since,
            # and its leader may rest on it. Between this look and the end of the group nothing is waited for.
            if is_out and await self._is_removed_from(group) and self._is_leaving(group):
                self._reconcilers.pop(group.group_id).stop()
                await self._local_groups.remove(
                    group.group_id, self._cluster, self._consumer_groups, self._transactions
                )

    def _is_leaving(self, group: LogGroup) -> bool:
        """Returns whether a group is placed on other nodes, by this node's metadata, and not led here."""
        group_id, here = group.group_id, self._settings.node_id
        placed = self._cluster.image.placement.get(group_id, (here,))
        return group_id != METADATA_GROUP and here not in placed and not group.is_leader

    async def _open_groups(self) -> Exception | None:
        """Opens groups that were placed here; returns the error of the first that failed, which delays no
        other."""
        problem: Exception | None = None
        for group_id, nodes in list(self._cluster.image.placement.items()):
            if self._settings.node_id in nodes and group_id not in self._cluster.groups:
                try:
                    self._serve(await self._local_groups.open(group_id))
                except (StorageError, OSError) as error:
                    problem = problem or error
                self._peer_rpc.notify_status_soon()
        return problem

    async def _is_removed_from(self, group: LogGroup) -> bool:
        """Returns whether this node is no member by the leader's report: a removed node may not have the
        record."""
        known = await self._reports.of(group.group_id)
        if known is None or known["changing"]:
            return False
        return all(each["member"] != group.raft.member_id for each in known["voters"] + known["learners"])

    async def _register(self) -> None:
        entry, metadata = self._entry, self._cluster.groups.get(METADATA_GROUP)
        missed = metadata is not None and self._nodes.is_removed_for_peers(metadata.applied_index)
        if self._cluster.image.nodes.get(entry.node_id) == entry and not missed:
            self.was_part = self.was_part or self._nodes.is_registered_for_peers
            if not self._directory.is_registered:
                await in_thread(self._directory.record_registered)
            return
        fields = {**node_command(entry), "first": not self._directory.is_registered}
        try:
            await self._peer_rpc.request_from_leader(
                METADATA_GROUP, RequestKind.REGISTER, json.dumps(fields).encode(), LEADER_TIMEOUT_SECONDS
            )
        except NotLeader:
            log.debug("no controller to register with yet")
        except PeerError as error:
            if TOO_OLD in str(error):
                self.on_too_old(str(error))
            elif REMOVED in str(error):
                await self._end()
            else:
                raise

    async def _end(self) -> None:
        """By the controller's word this node was removed: clients continue where the others are, and there is
        no way back with this directory."""
        if self.removed.is_set():
            return
        self._nodes.is_removed = True
        self._cluster.on_change()
        log.error(
            "node %d %s and serves no clients any more; with an empty data directory it can come back",
            self._settings.node_id,
            REMOVED,
        )
        self.removed.set()
        self.excluded.set()
        await in_thread(self._directory.record_removal)

    # --- requests to the controller -------------------------------------------------------------------------

    async def _handle_register(self, node_id: int, body: bytes) -> bytes:
        leads = self._topics.leads and self._cluster.groups[METADATA_GROUP].has_lease
        if not leads or self._cluster.cluster_id is None:
            raise NotLeaderHere("not the controller")
        try:
            fields = json.loads(body)
            entry, first = parse_node(fields), bool(fields.get("first"))
        except (ValueError, RecursionError) as error:
            raise PeerError(f"a malformed registration: {error}") from None
        if entry.node_id != node_id:
            raise PeerError(f"node {node_id} cannot register node {entry.node_id}")
        if not first and node_id not in self._cluster.image.nodes:
            raise PeerError(f"node {node_id} {REMOVED}; with an empty data directory it can come back")
        await self._topics.version_control.register(entry)
        return b""

    async def _handle_transfer(self, node_id: int, body: bytes) -> bytes:
        """Transfers the leadership of a group that is led here to a node."""
        fields = json.loads(body)
        group_id = int(fields["group"])
        group = self._cluster.groups.get(group_id)
        if group is None or not group.is_leader:
            raise NotLeaderHere(f"group {group_id} is not led here")
        try:
            self._reconcilers[group_id].transfer_to(int(fields["to"]))
        except TransferRejected as error:
            raise PeerError(str(error)) from None
        return b""
