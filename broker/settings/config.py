"""Every setting of the broker, each with its reason.

Owns: `Settings` (frozen) and how it is read. Sources, later ones win: defaults, a properties file with
Kafka's names, `--set key=value`, command-line flags. Settings that only Lockstep has start with `lockstep.`,
but for `log.flush`. Names without effect here warn, all in one line; misspelt names (`foreign_names.py`) and
bad values stop the start, all named in one error.
Does not: hold topic configurations (`topic_config.py`), or say what may change after the start
(`dynamic_config.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from lockstep.broker.membership.placement import MAX_DATA_VOTERS
from lockstep.broker.settings.addresses import WILDCARD_HOSTS, Listener, parse_listener
from lockstep.broker.settings.cleaner_settings import CleanerSettings
from lockstep.broker.settings.connection_settings import ConnectionSettings
from lockstep.broker.settings.consumer_group_settings import ConsumerGroupSettings
from lockstep.broker.settings.data_log_settings import DataLogSettings
from lockstep.broker.settings.foreign_names import (
    FORMER_NAMES,
    PROVIDERS,
    hint,
    is_misspelled,
    unused_names_warning,
)
from lockstep.broker.settings.kafka_names import REPLICA_SELECTORS, UNUSED_KAFKA_NAMES
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
    ConfigErrors,
    Kind,
    Property,
    properties_of,
    raise_all,
    setting,
)
from lockstep.broker.settings.topic_default_settings import (
    BROKERS_WITHOUT_EFFECT,
    DEFAULT_ONLY,
    WARNINGS_AT_START,
    TopicDefaultSettings,
)
from lockstep.broker.settings.transaction_settings import TransactionSettings

NOT_FLUSHED: Final = "os"
COMPRESSED_AS_SENT: Final = "producer"
COMPRESSION_TYPES: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", COMPRESSED_AS_SENT)

MAX_FRAME_BYTES = 16 * MIB
"""A group commit closes at this size, and a record batch never spans two."""
FRAME_OVERHEAD_BYTES = 4 * KIB
"""Room for a frame's own header and directory beside one batch."""


@dataclass(frozen=True)
class Settings(
    PeerSettings,
    DataLogSettings,
    ConnectionSettings,
    ConsumerGroupSettings,
    TransactionSettings,
    CleanerSettings,
    TopicDefaultSettings,
    MetricsSettings,
    PlayerFileSettings,
):
    """One broker's settings. Made by `load`; attribute names are the property names with underscores."""

    # --- who and where ---
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
        "NAME://HOST:PORT where the broker listens. By default this machine only: no access control.",
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
        ("PLAINTEXT:PLAINTEXT",),
        "Protocol of each listener name; only PLAINTEXT is served.",
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

    explicit: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The settings that were given, as text, by property name: DescribeConfigs reports them apart from
    defaults."""
    dynamic_node: Mapping[str, str] = field(default_factory=dict, compare=False)
    dynamic_cluster: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The changes while running, for this node and for all (`dynamic_config.py`)."""
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def directory(self) -> Path:
        return Path(self.log_dirs)

    @property
    def majority(self) -> int:
        """Replicas that hold every acknowledged write."""
        return min(len(self.peers()) or 1, MAX_DATA_VOTERS) // 2 + 1

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
        return -(-self.data_groups * min(nodes, MAX_DATA_VOTERS) // nodes)

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

    def advertised_by_name(self) -> dict[str, Listener]:
        """Listener name -> its advertised listener; names without an entry use the listener itself. An empty
        host stands for this machine's own name, as in Kafka."""
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

_ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Kafka's older names, and those that they go by here; where both are there, as in Kafka: the numbers of a
node have to be the same, and of directories the second counts."""
_ACCESS_CONTROL_NAMES: Final = {
    "authorizer.class.name": "there is no access control here: whoever connects may do anything"
}
"""Kafka's access control: a start that only warned of it would open a broker that was closed."""
REPLICATION_FACTORS: Final = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
_PAIRS: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)
"""The first must not be more than the second."""
_IGNORED_PREFIXES = ("listener.name.", "log4j.", f"{PROVIDERS}.")


HAVE_EFFECT: Final = (*PROPERTIES, *_ALIASES, *_ACCESS_CONTROL_NAMES, PROVIDERS)
"""The names with an effect, to one of which an unknown name may be similar."""
_NAMES_WITHOUT_EFFECT: Final = frozenset({*UNUSED_KAFKA_NAMES, *FORMER_NAMES, PROVIDERS})
_LISTENERS: Final = frozenset({"listeners", "advertised.listeners"})
"""Settings whose listeners are shown with the protocol, as in Kafka, even if it was left out."""


def from_texts(
    texts: Mapping[str, str], foreign: Collection[str] = (), unresolved: Sequence[ConfigError] = ()
) -> Settings:
    """Settings from property names and their text. Raises ConfigError, ConfigErrors for several: all mistakes
    in names and values, or, where there are none, all between settings.

    Args:
        foreign: names from a source that others write, too, as a properties file: an unknown one among them
            only warns unless it is misspelt; any other unknown name is an error.
        unresolved: errors in settings that are therefore not among `texts`, raised together with the others.
    """
    values: dict[str, Any] = {}
    explicit: dict[str, str] = {}
    warnings: list[str] = []
    errors = list(unresolved)
    unused: list[str] = []
    for name, text in resolve_aliases(texts, warnings).items():
        current_name = PROPERTIES.get(name)
        try:
            if current_name is None:
                _check_unknown(name, text, name in foreign)
                unused += [] if name.startswith(PROVIDERS) else [name]
            elif _is_without_effect(current_name[1], text):
                warnings.append(f"{name} has no effect here: {DEFAULT_ONLY[name]}")
            else:
                values[current_name[0]] = current_name[1].parse(text)
                explicit[name] = text
                warnings += _value_warnings(name, values[current_name[0]])
        except ConfigError as error:
            errors.append(error)
    raise_all(errors)
    if unused:
        warnings.append(unused_names_warning(unused))
    for name in _LISTENERS & explicit.keys():
        attribute = PROPERTIES[name][0]
        values[attribute] = tuple(str(parse_listener(each, name)) for each in values[attribute])
        explicit[name] = ",".join(values[attribute])
    if values.get("lockstep_peers_listener") and not values.get("lockstep_peers"):
        warnings.append("lockstep.peers.listener has no effect without lockstep.peers: this node is alone")
    for name in REPLICATION_FACTORS:
        if values.get(PROPERTIES[name][0], 0) > MAX_DATA_VOTERS:
            warnings.append(f"{name}={explicit[name]}: partitions have {MAX_DATA_VOTERS} replicas at most")
    settings = Settings(**values, explicit=explicit)
    check(settings)
    controller_listeners = [
        text for text in settings.listeners if _is_controller_listener(settings, parse_listener(text))
    ]
    if controller_listeners:
        warnings.append(
            f"listeners: {', '.join(controller_listeners)} "
            f"{'is' if len(controller_listeners) == 1 else 'are'} not served: there is "
            "no controller listener here, nodes connect to each other by lockstep.peers"
        )
    return replace(settings, warnings=tuple(warnings))


def _check_unknown(name: str, text: str, may_be_foreign: bool) -> None:
    """Raises ConfigError for an unknown name that may not be ignored."""
    if name in _ACCESS_CONTROL_NAMES and text.strip():
        raise ConfigError(name, text, _ACCESS_CONTROL_NAMES[name])
    if is_kafka_name_without_effect(name) or name in _ACCESS_CONTROL_NAMES:
        return
    if not may_be_foreign or is_misspelled(name, HAVE_EFFECT):
        raise ConfigError(name, text, f"there is no such setting{hint(name, HAVE_EFFECT)}")


def is_kafka_name_without_effect(name: str) -> bool:
    """True if Kafka has or had a setting of this name, which has no effect here."""
    return name in _NAMES_WITHOUT_EFFECT or name.startswith(_IGNORED_PREFIXES)


def _value_warnings(name: str, value: object) -> list[str]:
    """The warnings of a start for a setting with this value."""
    if name in BROKERS_WITHOUT_EFFECT and value != PROPERTIES[name][1].default:
        return [f"{name} has no effect here: {BROKERS_WITHOUT_EFFECT[name]}"]
    return [f"{name} {WARNINGS_AT_START[name]}"] if name in WARNINGS_AT_START else []


def _is_without_effect(declared: Property, text: str) -> bool:
    """True for another value of a setting that is supported with Kafka's default alone: a file written for
    Kafka starts all the same."""
    if declared.name not in DEFAULT_ONLY:
        return False
    try:
        declared.parse(text)
    except ConfigError:
        return True
    return False


def resolve_aliases(texts: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    """The settings of one source, by their current names. Raises ConfigError for a contradiction."""
    found = {}
    for name, text in texts.items():
        current_name = _ALIASES.get(name, name)
        current_text = texts.get(current_name, text) if current_name != name else text
        if current_text.strip() != text.strip():
            if current_name == "node.id":
                raise ConfigError(
                    current_name, current_text, f"not the same as {name}={text}: both number this node"
                )
            warnings.append(f"{name}={text} has no effect beside {current_name}={current_text}")
        found[current_name] = current_text
    return found


def check(settings: Settings) -> None:
    """Check the settings against each other. Raises ConfigError, ConfigErrors for several."""
    errors: list[ConfigError] = []
    checks: list[Callable[[], object]] = [
        settings.client_listeners,
        settings.advertised_by_name,
        settings.metrics_listener,
        settings.peer_listener,
        lambda: _check_flushes(settings),
        lambda: _check_directory(settings),
        lambda: _check_batches(settings),
        lambda: _check_replicas(settings),
        lambda: _check_pairs(settings),
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
    raise_all(errors)


def _check_pairs(settings: Settings) -> None:
    errors: list[ConfigError] = []
    for lower, upper in _PAIRS:
        low, high = (getattr(settings, PROPERTIES[name][0]) for name in (lower, upper))
        if low > high:
            errors.append(ConfigError(lower, str(low), f"more than {upper}={high}"))
    raise_all(errors)


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
            problem = "all topics share one log, which is flushed as that says"
            raise ConfigError(name, str(value), f"cannot be kept with log.flush={NOT_FLUSHED}: {problem}")


def _require_client_listeners(settings: Settings) -> list[Listener]:
    found = for_clients(settings)
    if not found:
        raise ConfigError("listeners", ",".join(settings.listeners), "names no listener to serve clients")
    return found


def for_clients(settings: Settings) -> list[Listener]:
    protocols: dict[str, str] = {}
    for pair in settings.listener_security_protocol_map:
        name, _, protocol = pair.partition(":")
        protocols[name.strip().upper()] = protocol.strip().upper()
    found: dict[str, Listener] = {}
    errors: list[ConfigError] = []
    for text in settings.listeners:
        listener = parse_listener(text)
        if _is_controller_listener(settings, listener):
            continue
        protocol = protocols.get(listener.name, listener.name)
        if protocol != "PLAINTEXT":
            errors.append(ConfigError("listeners", text, f"{protocol} is not served yet, only PLAINTEXT"))
        elif listener.name in found:
            errors.append(ConfigError("listeners", text, f"two listeners are named {listener.name}"))
        found[listener.name] = listener
    raise_all(errors)
    return list(found.values())


def _is_controller_listener(settings: Settings, listener: Listener) -> bool:
    return listener.name in {name.upper() for name in settings.controller_listener_names}


def property_rows(settings: Settings) -> list[tuple[Property, str | None, bool]]:
    """Every broker property with its value as text, and whether it was set (True) or is the default."""
    rows = []
    for name, (attribute, declared) in sorted(PROPERTIES.items()):
        value = getattr(settings, attribute)
        rows.append((declared, declared.show(value), name in settings.explicit))
    return rows
