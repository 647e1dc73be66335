"""Every setting of the broker, each with its reason.

Owns: `Settings` (frozen). Settings that only Lockstep has start with `lockstep.`, but for `log.flush`.
Does not: read them (`settings_reader.py`), check them against each other (`settings_checks.py`), hold topic
configurations (`topic_config.py`), or know what may change after the start (`dynamic_config.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lockstep.broker.membership.placement import MAX_DATA_VOTERS
from lockstep.broker.settings.addresses import WILDCARD_HOSTS, Listener, parse_listener
from lockstep.broker.settings.authorizer_settings import AuthorizerSettings
from lockstep.broker.settings.cleaner_settings import CleanerSettings
from lockstep.broker.settings.connection_settings import ConnectionSettings
from lockstep.broker.settings.consumer_group_settings import ConsumerGroupSettings
from lockstep.broker.settings.data_log_settings import DataLogSettings
from lockstep.broker.settings.delegation_token_settings import DelegationTokenSettings
from lockstep.broker.settings.kafka_names import REPLICA_SELECTORS
from lockstep.broker.settings.metrics_settings import MetricsSettings
from lockstep.broker.settings.peer_settings import PeerSettings
from lockstep.broker.settings.player_settings import PlayerFileSettings
from lockstep.broker.settings.properties import (
    HOUR_MS,
    INT64_MAX,
    KIB,
    MIB,
    REPLICAS_ARE_THE_GROUPS,
    ConfigError,
    Kind,
    properties_of,
    raise_all,
    setting,
)
from lockstep.broker.settings.quota_settings import QuotaSettings
from lockstep.broker.settings.security_settings import ListenerSecurity, SecuritySettings
from lockstep.broker.settings.topic_default_settings import (
    TopicDefaultSettings,
)
from lockstep.broker.settings.transaction_settings import TransactionSettings

NOT_FLUSHED: Final = "os"
COMPRESSED_AS_SENT: Final = "producer"
COMPRESSION_TYPES: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", COMPRESSED_AS_SENT)

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
TLS_PROTOCOLS: Final = (SSL, SASL_SSL)
SASL_PROTOCOLS: Final = (SASL_PLAINTEXT, SASL_SSL)
PROTOCOLS: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""The security protocols of listeners that are served."""

MAX_FRAME_BYTES = 16 * MIB
"""A group commit closes at this size, and a record batch never spans two."""
FRAME_OVERHEAD_BYTES = 4 * KIB
"""Room for a frame's own header and directory beside one batch."""


@dataclass(frozen=True)
class Settings(
    PeerSettings,
    DataLogSettings,
    ConnectionSettings,
    SecuritySettings,
    ConsumerGroupSettings,
    TransactionSettings,
    CleanerSettings,
    TopicDefaultSettings,
    MetricsSettings,
    PlayerFileSettings,
    AuthorizerSettings,
    DelegationTokenSettings,
    QuotaSettings,
):
    """One broker's settings. Made by `load`; attribute names are the property names with underscores."""

    # --- node and listeners ---
    broker_rack: str | None = setting(
        "broker.rack", Kind.STRING, None, "The rack of this node, which clients see."
    )
    replica_selector_class: str | None = setting(
        "replica.selector.class",
        Kind.STRING,
        None,
        "The replica from which a consumer with client.rack reads: the leader, or a follower in its rack.",
        choices=REPLICA_SELECTORS,
    )
    listeners: tuple[str, ...] = setting(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://localhost:9092",),
        "NAME://HOST:PORT where the broker listens. By default this machine only.",
    )
    advertised_listeners: tuple[str, ...] = setting(
        "advertised.listeners",
        Kind.LIST,
        (),
        "The addresses that the broker gives to clients. By default the listeners, with the address "
        "that a client itself used where a listener takes all addresses.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        "listener.security.protocol.map",
        Kind.LIST,
        tuple(f"{each}:{each}" for each in PROTOCOLS),
        "Protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        "controller.listener.names",
        Kind.LIST,
        (),
        "The broker ignores listeners of these names: Lockstep's metadata needs none.",
    )
    log_dirs: str = setting("log.dirs", Kind.STRING, "data", "The data directory; only one.")
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable",
        Kind.BOOLEAN,
        True,
        "Return the leadership of a log group to its preferred node once that node is in sync.",
    )

    # --- topics ---
    num_partitions: int = setting(
        "num.partitions", Kind.INT, 1, "Partitions of a topic by default.", minimum=1, unit="partitions"
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", Kind.BOOLEAN, True, "Create a topic when a client requests its metadata."
    )
    delete_topic_enable: bool = setting("delete.topic.enable", Kind.BOOLEAN, True, "Topics may be deleted.")
    default_replication_factor: int = setting(
        "default.replication.factor", Kind.INT, 1, REPLICAS_ARE_THE_GROUPS, minimum=1, unit="replicas"
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "Replicas that must have a write before it is acknowledged; a majority always has.",
        minimum=1,
        unit="replicas",
    )
    lockstep_data_groups: int | None = setting(
        "lockstep.data.groups",
        Kind.INT,
        None,
        "Number of log groups for topics, fixed when a cluster starts for the first time. By default "
        "one per node, so that each node leads one.",
        minimum=1,
        maximum=64,
        unit="log groups",
    )
    lockstep_data_replicas: int = setting(
        "lockstep.data.replicas",
        Kind.INT,
        MAX_DATA_VOTERS,
        "Replicas of each log group for topics, fixed when a cluster starts for the first time. 3: as many "
        "as there are nodes, at most three. 1: each partition is on one node alone, as for "
        "`lockstep serve --processes`; a node whose disk is lost then takes its records with it.",
        choices=("1", str(MAX_DATA_VOTERS)),
        unit="replicas",
    )
    lockstep_spare_wait_ms: int = setting(
        "lockstep.spare.wait.ms",
        Kind.INT,
        20,
        "Delay with which the leader sends records to deferred voters, those that no majority needs, "
        "in larger requests; without a commit for 3 ms it sends at once. 0: no delay, as where "
        "replica.selector.class is set.",
        minimum=0,
        maximum=30,
    )
    lockstep_max_partitions: int = setting(
        "lockstep.max.partitions",
        Kind.INT,
        50_000,
        "Limit of partitions on this broker. Each takes about 1 KB of memory and a line in every checkpoint.",
        minimum=1,
        unit="partitions",
    )
    lockstep_max_partitions_per_request: int = setting(
        "lockstep.max.partitions.per.request",
        Kind.INT,
        10_000,
        "Partitions that one CreateTopics request may create, as in Kafka: more would stall others.",
        minimum=1,
        unit="partitions",
    )
    lockstep_max_topics_per_metadata: int = setting(
        "lockstep.max.topics.per.metadata",
        Kind.INT,
        100,
        "Topics that one Metadata request may create; the others are unknown, and clients retry.",
        minimum=1,
        unit="topics",
    )

    # --- the log ---
    log_flush: str = setting(
        "log.flush",
        Kind.STRING,
        "always",
        "always: an acknowledged batch is on the disk. os: it is in the system's memory, as in Kafka.",
        choices=("always", NOT_FLUSHED),
    )
    log_retention_ms: int | None = setting(
        "log.retention.ms", Kind.LONG, None, "How long records are kept; -1: forever.", minimum=-1
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes",
        Kind.INT,
        None,
        "How long records are kept; log.retention.ms wins. -1: forever.",
        minimum=-1,
    )
    log_retention_hours: int = setting(
        "log.retention.hours",
        Kind.INT,
        168,
        "How long records are kept; log.retention.minutes and log.retention.ms win. -1: forever.",
        minimum=-1,
    )
    log_retention_bytes: int = setting(
        "log.retention.bytes", Kind.LONG, -1, "Bytes kept per partition; -1: all.", minimum=-1
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "Interval at which retention is enforced.",
        minimum=1,
    )
    log_message_timestamp_type: str = setting(
        "log.message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "The clock of record timestamps: the producer's or the broker's. LogAppendTime costs a second "
        "checksum per batch.",
        choices=("CreateTime", "LogAppendTime"),
    )
    log_message_timestamp_before_max_ms: int = setting(
        "log.message.timestamp.before.max.ms",
        Kind.LONG,
        INT64_MAX,
        "How far in the past a producer's timestamp may lie. A value below the default makes the "
        "broker read each record, which is expensive.",
        minimum=0,
    )
    log_message_timestamp_after_max_ms: int = setting(
        "log.message.timestamp.after.max.ms",
        Kind.LONG,
        HOUR_MS,
        "How far in the future a producer's timestamp may lie: one far ahead would block retention.",
        minimum=0,
    )
    compression_type: str = setting(
        "compression.type",
        Kind.STRING,
        COMPRESSED_AS_SENT,
        "producer: batches stay as they were sent. Otherwise the broker compresses batches of topics "
        "without a setting of their own; batches with more than 8 MiB of records stay as they are.",
        choices=COMPRESSION_TYPES,
    )
    message_max_bytes: int = setting(
        "message.max.bytes",
        Kind.INT,
        1_048_588,
        "Largest record batch, as in Kafka; topics may set a larger value, up to the size of a group commit.",
        minimum=0,
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "How long an idle producer's sequence numbers are kept.",
        minimum=1,
    )
    lockstep_uncommitted_max_bytes: int = setting(
        "lockstep.uncommitted.max.bytes",
        Kind.LONG,
        512 * MIB,
        "Appended bytes per log group that may wait for the disk; beyond it producers get a retriable "
        "error. It is more than `queued.max.request.bytes`, so that producers wait for each other "
        "instead.",
        minimum=MAX_FRAME_BYTES,
    )

    explicit: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The settings that were given, as text, by property name: DescribeConfigs reports them apart from
    defaults."""
    dynamic_node: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    dynamic_cluster: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """The changes while running, for this node and for all (`dynamic_config.py`)."""
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def directory(self) -> Path:
        return Path(self.log_dirs)

    @property
    def majority(self) -> int:
        """Replicas that hold every acknowledged write."""
        return min(len(self.peers()) or 1, self.lockstep_data_replicas) // 2 + 1

    @property
    def spare_wait_ms(self) -> int:
        """The delay of records to replicas that no majority needs; 0 where consumers read from them."""
        return 0 if self.replica_selector_class else self.lockstep_spare_wait_ms

    @property
    def data_groups(self) -> int:
        """Data groups of a cluster that starts for the first time."""
        return self.lockstep_data_groups or len(self.peers()) or 1

    @property
    def local_data_groups(self) -> int:
        """The number of them that each node has a replica of, if they are spread evenly."""
        nodes = len(self.peers()) or 1
        return -(-self.data_groups * min(nodes, self.lockstep_data_replicas) // nodes)

    @property
    def retention_ms(self) -> int:
        """The default retention of records; -1 for ever."""
        if self.log_retention_ms is not None:
            return self.log_retention_ms
        if self.log_retention_minutes is not None:
            return self.log_retention_minutes * 60_000 if self.log_retention_minutes >= 0 else -1
        return self.log_retention_hours * HOUR_MS if self.log_retention_hours >= 0 else -1

    @property
    def largest_batch_bytes(self) -> int:
        """The largest record batch any topic may allow: it must fit one group commit of one segment."""
        return min(MAX_FRAME_BYTES, self.lockstep_segment_bytes // 2) - FRAME_OVERHEAD_BYTES

    def client_listeners(self) -> list[Listener]:
        """The listeners to serve. Raises ConfigError."""
        return _require_client_listeners(self)

    def protocol_of(self, listener: Listener) -> str:
        """The security protocol of a listener."""
        return self.protocol_named(listener.name)

    def protocol_named(self, listener_name: str) -> str:
        """The security protocol of the listener of this name."""
        return _protocols(self).get(listener_name, listener_name)

    def security_of(self, listener: Listener) -> ListenerSecurity:
        """The security settings of a listener, those changed while running included."""
        return self.security_named(listener.name)

    def security_named(self, listener_name: str) -> ListenerSecurity:
        """The security settings of the listener of this name, or of the replication listener."""
        changed = {**self.dynamic_cluster, **self.dynamic_node}
        return ListenerSecurity(self, listener_name, {**self.listener_texts, **changed})

    def advertised_by_name(self) -> dict[str, Listener]:
        """Listener name -> its advertised listener; names without an entry use the listener itself. An empty
        host means this machine's own name, as in Kafka."""
        listeners = [parse_listener(text, "advertised.listeners") for text in self.advertised_listeners]
        for listener in listeners:
            if listener.host in WILDCARD_HOSTS - {""}:
                raise ConfigError(
                    "advertised.listeners", str(listener), "no client can connect to this address"
                )
        names = {listener.name for listener in self.client_listeners()}
        for listener in listeners:
            if listener.name not in names and listener.name not in self.controller_listener_names:
                raise ConfigError("advertised.listeners", str(listener), "no listener has this name")
        return {listener.name: listener for listener in listeners}


PROPERTIES = properties_of(Settings)
"""Property name -> (attribute of Settings, its declaration)."""


def _require_client_listeners(settings: Settings) -> list[Listener]:
    found = for_clients(settings)
    if not found:
        raise ConfigError("listeners", ",".join(settings.listeners), "names no listener to serve clients")
    return found


def for_clients(settings: Settings) -> list[Listener]:
    protocols = _protocols(settings)
    found: dict[str, Listener] = {}
    errors: list[ConfigError] = []
    for text in settings.listeners:
        listener = parse_listener(text)
        if is_controller_listener(settings, listener):
            continue
        protocol = protocols.get(listener.name, listener.name)
        if protocol not in PROTOCOLS:
            problem = f"{protocol} is not served, only {', '.join(PROTOCOLS)}"
            errors.append(ConfigError("listeners", text, problem))
        elif listener.name in found:
            errors.append(ConfigError("listeners", text, f"two listeners are named {listener.name}"))
        found[listener.name] = listener
    raise_all(errors)
    return list(found.values())


def _protocols(settings: Settings) -> dict[str, str]:
    """Listener name -> its protocol, as far as the map has it."""
    pairs = [pair.partition(":") for pair in settings.listener_security_protocol_map]
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def is_controller_listener(settings: Settings, listener: Listener) -> bool:
    """True for a listener of Kafka's controllers, which is not served here."""
    return listener.name in {name.upper() for name in settings.controller_listener_names}
