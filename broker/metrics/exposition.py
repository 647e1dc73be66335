"""The metrics for Prometheus: the broker's own counts and positions, read at each scrape.

Owns: name, unit and help of every metric (`docs/metrics.md` lists them). Invariants: nothing is counted
for the sake of metrics but one integer per request (`broker/requests/router.py`) and two numbers per flush;
labels have few values: log groups, nodes, APIs, never topics, partitions or clients. A scrape reads
each log group and each of its segments, and at each partition that has producers. Counters begin at 0 with
the process, and where a group moves here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lockstep.broker.controller.log_group_report import report
from lockstep.broker.maintenance.damage import group_damage
from lockstep.build_info import VERSION, commit

if TYPE_CHECKING:
    from lockstep.broker.fetch.fetch_purgatory import FetchPurgatory
    from lockstep.broker.locks.lock_check import LockChecks
    from lockstep.broker.metadata.metadata_cache import MetadataCache
    from lockstep.broker.network.connection_registry import Connections
    from lockstep.broker.peers.node_registry import NodeRegistry
    from lockstep.broker.produce.appender import Appender
    from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
    from lockstep.storage.log_group import LogGroup

PREFIX: Final = "lockstep_"
GROUP: Final = "log_group"

GROUP_GAUGES: Final[tuple[tuple[str, str, Callable[[LogGroup], float]], ...]] = (
    (
        "log_group_leader",
        "1 where this node leads the log group and takes appends to it",
        attrgetter("is_leader"),
    ),
    ("log_group_term", "Raft term of the log group, as this node knows it", attrgetter("term")),
    (
        "log_group_last_index",
        "Newest entry (group commit) in this node's log",
        attrgetter("raft.last_index"),
    ),
    (
        "log_group_commit_index",
        "Newest entry that this node knows to be committed",
        attrgetter("commit_index"),
    ),
    (
        "log_group_applied_index",
        "Newest entry that this node has applied: what its consumers can read",
        attrgetter("applied_index"),
    ),
    (
        "log_group_next_lsn",
        "LSN that the next record will get: records of the log group so far",
        attrgetter("log.next_lsn"),
    ),
    (
        "log_group_log_bytes",
        "Size of this node's log of the group in bytes, without preallocated space",
        attrgetter("log.size_bytes"),
    ),
    (
        "log_group_disk_full",
        "1 while a write fails for lack of disk space: the node rejects produce requests, reads continue",
        attrgetter("log.disk_full"),
    ),
    (
        "log_group_write_failed",
        "1 while a file of the log cannot be written though the disk has room: /health names the error",
        lambda group: bool(group.log.write_error),
    ),
    (
        "log_group_partitions",
        "Partitions of the log group that this node has a copy of",
        lambda group: len(group.partitions) - 1,  # the control partition is the group's own
    ),
)

LOCK_COUNTERS: Final[tuple[tuple[str, str, Callable[[LockChecks], float]], ...]] = (
    (
        "locks_accepted",
        "Batches with locks or expected offsets whose conditions held",
        lambda checks: checks.accepted,
    ),
    (
        "locks_refused",
        "Batches with locks or expected offsets that were rejected, without those rejected by an estimate",
        lambda checks: checks.rejected - checks.rejected_by_estimate,
    ),
    (
        "locks_refused_by_estimate",
        "Batches with locks that were rejected by an estimated offset that may be too high",
        lambda checks: checks.rejected_by_estimate,
    ),
)


class NodeCollector(Collector):
    """Metrics of one broker's node and its connections.

    Args:
        unhealthy_reason: why the node does not serve, "" where it does.
        dropped_lines: how many lines of output were never written.
    """

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        connections: Connections,
        fetch_purgatory: FetchPurgatory,
        unhealthy_reason: Callable[[], str],
        dropped_lines: Callable[[], int] = lambda: 0,
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._connections = connections
        self._fetch_purgatory = fetch_purgatory
        self._unhealthy_reason = unhealthy_reason
        self._dropped_lines = dropped_lines

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        yield from self._node()
        yield from self._requests()

    def _node(self) -> Iterator[Metric]:
        nodes = self._nodes
        build = _gauge("build_info", "Always 1; the labels name what runs", "version", "commit")
        build.add_metric([VERSION, commit()], 1)
        yield build
        yield _node_gauge(
            "healthy",
            "1 where this node serves all its log groups, as /health reports",
            not self._unhealthy_reason(),
        )
        yield _node_gauge("nodes", "Nodes of the cluster, alive or not", len(nodes.registered_ids()))
        yield _node_gauge(
            "nodes_alive",
            "Nodes of the cluster that are alive for this one, itself included",
            len(nodes.alive()),
        )
        dropped = _counter(
            "output_lines_dropped", "Lines for standard output and standard error that were never written"
        )
        dropped.add_metric([], self._dropped_lines())
        yield dropped
        yield _node_gauge(
            "partitions", "Partitions of all topics of the cluster", self._cluster.partition_count
        )

    def _requests(self) -> Iterator[Metric]:
        connections = self._connections
        yield _node_gauge("connections", "Open connections of clients", len(connections))
        closed = _counter("connections_closed", "Connections of clients that were closed")
        closed.add_metric([], connections.closed)
        failed = _counter("failed_authentications", "Connections whose TLS handshake or login failed")
        failed.add_metric([], connections.failed_authentications)
        throttled = _counter("quota_throttle_seconds", "Throttle time of clients over their quota", "quota")
        for key, milliseconds in connections.quotas.throttled_ms.items():
            throttled.add_metric([key], milliseconds / 1000)
        yield closed
        yield failed
        yield throttled
        yield _node_gauge(
            "requests_in_flight_bytes",
            "Size in bytes of the requests in flight",
            connections.in_flight_bytes,
        )
        yield _node_gauge(
            "unsent_bytes",
            "Size in bytes of the large responses that are read from the disk or wait for their clients",
            self._connections.unsent_bytes.total,
        )
        yield _node_gauge(
            "fetches_waiting",
            "Fetch requests, and players in this broker, that wait for records",
            self._fetch_purgatory.count,
        )
        requests = _counter(
            "requests", "Requests of a version that is served, by Kafka's name of the API", "api"
        )
        for name, count in sorted(connections.router.request_counts().items()):
            requests.add_metric([name], count)
        yield requests


class GroupCollector(Collector):
    """Metrics of one broker's log groups. Args: appenders: the append paths, by log group."""

    def __init__(
        self,
        cluster: MetadataCache,
        nodes: NodeRegistry,
        appenders: Mapping[int, Appender],
        transactions: TransactionCoordinators,
    ) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self._appenders = appenders
        self._transactions = transactions

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
        yield from self._groups()
        yield from self._followers()
        yield from self._locks()
        yield from self._producers()

    def _groups(self) -> Iterator[Metric]:
        groups = self._cluster.groups
        for name, description, value in GROUP_GAUGES:
            gauge = _gauge(name, description, GROUP)
            for group_id, group in sorted(groups.items()):
                gauge.add_metric([str(group_id)], value(group))
            yield gauge
        has_leader = _gauge(
            "log_group_leader_known", "1 where a live leader of the log group is known", GROUP
        )
        written = _counter(
            "log_group_written_bytes",
            "Bytes that this node has written for the log group: frames, zeros, indexes, checkpoints",
            GROUP,
            "purpose",
        )
        flushes = _counter(
            "log_group_flushes", "Flushes of the log, each of a group commit or several", GROUP
        )
        flushing = _counter(
            "log_group_flush_seconds", "Seconds that these flushes took, one after the other", GROUP
        )
        damaged = _gauge(
            "log_group_damaged_ranges",
            "Ranges of offsets that are damaged in this node's segments, and neither repaired nor skipped",
            GROUP,
        )
        for group_id, group in sorted(groups.items()):
            damaged_ranges = group_damage(self._cluster, group_id, group)
            damaged.add_metric([str(group_id)], sum(not each["given_up"] for each in damaged_ranges))
            flushes.add_metric([str(group_id)], group.flusher.flushes)
            flushing.add_metric([str(group_id)], group.flusher.flush_seconds)
            has_leader.add_metric([str(group_id)], self._nodes.live_leader_of(group_id) >= 0)
            for purpose, size in group.log.written_bytes().items():
                written.add_metric([str(group_id), purpose.replace(" ", "_")], size)
        yield has_leader
        yield damaged
        yield written
        yield flushes
        yield flushing

    def _followers(self) -> Iterator[Metric]:
        """The followers of the groups that this node leads."""
        lags = _gauge(
            "log_group_follower_lag_entries",
            "Entries that a follower of a log group has not acknowledged to this leader",
            GROUP,
            "node",
        )
        in_sync = _gauge(
            "log_group_follower_in_sync",
            "1 where a follower of a log group that this node leads is in sync",
            GROUP,
            "node",
        )
        for group_id, group in sorted(self._cluster.groups.items()):
            if not group.is_leader:
                continue
            group_report = report(group)
            # A node that lost its disk may be there twice for a moment: the member that votes counts.
            members = {each["node"]: each for each in group_report["learners"] + group_report["voters"]}
            members.pop(group_report["leader"], None)
            for node, member in sorted(members.items()):
                labels = [str(group_id), str(node)]
                in_sync.add_metric(labels, member["in_sync"])
                if member["lag"] is not None:
                    lags.add_metric(labels, member["lag"])
        yield lags
        yield in_sync

    def _locks(self) -> Iterator[Metric]:
        checks = [
            (str(group_id), appender.locks)
            for group_id, appender in sorted(self._appenders.items())
            if appender.locks is not None
        ]
        for name, description, value in LOCK_COUNTERS:
            counter = _counter(name, description, GROUP)
            for group_id, each in checks:
                counter.add_metric([group_id], value(each))
            yield counter

    def _producers(self) -> Iterator[Metric]:
        producers = _gauge(
            "producers", "Active idempotent producers, once per partition they wrote to", GROUP
        )
        for group_id, appender in sorted(self._appenders.items()):
            producers.add_metric([str(group_id)], appender.producers.count())
        yield producers
        states = [each.state for each in self._transactions.coordinators()]
        yield _node_gauge(
            "transactional_ids",
            "Transactional ids that this node coordinates",
            sum(len(each.ids) for each in states),
        )
        yield _node_gauge(
            "transactions_open",
            "Open transactions that this node coordinates",
            sum(len(each.ongoing_ids) for each in states),
        )
        yield _node_gauge(
            "transactions_ending",
            "Decided transactions whose markers are not in every partition yet",
            sum(len(each.prepared_ids) for each in states),
        )


def _gauge(name: str, description: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, description, labels=labels)


def _counter(name: str, description: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, description, labels=labels)


def _node_gauge(name: str, description: str, value: float) -> GaugeMetricFamily:
    """A gauge of the whole node."""
    gauge = _gauge(name, description)
    gauge.add_metric([], value)
    return gauge
