"""Constructs the objects of one broker, in the order of their dependencies. Opens nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from lockstep.broker.audit.audit_log import AuditLog
from lockstep.broker.authorization.authorizer import ALLOW_ALL, Authorizer, StandardAuthorizer
from lockstep.broker.controller import api as controller_api
from lockstep.broker.controller.alter_configs_shared import ConfigAlteration
from lockstep.broker.controller.cluster_status import GroupReports
from lockstep.broker.controller.config_changes import ConfigChanges
from lockstep.broker.controller.damage_reports import DamageReports
from lockstep.broker.controller.forwarder import ControllerForwarder, ForwardedRequests
from lockstep.broker.controller.partition_commands import PartitionCommands
from lockstep.broker.controller.token_expiration import TokenExpiration
from lockstep.broker.controller.topics import Topics, random_id
from lockstep.broker.controller.transfer_requests import TransferRequests
from lockstep.broker.coordination import api as coordination_api
from lockstep.broker.fetch import api as fetch_api
from lockstep.broker.fetch.fetch_fast_path import FetchFastPath
from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
from lockstep.broker.fetch.fetch_requests import FetchRequests
from lockstep.broker.fetch.fetch_session import FetchSessions
from lockstep.broker.groups import api as groups_api
from lockstep.broker.groups.group_coordinators import GroupCoordinators
from lockstep.broker.groups.offset_expiration import OffsetExpiration
from lockstep.broker.maintenance.compaction import Compaction
from lockstep.broker.maintenance.retention import Retention
from lockstep.broker.maintenance.scrub import Scrubber
from lockstep.broker.metadata import api as metadata_api
from lockstep.broker.metadata.api.api_versions import ApiVersions
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.metadata.metadata_image import Address, MetadataImage, NodeEntry, scram_command
from lockstep.broker.metadata.node_endpoints import NodeEndpoints
from lockstep.broker.metadata.quota_commands import quota_command
from lockstep.broker.metadata.token_commands import token_command
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.unsent_bytes import UnsentBytes
from lockstep.broker.node.cluster_node import ClusterNode
from lockstep.broker.node.data_directory import DataDirectory
from lockstep.broker.node.local_groups import LocalGroups
from lockstep.broker.peers.controller_quorum import ControllerQuorum
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.peers.peer_rpc import PeerRpc
from lockstep.broker.produce import api as produce_api
from lockstep.broker.produce.compiled_fast_path import FAST_PATH
from lockstep.broker.quotas.quota_changes import QuotaChange, QuotaChanges
from lockstep.broker.quotas.quota_manager import QuotaManager
from lockstep.broker.quotas.quota_rate import QuotaWindow
from lockstep.broker.requests.fast_path import FastPath
from lockstep.broker.requests.request_context import RequestHandler
from lockstep.broker.requests.router import Router, advertised_versions
from lockstep.broker.requests.time_slices import TimeSlicer
from lockstep.broker.security import api as security_api
from lockstep.broker.security.delegation_tokens import DelegationTokenRules, DelegationTokens, TokenChange
from lockstep.broker.security.scram_users import ScramChange, ScramUsers
from lockstep.broker.security.token_request_policy import TokenRequestPolicy
from lockstep.broker.settings.config import Settings
from lockstep.broker.staging import api as staging_api
from lockstep.broker.staging.stage_commit import StageCommit
from lockstep.broker.staging.stage_expiration import StageExpiration
from lockstep.broker.staging.staged_append import StagedAppenders
from lockstep.broker.transactions import api as transactions_api
from lockstep.broker.transactions.marker_sender import MarkerSender
from lockstep.broker.transactions.producer_id_blocks import ProducerIds
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.transaction_expiration import TransactionExpiration
from lockstep.broker.transactions.verification_client import Verification
from lockstep.broker.transactions.verification_queue import VerificationQueue
from lockstep.protocol.api import ApiKey
from lockstep.protocol.ids import format_uuid
from lockstep.storage.log_group import LogGroup
from lockstep.storage.peers.peer_tls import PeerTls
from lockstep.storage.rate_limited_log import RateLimitedLog

SCRAM_SECRET_BYTES: Final = 32
"""The bytes of the secret from which the salts of unknown users are made."""
DENIALS_PER_SECOND: Final = 100
DENIALS_REMEMBERED: Final = 1_000
"""LIMIT. Lines about denials in a second, and those that are known to be repeated within a minute: more than
for other faults of clients, as they are what an administrator looks for."""


class Assembly:
    """The objects of one broker; `server.Broker` starts and stops them, no other object is given this one.

    Args:
        advertised: the advertised host ("" for the address the client used) and port, by listener name.
        peer_tls: the certificates of nodes; None for nodes without.
    """

    def __init__(
        self,
        settings: Settings,
        directory: DataDirectory,
        advertised: dict[str, Address],
        clock_ms: Callable[[], int],
        on_fatal: Callable[[BaseException], None],
        peer_tls: PeerTls | None = None,
    ) -> None:
        self._settings, self._directory, self._advertised = settings, directory, advertised
        self._peer_tls = peer_tls
        self.clock_ms = clock_ms
        self.loop = asyncio.get_running_loop()
        self._make_metadata()
        self._make_groups(on_fatal)
        self._make_controller()
        self._make_coordinators()
        self._make_connections()
        self._make_node()
        self._make_background_work()

    @property
    def settings(self) -> Settings:
        """The settings in force now."""
        return self.cluster.settings

    def _make_metadata(self) -> None:
        """The recorded metadata, and the nodes of the cluster."""
        settings, groups = self._settings, dict[int, LogGroup]()
        self.image = MetadataImage()
        self.nodes = NodeRegistry(settings.node_id, self.image, groups, time.monotonic)
        self.nodes.metadata_versions.version_at_last_stop = self._directory.metadata_version
        self.fetch_purgatory = FetchPurgatory(self.loop)
        self.cluster = MetadataCache(
            settings, self.image, groups, self.fetch_purgatory, self.nodes.leader_of, time.monotonic
        )
        self.quotas = self._make_quotas()
        self.authorizer = self._make_authorizer()
        self.delegation_tokens = self._make_tokens()
        self.endpoints = NodeEndpoints(self.nodes, self._advertised, self.cluster)
        self.peer_rpc = PeerRpc(self.nodes, self.loop, self._peer_tls) if settings.peers() else None
        """The messages between nodes; None for a cluster of one node, as `quorum` and `node`."""
        self.quorum: ControllerQuorum | None = None
        if self.peer_rpc is not None:
            self.quorum = ControllerQuorum(settings, self.image, self.nodes, self.peer_rpc)

    def _make_quotas(self) -> QuotaManager:
        settings = self._settings
        quotas = QuotaManager(
            self.image.quotas,
            lambda: int(time.monotonic() * 1000),
            QuotaWindow(settings.quota_window_num, settings.quota_window_size_seconds * 1000),
            QuotaWindow(
                settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000
            ),
        )
        self.cluster.on_quotas.append(quotas.on_change)
        return quotas

    def _make_authorizer(self) -> Authorizer:
        settings, acls = self._settings, self.image.acls
        acls.allows_without_acls = settings.allow_everyone_if_no_acl_found
        if not settings.authorizer_class_name:
            return ALLOW_ALL
        denials = RateLimitedLog(
            self.loop.time, logging.getLogger("lockstep.authorizer"), DENIALS_PER_SECOND, DENIALS_REMEMBERED
        )
        return StandardAuthorizer(acls, settings.super_user_names(), denials)

    def _make_groups(self, on_fatal: Callable[[BaseException], None]) -> None:
        """The log groups of this node."""
        peer_rpc = self.peer_rpc
        sender = None if peer_rpc is None else lambda group_id: partial(peer_rpc.send, group_id)
        self.local_groups = LocalGroups(
            self._settings, self._directory, self.cluster, self.clock_ms, on_fatal, sender
        )
        self.appenders = self.local_groups.appenders

    def _make_controller(self) -> None:
        """The changes of the metadata, of which the deletion of a topic ends committed offsets."""
        self.consumer_groups = GroupCoordinators(self.cluster, self.clock_ms, self.loop)
        self.offset_expiration = OffsetExpiration(self.consumer_groups, self.cluster)
        commands = PartitionCommands(self.cluster, self.peer_rpc, self.offset_expiration.forget)
        certified = None if self._peer_tls is None else self._peer_tls.identity.cluster_id
        self.topics = Topics(self.cluster, commands, self.nodes.metadata_versions, cluster_id=certified)
        self.forwarder = ControllerForwarder(self.cluster, self.topics, self.peer_rpc)
        self.reports = GroupReports(self.cluster, self.peer_rpc)

    def _make_coordinators(self) -> None:
        """The coordinators of transactions, and what ends their batches."""
        cluster, peer_rpc, topics = self.cluster, self.peer_rpc, self.topics
        self.time_slicer = TimeSlicer(self.loop.call_soon)
        self.producer_ids = ProducerIds(topics.record, lambda: topics.leads, self.image, peer_rpc)
        self.markers = MarkerSender(cluster, self.appenders, peer_rpc, self.loop)
        self.transactions = TransactionCoordinators(cluster, self.appenders, self.markers, self.producer_ids)
        self.verification = Verification(self.transactions, peer_rpc)
        self.verification_queue = VerificationQueue(
            cluster, self.appenders, self.verification, self.loop, self.time_slicer
        )
        self.staged_ends = StageCommit(cluster, self.appenders)

    def _make_connections(self) -> None:
        """The handlers, the router and the connections of clients."""
        self.unsent_bytes = UnsentBytes()
        self.rate_limited_log = RateLimitedLog(self.loop.time, logging.getLogger("lockstep.connection"))
        self.fetch_sessions = _fetch_sessions(self._settings)
        self.fetch_requests = FetchRequests(
            self.cluster, self.fetch_sessions, self.fetch_purgatory, self.unsent_bytes, self.endpoints,
            self.nodes.may_serve, self.authorizer, self.quotas,
        )  # fmt: skip
        versions: dict[int, tuple[int, int]] = {}
        api_versions = ApiVersions(self.cluster, self.nodes, versions)
        handlers = [
            api_versions,
            *self._data_handlers(),
            *self._controller_handlers(),
            *self._coordinator_handlers(),
            *self._security_handlers(),
        ]
        versions.update(advertised_versions(handlers))
        router = Router(handlers, self.forwarder, api_versions.unknown_version)
        self.audit_log = self._make_audit_log(router)
        if self.peer_rpc is not None:
            ForwardedRequests(self.cluster, self.forwarder, router, self.peer_rpc)
        self.connections = Connections(
            router, self._settings, self.loop, self.time_slicer, self.unsent_bytes, self.rate_limited_log,
            self._fast_paths(router), self.quotas,
        )  # fmt: skip
        self.cluster.on_quotas.append(self.connections.throttles.on_quotas_changed)

    def _security_handlers(self) -> list[RequestHandler]:
        image = self.image
        return security_api.build_handlers(
            self.rate_limited_log,
            ScramUsers(lambda: image.scram, self.record_scram),
            self.delegation_tokens,
            TokenRequestPolicy(self._settings.protocol_named),
            image.quotas,
            QuotaChanges(image.quotas, self._record_quotas, asyncio.Lock()),
            self.authorizer,
        )

    def _make_audit_log(self, router: Router) -> AuditLog | None:
        path = self._settings.lockstep_audit_log
        if not path:
            return None
        log = RateLimitedLog(self.loop.time, logging.getLogger("lockstep.audit"))
        audit_log = AuditLog(Path(path), self._settings.node_id, self.clock_ms, log)
        audit_log.watch(router)
        return audit_log

    def _make_tokens(self) -> DelegationTokens:
        """The delegation tokens; the controller's, for their records."""
        settings = self._settings
        rules = DelegationTokenRules(
            settings.delegation_token_secret_key or "",
            settings.delegation_token_max_lifetime_ms,
            settings.delegation_token_expiry_time_ms,
        )
        return DelegationTokens(
            rules,
            self.image.tokens,
            self._record_tokens,
            self.clock_ms,
            lambda: format_uuid(random_id()),
        )

    async def _record_tokens(self, changes: Sequence[TokenChange]) -> None:
        await self.topics.record_configs([token_command(each) for each in changes])

    async def _record_quotas(self, changes: Sequence[QuotaChange]) -> None:
        await self.topics.record_configs([quota_command(*each) for each in changes])

    async def record_scram(self, changes: Sequence[ScramChange]) -> None:
        """Store changes of SCRAM users, and the cluster's secret with them. Raises RequestError."""
        secret = self.image.scram.secret or os.urandom(SCRAM_SECRET_BYTES)
        await self.topics.record_configs([scram_command(each, secret) for each in changes])

    def _fast_paths(self, router: Router) -> dict[int, FastPath]:
        """The fast paths that are not off, by API key."""
        paths: dict[int, FastPath] = {}
        if self._settings.lockstep_produce_fast_path:
            produce = router.route_of(ApiKey.PRODUCE)
            access = self.authorizer.access(ApiKey.PRODUCE)
            paths[ApiKey.PRODUCE] = FAST_PATH(
                self.cluster, self.appenders, self.endpoints, produce, access, self.quotas
            )
        if self._settings.lockstep_fetch_fast_path:
            paths[ApiKey.FETCH] = FetchFastPath(self.fetch_requests, router.route_of(ApiKey.FETCH))
        return paths

    def _data_handlers(self) -> list[RequestHandler]:
        cluster, nodes = self.cluster, self.nodes
        return [
            *fetch_api.build_handlers(self.fetch_requests, self.time_slicer, self.authorizer),
            *metadata_api.build_handlers(
                cluster, nodes, self.endpoints, self.forwarder.ensure_topic, self.time_slicer, self.authorizer
            ),
            *produce_api.build_handlers(
                cluster, self.appenders, self.endpoints, self.time_slicer, self.verification_queue.appenders,
                partial(StagedAppenders, self.appenders, self.staged_ends), self.authorizer,
            ),
        ]  # fmt: skip

    def _controller_handlers(self) -> list[RequestHandler]:
        cluster, nodes, topics = self.cluster, self.nodes, self.topics
        changes = ConfigChanges(cluster, nodes, topics)
        alteration = ConfigAlteration(nodes.node_id, self.forwarder, changes, self.authorizer)
        return [
            *controller_api.build_handlers(cluster, nodes, topics, alteration, self.quotas, self.authorizer),
            *controller_api.build_cluster_handlers(
                cluster, nodes, self.endpoints, topics, self.reports,
                DamageReports(cluster, nodes, self.peer_rpc), TransferRequests(self.peer_rpc), self.quorum,
                self.clock_ms, self.authorizer,
            ),
        ]  # fmt: skip

    def _coordinator_handlers(self) -> list[RequestHandler]:
        cluster, groups, transactions = self.cluster, self.consumer_groups, self.transactions
        return [
            *coordination_api.build_handlers(
                groups, transactions, self.forwarder, self.endpoints, self.time_slicer, self.authorizer
            ),
            *groups_api.build_handlers(groups, cluster, self.verification, self.time_slicer, self.authorizer),
            *transactions_api.build_handlers(
                transactions,
                self.producer_ids,
                self.markers,
                cluster,
                groups.partition_of,
                self.clock_ms,
                self.authorizer,
            ),
            *staging_api.build_handlers(self.staged_ends, self.producer_ids.take, cluster, self.authorizer),
        ]

    def _make_node(self) -> None:
        self.node: ClusterNode | None = None
        if self.peer_rpc is not None and self.quorum is not None:
            self.node = ClusterNode(
                self._settings, self._directory, self.local_groups, self.cluster, self.nodes, self.peer_rpc,
                self.topics, self.consumer_groups, self.transactions, self.reports, self.quorum,
                _entry(self._settings, self._advertised), self.connections.send_now,
            )  # fmt: skip

    def _make_background_work(self) -> None:
        cluster, clock_ms = self.cluster, self.clock_ms
        self.transaction_expiration = TransactionExpiration(self.transactions, cluster)
        self.stage_expiration = StageExpiration(self.staged_ends, cluster, clock_ms)
        self.token_expiration = TokenExpiration(
            self.delegation_tokens,
            lambda: self.topics.leads,
            self._settings.delegation_token_expiry_check_interval_ms,
        )
        self.retention = Retention(cluster, clock_ms)
        self.compaction = Compaction(cluster, clock_ms)
        self.scrubber = Scrubber(cluster)


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
