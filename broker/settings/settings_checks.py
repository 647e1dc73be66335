"""Checks of settings against each other; each setting's own bounds are in its declaration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lockstep.broker.settings.config import NOT_FLUSHED, PROPERTIES, Settings
from lockstep.broker.settings.peer_settings import PEERS_LISTENER
from lockstep.broker.settings.properties import INT64_MAX, ConfigError, ConfigErrors, raise_all

REPLICATION_FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
_PAIRS: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    *(
        pair
        for name in ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
        for pair in (
            (f"group.consumer.min.{name}", f"group.consumer.{name}"),
            (f"group.consumer.{name}", f"group.consumer.max.{name}"),
        )
    ),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
"""The first must not be more than the second."""
UNBOUNDED_WHILE_RUNNING: Final = "group.consumer.assignment.interval.ms"
"""Kafka compares it with its bounds at a start only."""
PROTOCOLS: Final = "group.coordinator.rebalance.protocols"


def check(settings: Settings) -> None:
    """Check the settings against each other. Raises ConfigError, ConfigErrors for several."""
    errors: list[ConfigError] = []
    checks: list[Callable[[], object]] = [
        settings.client_listeners,
        settings.advertised_by_name,
        settings.metrics_listener,
        settings.peer_listener,
        settings.super_user_names,
        lambda: _check_flushes(settings),
        lambda: _check_directory(settings),
        lambda: _check_batches(settings),
        lambda: _check_replicas(settings),
        lambda: _check_pairs(settings),
        lambda: _check_protocols(settings),
        lambda: _check_peers_listener(settings),
    ]
    for each in checks:
        try:
            each()
        except ConfigErrors as several:
            errors += several.errors
        except ConfigError as error:
            errors.append(error)
    raise_all(list({str(error): error for error in errors}.values()))  # several checks meet the same one


def _check_directory(settings: Settings) -> None:
    if not settings.log_dirs:
        raise ConfigError("log.dirs", "", "names no directory")
    if "," in settings.log_dirs:
        raise ConfigError("log.dirs", settings.log_dirs, "Lockstep keeps one log: name one directory")


def _check_batches(settings: Settings) -> None:
    if settings.message_max_bytes > settings.largest_batch_bytes:
        raise ConfigError(
            "message.max.bytes",
            str(settings.message_max_bytes),
            f"at most {settings.largest_batch_bytes} with "
            f"lockstep.segment.bytes={settings.lockstep_segment_bytes}: lower this one or raise that one",
        )


def _check_replicas(settings: Settings) -> None:
    errors: list[ConfigError] = []
    nodes = len(settings.peers()) or 1
    cluster_size = "this cluster has one node" if nodes == 1 else f"this cluster has {nodes} nodes"
    if settings.min_insync_replicas > settings.majority:
        problem = cluster_size if nodes == 1 else f"an acknowledged write is on {settings.majority} replicas"
        errors.append(ConfigError("min.insync.replicas", str(settings.min_insync_replicas), problem))
    for name in REPLICATION_FACTORS:
        replicas = getattr(settings, PROPERTIES[name][0])
        if replicas > nodes:
            errors.append(ConfigError(name, str(replicas), cluster_size))
        elif replicas > settings.lockstep_data_replicas == 1:
            errors.append(ConfigError(name, str(replicas), "lockstep.data.replicas is 1"))
    raise_all(errors)


def _check_pairs(settings: Settings) -> None:
    errors: list[ConfigError] = []
    changed = {*settings.dynamic_cluster, *settings.dynamic_node}
    for lower, upper in _PAIRS:
        if UNBOUNDED_WHILE_RUNNING in changed.intersection((lower, upper)):
            continue
        low, high = (getattr(settings, PROPERTIES[name][0]) for name in (lower, upper))
        if low > high:
            errors.append(ConfigError(lower, str(low), f"more than {upper}={high}"))
    raise_all(errors)


def _check_protocols(settings: Settings) -> None:
    protocols = settings.group_coordinator_rebalance_protocols
    if "classic" not in protocols:
        raise ConfigError(PROTOCOLS, ",".join(protocols), "must have classic")


def _check_peers_listener(settings: Settings) -> None:
    """Reject a client listener whose own settings would be those of the nodes, too. Raises ConfigError."""
    for each in settings.client_listeners():
        if settings.uses_peer_tls and each.name == PEERS_LISTENER:
            problem = "with lockstep.peers.tls, settings of that name are the replication listener's"
            raise ConfigError("listeners", str(each), problem)


def _check_flushes(settings: Settings) -> None:
    """Reject flush intervals that log.flush does not keep, as for a topic. Raises ConfigError."""
    by_time = "log.flush.interval.ms"
    if settings.log_flush_interval_ms is None:
        by_time = "log.flush.scheduler.interval.ms"
    promised = {
        "log.flush.interval.messages": settings.log_flush_interval_messages,
        by_time: settings.flush_ms,
    }
    for name, value in promised.items():
        if settings.log_flush == NOT_FLUSHED and value < INT64_MAX:
            problem = "all topics share one log, which is flushed as that requires"
            raise ConfigError(name, str(value), f"cannot be kept with log.flush={NOT_FLUSHED}: {problem}")
