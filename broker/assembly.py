"""Constructs the parts of one broker and connects them, in the order of their dependencies. Opens nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from broker.cluster.controller import Controller
from broker.cluster.group_commands import GroupCommands
from broker.cluster.node import ClusterNode
from broker.cluster.nodes import Nodes
from broker.cluster.peer_rpc import PeerRpc
from broker.cluster_image import Address, ClusterImage, NodeEntry
from broker.compaction import Compaction
from broker.config_changes import ConfigChanges
from broker.connections.connections import Connections
from broker.context import Services
from broker.data_directory import DataDirectory
from broker.fetch_purgatory import FetchPurgatory
from broker.fetch_session import FetchSessions
from broker.groups.expiration import Expiration
from broker.groups.groups import Groups
from broker.local_groups import LocalGroups
from broker.metadata import Cluster
from broker.producer_ids import ProducerIds
from broker.retention import Retention
from broker.router import Router
from broker.scrub import Scrubber
from broker.settings.config import Settings
from broker.staging.expiration import StagedExpiration
from broker.staging.stage_commit import StagedEnds
from broker.topics import Topics
from broker.transactions.expiration import TransactionExpiration
from broker.transactions.markers import Markers
from broker.transactions.transactions import Transactions
from broker.transactions.verification import Verification
from broker.transactions.verification_queue import VerificationQueue


@dataclass(frozen=True)
class Parts:
    """The parts of a broker; `peering` and `node` are None for a single node."""

    cluster: Cluster
    local_groups: LocalGroups
    topics: Topics
    consumer_groups: Groups
    expiration: Expiration
    transactions: Transactions
    transaction_expiration: TransactionExpiration
    staged_expiration: StagedExpiration
    retention: Retention
    compaction: Compaction
    scrubber: Scrubber
    services: Services
    connections: Connections
    peering: PeerRpc | None
    node: ClusterNode | None


def assemble(
    settings: Settings,
    directory: DataDirectory,
    advertised: dict[str, Address],
    clock_ms: Callable[[], int],
    on_fatal: Callable[[BaseException], None],
) -> Parts:
    """The parts of the broker of this directory, on the running loop.

    Args: advertised: the advertised host ("" for the address the client used) and port, by listener name.
    """
    loop = asyncio.get_running_loop()
    image = ClusterImage()
    nodes = Nodes(settings.node_id, image, time.monotonic)
    fetch_purgatory = FetchPurgatory(loop)
    cluster = Cluster(settings, image, fetch_purgatory, nodes.leader_of, time.monotonic)
    nodes.groups = cluster.groups
    peering = PeerRpc(nodes, loop) if settings.peers() else None
    sender = None if peering is None else lambda number: partial(peering.send, number)
    local_groups = LocalGroups(settings, directory, image, clock_ms, on_fatal, sender)
    cluster.on_settings.append(local_groups.apply_settings)
    topics = Topics(cluster, GroupCommands(cluster, peering))
    controller = Controller(cluster, topics, peering)
    consumer_groups = Groups(cluster, controller, clock_ms, loop)
    expiration = Expiration(consumer_groups, cluster)
    topics.commands.forget_here = expiration.forget
    producer_ids = ProducerIds(topics.record, lambda: topics.leads, image, peering)
    markers = Markers(cluster, local_groups.appenders, peering, loop)
    transactions = Transactions(
        cluster, controller, local_groups.appenders, markers, producer_ids, clock_ms, loop
    )
    services = Services(
        loop, cluster, nodes, controller, topics, ConfigChanges(cluster, nodes, topics),
        local_groups.appenders, producer_ids, consumer_groups, transactions, _fetch_sessions(settings),
        fetch_purgatory, clock_ms,
    )  # fmt: skip
    services.markers = markers
    services.verification = Verification(transactions, peering)
    services.verification_queue = VerificationQueue(
        cluster, local_groups.appenders, services.verification, loop, services.time_slicer
    )
    services.staged_ends = StagedEnds(cluster, local_groups.appenders)
    services.advertised = advertised
    controller.serve(services, router := Router(services))
    connections = Connections(services, router, settings, loop)
    if peering is not None:
        services.node = ClusterNode(
            settings, directory, local_groups, cluster, nodes, peering, topics, consumer_groups, transactions,
            _entry(settings, advertised), connections.send_now,
        )  # fmt: skip
        peering.serve(services.node)
    retention = Retention(cluster, clock_ms)
    return Parts(
        cluster, local_groups, topics, consumer_groups, expiration, transactions,
        TransactionExpiration(transactions, cluster),
        StagedExpiration(services.staged_ends, cluster, clock_ms), retention, Compaction(cluster, clock_ms),
        Scrubber(cluster), services, connections, peering, services.node,
    )  # fmt: skip


def _fetch_sessions(settings: Settings) -> FetchSessions:
    return FetchSessions(
        settings.max_incremental_fetch_session_cache_slots,
        settings.lockstep_fetch_session_max_partitions,
        time.monotonic,
        lambda largest: random.SystemRandom().randint(1, largest),
    )


def _entry(settings: Settings, advertised: dict[str, Address]) -> NodeEntry:
    """This node's entry for registration."""
    peer = settings.peers()[settings.node_id]
    listeners = {name: (host or peer.host, port) for name, (host, port) in advertised.items()}
    return NodeEntry(settings.node_id, listeners, (peer.host, peer.port), settings.broker_rack)
