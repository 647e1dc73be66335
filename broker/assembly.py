"""Constructs the parts of one broker and connects them, in the order of their dependencies. Opens nothing."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from lockstep.broker.controller import api as controller_api
from lockstep.broker.controller.alter_configs_shared import ConfigAlteration
from lockstep.broker.controller.cluster_status import GroupReports
from lockstep.broker.controller.config_changes import ConfigChanges
from lockstep.broker.controller.damage_reports import DamageReports
from lockstep.broker.controller.forwarder import Controller
from lockstep.broker.controller.leadership_transfer import LeadershipTransfers
from lockstep.broker.controller.partition_commands import GroupCommands
from lockstep.broker.controller.topics import Topics
from lockstep.broker.coordination import api as coordination_api
from lockstep.broker.fetch import api as fetch_api
from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.fetch.fetch_session import FetchSessions
from lockstep.broker.groups import api as groups_api
from lockstep.broker.groups.expiration import Expiration
from lockstep.broker.groups.group_coordinators import Groups
from lockstep.broker.maintenance.compaction import Compaction
from lockstep.broker.maintenance.retention import Retention
from lockstep.broker.maintenance.scrub import Scrubber
from lockstep.broker.metadata import api as metadata_api
from lockstep.broker.metadata.api.api_versions import ApiVersions
from lockstep.broker.metadata.metadata_cache import Cluster
from lockstep.broker.metadata.metadata_image import Address, ClusterImage, NodeEntry
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.node.cluster_node import ClusterNode
from lockstep.broker.node.data_directory import DataDirectory
from lockstep.broker.node.local_groups import LocalGroups
from lockstep.broker.peers.controller_quorum import ControllerQuorum
from lockstep.broker.peers.node_registry import Nodes
from lockstep.broker.peers.peer_rpc import PeerRpc
from lockstep.broker.produce import api as produce_api
from lockstep.broker.requests.request_context import RequestHandler, Services
from lockstep.broker.requests.router import Router, advertised_versions
from lockstep.broker.security import api as security_api
from lockstep.broker.settings.config import Settings
from lockstep.broker.staging import api as staging_api
from lockstep.broker.staging.expiration import StagedExpiration
from lockstep.broker.staging.stage_commit import StagedEnds
from lockstep.broker.staging.staged_append import StagedAppenders
from lockstep.broker.transactions import api as transactions_api
from lockstep.broker.transactions.expiration import TransactionExpiration
from lockstep.broker.transactions.marker_sender import Markers
from lockstep.broker.transactions.producer_id_blocks import ProducerIds
from lockstep.broker.transactions.transaction_coordinators import Transactions
from lockstep.broker.transactions.verification_client import Verification
from lockstep.broker.transactions.verification_queue import VerificationQueue


@dataclass(frozen=True)
class Parts:
    """The parts of a broker; `peering`, `node` and `quorum` are None for a single node."""

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
    quorum: ControllerQuorum | None


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
    consumer_groups = Groups(cluster, clock_ms, loop)
    expiration = Expiration(consumer_groups, cluster)
    topics = Topics(cluster, GroupCommands(cluster, peering, expiration.forget))
    controller = Controller(cluster, topics, peering)
    producer_ids = ProducerIds(topics.record, lambda: topics.leads, image, peering)
    markers = Markers(cluster, local_groups.appenders, peering, loop)
    transactions = Transactions(cluster, local_groups.appenders, markers, producer_ids)
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
    reports = GroupReports(cluster, peering)
    quorum = None if peering is None else ControllerQuorum(settings, image, nodes, peering)
    router = _router(cluster, nodes, controller, _room_handlers(services, reports, quorum, peering))
    controller.serve(services, router)
    connections = _connections(services, router, settings, loop)
    if peering is not None and quorum is not None:
        services.node = ClusterNode(
            settings, directory, local_groups, cluster, nodes, peering, topics, consumer_groups, transactions,
            reports, quorum, _entry(settings, advertised), connections.send_now,
        )  # fmt: skip
    return Parts(
        cluster, local_groups, topics, consumer_groups, expiration, transactions,
        TransactionExpiration(transactions, cluster),
        StagedExpiration(services.staged_ends, cluster, clock_ms), Retention(cluster, clock_ms),
        Compaction(cluster, clock_ms),
        Scrubber(cluster), services, connections, peering, services.node, quorum,
    )  # fmt: skip


def _connections(
    services: Services, router: Router, settings: Settings, loop: asyncio.AbstractEventLoop
) -> Connections:
    return Connections(
        router,
        settings,
        loop,
        services.time_slicer,
        services.unsent_bytes,
        services.rate_limited_log,
        services,
    )


def _room_handlers(
    services: Services, reports: GroupReports, quorum: ControllerQuorum | None, peering: PeerRpc | None
) -> list[RequestHandler]:
    """The handlers of each room."""
    cluster, nodes = services.cluster, services.nodes
    endpoints = NodeEndpoints(nodes, services.advertised, cluster)
    alteration = ConfigAlteration(nodes.node_id, services.controller, services.config_changes)
    return [
        *controller_api.handlers(cluster, nodes, services.topics, alteration),
        *controller_api.node_handlers(
            cluster,
            nodes,
            endpoints,
            services.topics,
            reports,
            DamageReports(cluster, nodes, peering),
            LeadershipTransfers(peering),
            quorum,
            services.clock_ms,
        ),
        *fetch_api.handlers(
            cluster,
            services.fetch_sessions,
            services.fetch_purgatory,
            services.unsent_bytes,
            endpoints,
            nodes.is_alive,
        ),
        *metadata_api.handlers(cluster, nodes, endpoints, services.controller.ensure),
        *produce_api.handlers(
            cluster,
            services.appenders,
            endpoints,
            services.time_slicer,
            services.verification_queue.appenders,
            partial(StagedAppenders, services.appenders, services.staged_ends),
        ),
        *security_api.handlers(services.rate_limited_log),
        *_coordinator_handlers(services),
    ]


def _coordinator_handlers(services: Services) -> list[RequestHandler]:
    """The handlers of requests to coordinators."""
    cluster, time_slicer = services.cluster, services.time_slicer
    groups, transactions = services.consumer_groups, services.transactions
    producer_ids = services.producer_ids
    endpoints = NodeEndpoints(services.nodes, services.advertised, cluster)
    return [
        *coordination_api.handlers(groups, transactions, services.controller, endpoints, time_slicer),
        *groups_api.handlers(groups, cluster, services.verification, time_slicer),
        *transactions_api.handlers(
            transactions, producer_ids, services.markers, cluster, groups.partition_of, services.clock_ms
        ),
        *staging_api.handlers(services.staged_ends, producer_ids.take, cluster),
    ]


def _router(
    cluster: Cluster, nodes: Nodes, controller: Controller, room_handlers: Iterable[RequestHandler]
) -> Router:
    versions: dict[int, tuple[int, int]] = {}
    api_versions = ApiVersions(cluster, nodes, versions)
    handlers = [api_versions, *room_handlers]
    versions.update(advertised_versions(handlers))
    return Router(handlers, controller, api_versions.unknown_version)


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
