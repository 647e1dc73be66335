"""The broker as one object, which starts and stops.

Owns: `Broker` (used by `broker/main.py` and, in-process, by tests). Invariants: the data directory is locked
and ports are bound before anything is recovered, and opened only when everything can be served; a stop
responds to what it can, commits what was accepted and leaves a checkpoint; after a failed flush nothing more
is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from lockstep.broker.assembly import Assembly
from lockstep.broker.controller.initial_scram_users import InitialUser, add_initial_users, parse_initial_users
from lockstep.broker.coordination.expiration_loop import ExpirationLoop
from lockstep.broker.maintenance.full_disks import FullDisks
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.network.connection_registry import Connections
from lockstep.broker.network.listener_conflicts import METRICS_PORT_HINT, own_listeners, peer_hints
from lockstep.broker.network.listener_security import ListenerSecurities
from lockstep.broker.network.listeners import (
    CannotListen,
    PortConflict,
    bind,
    check_conflicts,
    connection_limit,
    explain,
    host_and_port,
    is_loopback,
    own_host_name,
    set_buffer_sizes,
)
from lockstep.broker.node.data_directory import (
    DataDirectory,
    DirectoryInUse,
    WrongDirectory,
)
from lockstep.broker.process.heap import trim_heap
from lockstep.broker.process.process_output import dropped_lines
from lockstep.broker.process.wall_clock import wall_clock_ms
from lockstep.broker.produce.compiled_fast_path import CONNECTION
from lockstep.broker.security.scram import ScramMechanism, TokenLogin
from lockstep.broker.security.scram_credentials import ScramCredentials
from lockstep.broker.settings.addresses import WILDCARD_HOSTS, Listener
from lockstep.broker.settings.config import PLAINTEXT, Settings
from lockstep.broker.settings.metrics_settings import SSL
from lockstep.storage.log.file_system import is_full
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.types import StorageError

if TYPE_CHECKING:
    from lockstep.broker.metrics.http import HttpListener
    from lockstep.broker.peers.peer_rpc import PeerRpc

log = logging.getLogger("lockstep")

REAP_SECONDS: Final = 10.0
"""The interval of closing idle connections; shorter where connections.max.idle.ms is short."""
MAX_LATE_SECONDS: Final = 5.0
"""A sleep that is too long by this time means that the loop read nothing from clients meanwhile."""
LOW_CONNECTION_LIMIT: Final = 1000
"""The start warns where the limit on open files leaves fewer."""
CLOSED_BEFORE_TRIM: Final = 200
"""The number of closed connections after which the heap is trimmed: each leaves free pages behind."""
TRANSFER_SECONDS: Final = 0.5
"""The longest that a stop waits for other nodes to take over this node's leaderships."""
TRANSFER_POLLS: Final = 50
REACH_SECONDS: Final = 2.0
"""The longest time that the ready line waits for the other nodes and for leaders."""
REACH_POLL_INTERVAL_SECONDS: Final = 0.01


class CannotStart(Exception):
    """The broker cannot start; the text is for operators."""


class ContradictorySettings(CannotStart):
    """No start is possible with these settings, whatever the machine is like."""


class Broker:
    """One broker in this process, on the running loop.

    Args:
        on_fatal: called when the log cannot be trusted any more; the default drops every connection and
            leaves the broker dead.
        clock_ms: milliseconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        on_fatal: Callable[[BaseException], None] | None = None,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.settings = settings
        self.clock_ms = clock_ms
        self.failed: BaseException | None = None
        self._on_fatal = on_fatal
        self._directory: DataDirectory | None = None
        self._assembly: Assembly | None = None
        self._peer_sockets: list[socket.socket] = []
        self._metrics_sockets: list[socket.socket] = []
        self._metrics: HttpListener | None = None
        self._sockets: dict[Listener, list[socket.socket]] = {}
        self._ports: dict[Listener, int] = {}
        self._securities = ListenerSecurities(self._scram_credentials, self._token_login)
        self._initial_users: tuple[InitialUser, ...] = ()
        self._servers: list[asyncio.Server] = []
        self._tasks: list[asyncio.Task[None]] = []

    # --- lifecycle ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover and serve. Raises CannotStart, ConfigError, StorageError; then nothing is left behind."""
        try:
            self._lock_and_bind()
            await self._serve()
        except PortConflict as error:
            await self.stop()
            raise ContradictorySettings(str(error)) from error
        except (CannotListen, DirectoryInUse, WrongDirectory) as error:
            await self.stop()
            raise CannotStart(str(error)) from error
        except BaseException as error:
            if isinstance(error, OSError) and error.filename is None and is_full(error):
                error.filename = str(self.settings.directory)  # a write's error names no file
            await self.stop()
            raise

    async def stop(self) -> None:
        """Complete requests in flight, commit accepted batches, release everything. May be called twice."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assembly = self._assembly
        failure = None
        if assembly is not None:
            failure = await self._stop(assembly)
        if self._metrics is not None:
            await self._metrics.close()
        own_sockets = *self._peer_sockets, *self._metrics_sockets
        for each in (*own_sockets, *(sockets for group in self._sockets.values() for sockets in group)):
            each.close()
        if self._directory is not None:
            self._directory.close()
        self._servers, self._tasks, self._sockets, self._peer_sockets = [], [], {}, []
        self._metrics, self._metrics_sockets = None, []
        self._directory, self._assembly = None, None
        if failure is not None:
            raise failure

    async def _stop(self, assembly: Assembly) -> Exception | None:
        """The first failure; everything else is closed nevertheless."""
        if assembly.node is not None:
            assembly.node.stop()
        assembly.topics.resign()
        assembly.consumer_groups.resign()
        assembly.transactions.resign()
        assembly.verification_queue.stop()
        failed = self.failed is not None
        timeout_seconds = 0 if failed else self.settings.lockstep_shutdown_timeout_ms / 1000
        await assembly.connections.drain(timeout_seconds)
        if assembly.peer_rpc is not None and not failed:
            await self._transfer_leaderships()  # not later: a client may be slow to read its responses
        await assembly.connections.close(timeout_seconds)
        failure: Exception | None = None
        for group in self.groups.values():
            try:
                await group.close()
            except Exception as error:
                failure = failure or error
        if assembly.peer_rpc is not None:
            await assembly.peer_rpc.network.close()
        if assembly.audit_log is not None:
            assembly.audit_log.close()
        return failure

    async def _transfer_leaderships(self) -> None:
        """Transfers leaderships before this node ends, so that clients need not wait for an election."""
        for group in self.groups.values():
            if group.is_leader:
                with contextlib.suppress(StorageError, ValueError, ConfigurationRejected):
                    group.transfer_to_best()
        for _ in range(TRANSFER_POLLS):
            if not any(group.is_leader for group in self.groups.values()):
                return
            await asyncio.sleep(TRANSFER_SECONDS / TRANSFER_POLLS)

    def _lock_and_bind(self) -> None:
        """Lock the data directory and bind the ports.

        An existing directory comes first: a second broker on it gets that error, not one about a port. A
        missing one comes last: a start that fails over a port creates none.
        """
        settings = self.settings
        peers = settings.peers()
        if settings.directory.exists():
            self._directory = DataDirectory(settings.directory, settings.node_id, alone=not peers)
        check_conflicts(own_listeners(settings))
        if (peer_listener := settings.peer_listener()) is not None:
            self._peer_sockets = bind(peer_listener, *peer_hints(settings))
            can_be_reached = not all(map(is_loopback, self._peer_sockets))
            self._securities.open_peers(settings, peer_listener, can_be_reached)
        if (metrics := settings.metrics_listener()) is not None:
            self._metrics_sockets = bind(metrics, METRICS_PORT_HINT)
            if settings.lockstep_metrics_security_protocol == SSL:
                self._securities.open_tls(settings, metrics)
        self._securities.open(settings, settings.client_listeners())
        self._initial_users = parse_initial_users(settings.lockstep_scram_users)
        for listener in settings.client_listeners():
            sockets = self._sockets[listener] = bind(listener)
            self._ports[listener] = sockets[0].getsockname()[1]
            if not all(is_loopback(each) for each in sockets):
                address = host_and_port(listener.host, self._ports[listener])
                self._warn_of_open_listener(listener, address)
        if self._directory is None:
            self._directory = DataDirectory(settings.directory, settings.node_id, alone=not peers)
        if self._securities.peers is not None:
            self._securities.peers.check_cluster(self._directory.cluster_id)

    def _warn_of_open_listener(self, listener: Listener, address: str) -> None:
        """Warns of what other machines that reach a listener may do."""
        clients = self._securities.clients_of(listener, address)
        if not self.settings.authorizer_class_name:
            log.warning("%s may do anything: no authorizer is configured", clients)
        elif self.settings.protocol_of(listener) == PLAINTEXT:
            log.warning("%s may do what ACLs allow User:ANONYMOUS", clients)

    async def _serve(self) -> None:
        assert self._directory is not None
        settings = self.settings
        assembly = self._assembly = Assembly(
            settings, self._directory, self._advertised_addresses(), self.clock_ms, self._fatal,
            self._securities.peers,
        )  # fmt: skip
        if assembly.audit_log is not None:
            assembly.audit_log.open()
        if assembly.peer_rpc is None or assembly.node is None:
            await self._open_alone(assembly)
        else:
            await assembly.node.start()
            await self._listen_for_peers(assembly.peer_rpc)
        assembly.consumer_groups.check()
        assembly.transactions.check()
        self._limit_connections(assembly.cluster.settings)
        assembly.cluster.on_settings.append(self._limit_connections)
        assembly.cluster.on_group_added.append(lambda: self._limit_connections(assembly.cluster.settings))
        if self._securities.all_keys:
            self._securities.reload(assembly.cluster.settings)
            assembly.cluster.on_configs_recorded.append(self._securities.reload)
            assembly.cluster.settings_checks.append(self._securities.check)
            self._background(self._securities.watch())
        if self._securities.token_keys:
            self._background(self._securities.refresh_token_keys())
        if self._initial_users:
            topics, image = assembly.topics, assembly.image
            self._background(
                add_initial_users(
                    self._initial_users, lambda: topics.leads, lambda: image.scram, assembly.record_scram
                )
            )
        await self._listen(assembly.connections)
        await self._listen_for_metrics(assembly)
        self._background(assembly.retention.run(settings.log_retention_check_interval_ms / 1000))
        self._background(assembly.compaction.run())
        self._background(assembly.scrubber.run())
        expiring = (
            assembly.offset_expiration, assembly.transaction_expiration, assembly.stage_expiration,
            assembly.token_expiration,
        )  # fmt: skip
        rules = [rule for each in expiring for rule in each.rules()]
        self._background(ExpirationLoop(rules).run())
        self._background(self._reap_idle_connections(assembly.connections))
        self._background(FullDisks(lambda: self.groups, self.enforce_retention).run())
        if assembly.peer_rpc is not None and assembly.node is not None:
            self._background(assembly.peer_rpc.run())
            self._background(assembly.node.run())
            self._background(assembly.node.watch())

    async def _listen_for_peers(self, peer_rpc: PeerRpc) -> None:
        try:
            await peer_rpc.network.listen(self._peer_sockets)
        except OSError as error:
            listener = self.settings.peer_listener()
            assert listener is not None
            raise CannotListen(explain(listener, error, *peer_hints(self.settings))) from None

    async def _listen(self, connections: Connections) -> None:
        loop = asyncio.get_running_loop()
        for listener, sockets in self._sockets.items():
            for each in sockets:
                set_buffer_sizes(each, self.settings)
                backlog = self.settings.socket_listen_backlog_size
                try:
                    each.listen(backlog)  # uvloop does so too, but does not report a failure
                    server = await loop.create_server(
                        self._securities.connection_factory(connections, listener, CONNECTION),
                        sock=each,
                        backlog=backlog,
                    )
                except OSError as error:
                    raise CannotListen(explain(listener, error)) from None
                self._servers.append(server)

    async def _listen_for_metrics(self, assembly: Assembly) -> None:
        listener = self.settings.metrics_listener()
        if listener is None:
            return
        # Imported here: a broker without metrics should not spend the library's time and memory.
        from lockstep.broker.metrics.exposition import GroupCollector, NodeCollector
        from lockstep.broker.metrics.health import unhealthy_reason
        from lockstep.broker.metrics.http import HttpListener
        from lockstep.broker.metrics.pages import pages

        cluster, nodes, connections = assembly.cluster, assembly.nodes, assembly.connections

        def reason_now() -> str:
            return unhealthy_reason(cluster, nodes, connections.stopping, self.failed)

        collectors = (
            NodeCollector(cluster, nodes, connections, assembly.fetch_purgatory, reason_now, dropped_lines),
            GroupCollector(cluster, nodes, assembly.appenders, assembly.transactions),
        )
        self._metrics = HttpListener(
            pages(self.settings.node_id, reason_now, collectors),
            tls=self._securities.tls.get(listener),
            token=self.settings.lockstep_metrics_token or "",
        )
        try:
            await self._metrics.open(self._metrics_sockets)
        except OSError as error:
            raise CannotListen(explain(listener, error, METRICS_PORT_HINT)) from None
        address = host_and_port(listener.host or "0.0.0.0", self.metrics_port)
        log.info("serving metrics and health on %s", address)

    async def _open_alone(self, assembly: Assembly) -> None:
        assert self._directory is not None
        group_ids = set(range(METADATA_GROUP, self.settings.data_groups + 1)) | set(self._directory.groups())
        for group_id in sorted(group_ids):
            group = await assembly.local_groups.open(group_id)
            group.after_commit = assembly.connections.send_now
            assembly.local_groups.serve(
                group, assembly.cluster, assembly.consumer_groups, assembly.transactions
            )
        for group in list(self.groups.values()):
            await group.committed()  # then consumer groups are loaded
        await assembly.topics.start()
        await assembly.topics.version_control.poll()
        with contextlib.suppress(OSError):  # the disk is full: at the next start
            self._directory.record_metadata_version(assembly.image.recorded_version)

    # --- accessors ----------------------------------------------------------------------------------------

    @property
    def groups(self) -> dict[int, LogGroup]:
        """The log groups that this node is a member of."""
        return self._assembly.cluster.groups if self._assembly is not None else {}

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return next(iter(self._ports.values()))

    @property
    def metrics_port(self) -> int:
        """The port of metrics; 0 where they are not served."""
        sockets = self._metrics_sockets
        port: int = sockets[0].getsockname()[1] if sockets else 0
        return port

    @property
    def bootstrap_servers(self) -> str:
        """The address for a client on this machine."""
        listener = next(iter(self._ports))
        host = "localhost" if listener.host in WILDCARD_HOSTS else listener.host
        return host_and_port(host, self.port)

    @property
    def separately_advertised(self) -> list[str]:
        """HOST:PORT of each advertised address that differs from its listener."""
        advertised = self.settings.advertised_by_name()
        addresses: list[str] = []
        for listener, port in self._ports.items():
            host, advertised_port = self._advertised_addresses()[listener.name]
            if listener.name in advertised and (host, advertised_port) != (listener.host, port):
                addresses.append(host_and_port(host, advertised_port))
        return addresses

    @property
    def missing_majority(self) -> str:
        """The majority that a node of a cluster does not reach; "" where it does, and for a node alone."""
        quorum = self.assembly.quorum
        reach = None if quorum is None else quorum.reach()
        if reach is None or reach.is_majority:
            return ""
        return f"a majority of the nodes that elect the controller ({reach} reached)"

    @property
    def waits_for(self) -> str:
        """The reason why this node does not serve clients yet; "" if it serves them."""
        if missing := self.missing_majority:
            return missing
        if not self.groups:
            return "the other nodes, which found the cluster or add this one"
        nodes = self.assembly.nodes
        leaderless = [str(each) for each in self.groups if nodes.live_leader_of(each) < 0]
        return f"a leader of log group {' and '.join(leaderless)}" if leaderless else ""

    async def wait_until_serving(self) -> None:
        """Waits until this node serves clients, was excluded from its cluster, or has failed to reach
        every node that elects the controller; at most `REACH_SECONDS`."""
        quorum = self.assembly.quorum
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACH_SECONDS):
                while self.waits_for and not self.is_excluded:
                    if self.missing_majority and quorum is not None and quorum.has_contacted_voters():
                        return
                    await asyncio.sleep(REACH_POLL_INTERVAL_SECONDS)

    @property
    def is_excluded(self) -> bool:
        """True for a node that was removed from its cluster, or is too old for it."""
        node = self.assembly.node
        return node is not None and node.excluded.is_set()

    async def wait_until_excluded(self) -> None:
        """Wait until this node learns that it was removed from its cluster, or is too old for it; for ever
        for a single node."""
        node = self.assembly.node
        await (asyncio.Event() if node is None else node.excluded).wait()

    @property
    def assembly(self) -> Assembly:
        """The objects of this broker, once it is started."""
        assert self._assembly is not None
        return self._assembly

    async def enforce_retention(self) -> int:
        """Apply retention now; returns how many partitions lost records."""
        return await self.assembly.retention.enforce(self.clock_ms())

    async def compact(self) -> int:
        """Run compaction now; returns how many bytes were freed on the disk."""
        return await self.assembly.compaction.enforce()

    # --- private ------------------------------------------------------------------------------------------

    def _advertised_addresses(self) -> dict[str, tuple[str, int]]:
        """The advertised host ("" for the address the client used) and port, by listener name."""
        configured = self.settings.advertised_by_name()
        advertised: dict[str, tuple[str, int]] = {}
        for listener in self._ports:
            address = configured.get(listener.name)
            if address is not None:
                host, port = address.host or own_host_name(), address.port
            else:
                host, port = "" if listener.host in WILDCARD_HOSTS else listener.host, 0
            advertised[listener.name] = host, port or self._ports[listener]
        return advertised

    def _scram_credentials(self) -> ScramCredentials:
        return self.assembly.image.scram

    def _token_login(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        return self.assembly.delegation_tokens.login_of(mechanism, token_id)

    def _limit_connections(self, settings: Settings) -> None:
        """Leave open files to the log groups that are here and to those that a first start opens later."""
        if self._assembly is None:
            return
        connections = self._assembly.connections
        groups = max(len(self.groups), 1 + settings.local_data_groups)
        allowed = connection_limit(settings.max_connections, groups)
        former_limit = connections.max_connections
        connections.limit(settings, allowed)
        if allowed != former_limit and allowed < min(settings.max_connections, LOW_CONNECTION_LIMIT):
            log.warning(
                "the limit on open files leaves room for %d connections, not for max.connections=%d",
                allowed,
                settings.max_connections,
            )

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)

    async def _reap_idle_connections(self, connections: Connections) -> None:
        idle_seconds = self.settings.connections_max_idle_ms / 1000
        interval = min(REAP_SECONDS, idle_seconds / 2) if idle_seconds > 0 else REAP_SECONDS
        closed, last = connections.closed, time.monotonic()
        while True:
            await asyncio.sleep(max(interval, 0.05))
            deadline, last = last + interval + MAX_LATE_SECONDS, time.monotonic()
            if last < deadline:
                connections.reap_idle(last)
            if connections.closed - closed >= CLOSED_BEFORE_TRIM:
                closed = connections.closed
                await asyncio.to_thread(trim_heap)

    def _fatal(self, failure: BaseException) -> None:
        if self.failed is not None:
            return
        self.failed = failure
        if self._on_fatal is not None:
            self._on_fatal(failure)
            return
        log.critical("the log cannot be trusted any more: %s", failure)
        for server in self._servers:
            server.close()
        if self._assembly is not None:
            self._assembly.connections.abort()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("background work ended", exc_info=task.exception())
