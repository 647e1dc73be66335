"""Topic configurations: each takes effect, always holds here, is stored without effect (`WITHOUT_EFFECT`), or
is accepted only with Kafka's default (`ABSENT_FEATURES`).

Owns: `TopicConfig` (what the broker acts on) and how overrides are checked. Invariants: a topic's stored
overrides were valid when they were accepted, and stay stored whatever the broker's settings become; a default
follows the broker's own setting, also while that changes. A configuration never names a class, a path or an
address. Does not: store anything (`broker/metadata/metadata_image.py` does) or describe it to clients
(`described_config.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lockstep.broker.settings.config import (
    COMPRESSED_AS_SENT,
    COMPRESSION_TYPES,
    NOT_FLUSHED,
    PROPERTIES,
    Settings,
)
from lockstep.broker.settings.properties import HOUR_MS, INT64_MAX, ConfigError, Kind, properties_of, setting
from lockstep.broker.settings.suggestions import Suggestions
from lockstep.broker.settings.topic_default_settings import (
    BROKERS_WITHOUT_EFFECT,
    MAX_DECOMPRESSED_BYTES,
    NOT_TIERED,
)

LOCKS_IGNORED: Final = "ignore"
LOCKS_KEPT: Final = "true"
LOCKS_REJECTED: Final = "false"


class InvalidTopicConfig(ValueError):
    """A configuration that is unknown, malformed, or not what this broker does; the text names it."""


def _as_of_brokers(name: str, broker_name: str, doc: str) -> Any:
    """A configuration of the type, default, bounds and unit of the broker setting that it follows."""
    _, followed = PROPERTIES[broker_name]
    return setting(
        name,
        followed.kind,
        followed.default,
        doc,
        minimum=followed.minimum,
        maximum=followed.maximum,
        choices=followed.choices,
        unit=followed.unit,
    )


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic's configuration. Attribute names are the configuration's, with underscores."""

    # --- take effect ---
    retention_ms: int = setting(
        "retention.ms", Kind.LONG, 168 * HOUR_MS, "How long records are kept; -1: forever.", minimum=-1
    )
    retention_bytes: int = setting(
        "retention.bytes",
        Kind.LONG,
        -1,
        "Bytes kept per partition; -1: all. Enforced when a segment is sealed.",
        minimum=-1,
    )
    max_message_bytes: int = setting(
        "max.message.bytes", Kind.INT, 1_048_588, "Largest record batch accepted.", minimum=0
    )
    max_decompressed_message_bytes: int = setting(
        "max.decompressed.message.bytes",
        Kind.INT,
        MAX_DECOMPRESSED_BYTES,
        "Largest record of a compressed batch, decompressed. A lower value than Kafka's default has the "
        "broker open each such batch on its event loop, which is expensive.",
        minimum=1,
        maximum=MAX_DECOMPRESSED_BYTES,
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        Kind.STRING,
        "CreateTime",
        "The clock of record timestamps: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"),
    )
    timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        Kind.LONG,
        INT64_MAX,
        "How far in the past a producer's timestamp may lie; not used with LogAppendTime. A value "
        "below the default makes the broker read each record on its event loop, which is expensive.",
        minimum=0,
    )
    timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        Kind.LONG,
        HOUR_MS,
        "How far in the future a producer's timestamp may lie; not used with LogAppendTime.",
        minimum=0,
    )
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        Kind.LIST,
        ("delete",),
        "delete: records go by age and size. compact: the last record of each key stays. Both or "
        "neither may be set.",
        choices=("delete", "compact"),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        Kind.LONG,
        86_400_000,
        "How long tombstones stay after they were compacted, so that consumers that read from the "
        "start see them.",
        minimum=0,
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "Share of a partition that must be new since it was compacted.",
        minimum=0,
        maximum=1,
        unit="ratio",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Least age of a record that is compacted.",
        minimum=0,
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        Kind.LONG,
        INT64_MAX,
        "Age at which a record is compacted, whatever the ratio; the active segment with it is sealed "
        "for that.",
        minimum=1,
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        Kind.INT,
        1,
        "Replicas that must have a write before it is acknowledged; a majority always has.",
        minimum=1,
        unit="replicas",
    )
    lockstep_group: int | None = setting(
        "lockstep.group",
        Kind.INT,
        None,
        "The log group of all partitions of this topic, which then share one order. Fixed at creation.",
        minimum=1,
        unit="log group id",
    )
    lockstep_locks: str = setting(
        "lockstep.locks",
        Kind.STRING,
        LOCKS_IGNORED,
        "true: headers lockstep-… make a record's append conditional. false: records with locks are "
        "rejected. ignore: the broker does not open records, and their headers belong to the clients.",
        choices=(LOCKS_IGNORED, LOCKS_KEPT, LOCKS_REJECTED),
    )

    compression_type: str = setting(
        "compression.type",
        Kind.STRING,
        COMPRESSED_AS_SENT,
        "producer: batches stay as they were sent. Otherwise the broker compresses batches of another "
        "codec on its event loop; batches with more than 8 MiB of records stay as they are.",
        choices=COMPRESSION_TYPES,
    )

    # --- take effect for compacted topics only ---
    segment_bytes: int = _as_of_brokers(
        "segment.bytes",
        "log.segment.bytes",
        "Size of a compacted topic's partition within an active segment at which that segment is "
        "sealed for compaction. Otherwise without effect: partitions share segments of "
        "lockstep.segment.bytes.",
    )
    segment_ms: int = setting(
        "segment.ms",
        Kind.LONG,
        168 * HOUR_MS,
        "Age of a compacted topic's records at which the active segment with them is sealed for "
        "compaction. Otherwise without effect: retention by time does not wait for that.",
        minimum=1,
    )

    # --- always in effect, whatever the value ---
    flush_messages: int = _as_of_brokers(
        "flush.messages",
        "log.flush.interval.messages",
        "Without effect: with log.flush=always every acknowledged batch is on the disk already. "
        "Rejected with log.flush=os.",
    )
    flush_ms: int = setting(
        "flush.ms",
        Kind.LONG,
        INT64_MAX,
        "Without effect: with log.flush=always every acknowledged batch is on the disk already. "
        "Rejected with log.flush=os.",
        minimum=0,
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms", Kind.LONG, 0, "Without effect: segment.ms is exact.", minimum=0
    )
    segment_index_bytes: int = _as_of_brokers(
        "segment.index.bytes",
        "log.index.size.max.bytes",
        "Without effect: an index has an entry per batch and needs no limit.",
    )
    index_interval_bytes: int = _as_of_brokers(
        "index.interval.bytes",
        "log.index.interval.bytes",
        "Without effect: an index has an entry per batch.",
    )
    file_delete_delay_ms: int = _as_of_brokers(
        "file.delete.delay.ms",
        "log.segment.delete.delay.ms",
        "Without effect: segments are reused, not deleted, and never while a reader uses one.",
    )
    preallocate: bool = _as_of_brokers(
        "preallocate",
        "log.preallocate",
        "Without effect: segments are always allocated ahead of use.",
    )

    # --- kept and shown, without effect (`WITHOUT_EFFECT`) ---
    unclean_leader_election_enable: bool = _as_of_brokers(
        "unclean.leader.election.enable",
        "unclean.leader.election.enable",
        "Without effect: a leader always has every acknowledged batch.",
    )
    compression_gzip_level: int = _as_of_brokers(
        "compression.gzip.level", "compression.gzip.level", "Without effect: levels cannot be chosen."
    )
    compression_lz4_level: int = _as_of_brokers(
        "compression.lz4.level", "compression.lz4.level", "Without effect: levels cannot be chosen."
    )
    compression_zstd_level: int = _as_of_brokers(
        "compression.zstd.level", "compression.zstd.level", "Without effect: levels cannot be chosen."
    )
    local_retention_bytes: int = _as_of_brokers(
        "local.retention.bytes", "log.local.retention.bytes", "Without effect: there is no tiered storage."
    )
    local_retention_ms: int = _as_of_brokers(
        "local.retention.ms", "log.local.retention.ms", "Without effect: there is no tiered storage."
    )
    remote_copy_lag_bytes: int = _as_of_brokers(
        "remote.copy.lag.bytes", "log.remote.copy.lag.bytes", "Without effect: there is no tiered storage."
    )
    remote_copy_lag_ms: int = _as_of_brokers(
        "remote.copy.lag.ms", "log.remote.copy.lag.ms", "Without effect: there is no tiered storage."
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable", Kind.BOOLEAN, False, "Without effect: there is no tiered storage."
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable", Kind.BOOLEAN, False, "Without effect: there is no tiered storage."
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Without effect: there are no replication quotas.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        Kind.LIST,
        (),
        "Without effect: there are no replication quotas.",
    )
    errors_deadletterqueue_group_enable: bool = setting(
        "errors.deadletterqueue.group.enable",
        Kind.BOOLEAN,
        False,
        "Without effect: there are no share groups.",
    )
    internal_segment_bytes: int | None = setting(
        "internal.segment.bytes",
        Kind.INT,
        None,
        "Without effect: Kafka's own tests set it.",
        is_internal=True,
    )

    # --- Kafka's default only (`ABSENT_FEATURES`) ---
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        Kind.BOOLEAN,
        False,
        "Only false is accepted: there is no tiered storage.",
    )

    overrides: Mapping[str, str] = field(default_factory=dict, compare=False)
    """The topic's own overrides, by configuration name."""

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_only_compacted(self) -> bool:
        """True if DeleteRecords is rejected. It is allowed with an empty cleanup.policy (KAFKA-19112)."""
        return self.is_compacted and "delete" not in self.cleanup_policy


TOPIC_PROPERTIES = properties_of(TopicConfig)
"""Configuration name -> (attribute of TopicConfig, its declaration)."""

ABSENT_FEATURES: Final = {"remote.storage.enable": "tiered storage"}
"""Kafka's names of which only the default is accepted -> the feature that another value would need. Tools
write back the default that they read; another value would change where records are stored."""

_THROTTLED: Final = re.compile(r"[0-9]{1,9}:[0-9]{1,9}", re.ASCII)

MAX_QUOTED = 250
"""Characters of a client's text that an error text repeats."""

FIXED_AT_CREATION = frozenset({"lockstep.group"})
"""Configurations that cannot change: a partition stays in the log group that it was created in."""

BROKER_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "retention.bytes": ("log.retention.bytes",),
    "max.message.bytes": ("message.max.bytes",),
    "message.timestamp.type": ("log.message.timestamp.type",),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms",),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms",),
    "min.insync.replicas": ("min.insync.replicas",),
    "cleanup.policy": ("log.cleanup.policy",),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms",),
    "min.cleanable.dirty.ratio": ("log.cleaner.min.cleanable.ratio",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms",),
    "compression.type": ("compression.type",),
    "compression.gzip.level": ("compression.gzip.level",),
    "compression.lz4.level": ("compression.lz4.level",),
    "compression.zstd.level": ("compression.zstd.level",),
    "segment.bytes": ("log.segment.bytes",),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "segment.index.bytes": ("log.index.size.max.bytes",),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "file.delete.delay.ms": ("log.segment.delete.delay.ms",),
    "preallocate": ("log.preallocate",),
    "flush.messages": ("log.flush.interval.messages",),
    "flush.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable",),
    "local.retention.bytes": ("log.local.retention.bytes",),
    "local.retention.ms": ("log.local.retention.ms",),
    "max.decompressed.message.bytes": ("max.decompressed.message.bytes",),
    "remote.copy.lag.bytes": ("log.remote.copy.lag.bytes",),
    "remote.copy.lag.ms": ("log.remote.copy.lag.ms",),
}
"""The broker settings behind a configuration's default, the strongest first; Kafka's, all of them."""

_NO_QUOTAS: Final = "there are no replication quotas"
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "errors.deadletterqueue.group.enable": "there are no share groups",
    "follower.replication.throttled.replicas": _NO_QUOTAS,
    "internal.segment.bytes": "partitions share log files of lockstep.segment.bytes",
    "leader.replication.throttled.replicas": _NO_QUOTAS,
    "remote.log.copy.disable": NOT_TIERED,
    "remote.log.delete.on.disable": NOT_TIERED,
    **{
        name: BROKERS_WITHOUT_EFFECT[brokers[0]]
        for name, brokers in BROKER_SYNONYMS.items()
        if brokers[0] in BROKERS_WITHOUT_EFFECT
    },
}
"""Kafka's names that are stored and described without effect -> why. No value of theirs would change which
records are accepted or kept, so a topic that is copied keeps them all; one that is not Kafka's default is
logged as a warning."""

_SUGGESTIONS: Final = Suggestions(
    {name: name for name in TOPIC_PROPERTIES}
    | {brokers[0]: name for name, brokers in BROKER_SYNONYMS.items() if brokers[0] not in TOPIC_PROPERTIES}
)
"""The suggestions also know the brokers' names of configurations."""


def broker_defaults(settings: Settings) -> dict[str, object]:
    """TopicConfig attributes that follow the broker's settings; those of one value only need not."""
    return {
        "retention_ms": settings.retention_ms,
        "retention_bytes": settings.log_retention_bytes,
        "max_message_bytes": settings.message_max_bytes,
        "message_timestamp_type": settings.log_message_timestamp_type,
        "timestamp_before_max_ms": settings.log_message_timestamp_before_max_ms,
        "timestamp_after_max_ms": settings.log_message_timestamp_after_max_ms,
        "min_insync_replicas": settings.min_insync_replicas,
        "cleanup_policy": settings.log_cleanup_policy,
        "compression_type": settings.compression_type,
        "delete_retention_ms": settings.log_cleaner_delete_retention_ms,
        "min_cleanable_dirty_ratio": settings.log_cleaner_min_cleanable_ratio,
        "min_compaction_lag_ms": settings.log_cleaner_min_compaction_lag_ms,
        "max_compaction_lag_ms": settings.log_cleaner_max_compaction_lag_ms,
        "segment_bytes": settings.log_segment_bytes,
        "segment_ms": settings.segment_ms,
        "segment_jitter_ms": settings.segment_jitter_ms,
        "segment_index_bytes": settings.log_index_size_max_bytes,
        "index_interval_bytes": settings.log_index_interval_bytes,
        "file_delete_delay_ms": settings.log_segment_delete_delay_ms,
        "preallocate": settings.log_preallocate,
        "flush_messages": settings.log_flush_interval_messages,
        "flush_ms": settings.flush_ms,
        "unclean_leader_election_enable": settings.unclean_leader_election_enable,
        "compression_gzip_level": settings.compression_gzip_level,
        "compression_lz4_level": settings.compression_lz4_level,
        "compression_zstd_level": settings.compression_zstd_level,
        "max_decompressed_message_bytes": settings.max_decompressed_message_bytes,
        "local_retention_bytes": settings.log_local_retention_bytes,
        "local_retention_ms": settings.log_local_retention_ms,
        "remote_copy_lag_bytes": settings.log_remote_copy_lag_bytes,
        "remote_copy_lag_ms": settings.log_remote_copy_lag_ms,
    }


def topic_config(overrides: Mapping[str, str], settings: Settings) -> TopicConfig:
    """The configuration of a topic that sets `overrides`. Raises InvalidTopicConfig."""
    values = broker_defaults(settings)
    for name, text in overrides.items():
        values.update([topic_value(name, text)])
    config = TopicConfig(**values, overrides=dict(overrides))  # type: ignore[arg-type]
    for _, problem in _conflicts(config, settings):
        raise InvalidTopicConfig(problem)
    return config


def restored_config(overrides: Mapping[str, str], settings: Settings) -> tuple[TopicConfig, list[str]]:
    """The configuration of a topic accepted earlier, and what of it does not hold with today's settings.

    What the topic sets itself goes before the brokers' defaults, above all its locks, which writers rely on.
    What cannot hold stays stored: no change of something else drops it unseen, and it holds again where the
    settings do.
    """
    values = broker_defaults(settings)
    problems: list[str] = []
    for name, text in overrides.items():
        try:
            values.update([topic_value(name, text)])
        except InvalidTopicConfig as error:
            problems.append(f"{error}; the default is used")
    known = {name: text for name, text in overrides.items() if name in TOPIC_PROPERTIES}
    config = TopicConfig(**values, overrides=known)  # type: ignore[arg-type]
    for replaced, problem in _conflicts(config, settings):
        config = replace(config, **replaced)
        used = (
            f"{name}={declared.show(replaced[attribute])}"
            for name, (attribute, declared) in TOPIC_PROPERTIES.items()
            if attribute in replaced
        )
        problems.append(f"{problem}; in force: {', '.join(used)}")
    return config, problems


def topic_value(name: str, text: str) -> tuple[str, object]:
    """Attribute of TopicConfig and value of one setting. Raises InvalidTopicConfig."""
    known = TOPIC_PROPERTIES.get(name)
    if known is None:
        raise InvalidTopicConfig(f"Unknown topic config name: {name[:MAX_QUOTED]}{_SUGGESTIONS.hint(name)}")
    attribute, declared = known
    try:
        value = declared.parse(text)
    except ConfigError as error:
        problem = f"Invalid value {text[:MAX_QUOTED]} for configuration {name}: {error.problem}"
        raise InvalidTopicConfig(problem) from None
    if name in ABSENT_FEATURES and value != declared.default:
        raise InvalidTopicConfig(
            f"{name} is rejected: this broker has no {ABSENT_FEATURES[name]}, and takes only Kafka's "
            f"default: '{declared.show(declared.default)}'"
        )
    if name.endswith(".replication.throttled.replicas"):
        _check_throttled(name, value)
    return attribute, value


def _check_throttled(name: str, replicas: tuple[str, ...]) -> None:
    """Kafka's ThrottledReplicaListValidator. Raises InvalidTopicConfig."""
    if replicas != ("*",) and not all(_THROTTLED.fullmatch(each) for each in replicas):
        raise InvalidTopicConfig(
            f"Invalid value {','.join(replicas)[:MAX_QUOTED]} for configuration {name}: must be the "
            "literal '*' or a list of replicas, PARTITION:BROKER,PARTITION:BROKER,..."
        )


def without_effect(overrides: Mapping[str, str], former: Mapping[str, str] | None = None) -> list[str]:
    """A warning for each valid override without effect here that differs from `former`."""
    lines = []
    for name, reason in sorted(WITHOUT_EFFECT.items()):
        text = overrides.get(name)
        if text is None or text == (former or {}).get(name):
            continue
        declared = TOPIC_PROPERTIES[name][1]
        if declared.parse(text) != declared.default:
            lines.append(f"{name}={text[:MAX_QUOTED]} is kept and has no effect here: {reason}")
    return lines


def _conflicts(config: TopicConfig, settings: Settings) -> Iterator[tuple[dict[str, Any], str]]:
    """The conflicts of valid values with each other: the required value, and the error text."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        is_own = "max.compaction.lag.ms" in config.overrides
        lag_ms = config.max_compaction_lag_ms if is_own else config.min_compaction_lag_ms
        yield (
            {"min_compaction_lag_ms" if is_own else "max_compaction_lag_ms": lag_ms},
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )
    if config.max_message_bytes > settings.largest_batch_bytes:
        yield (
            {"max_message_bytes": settings.largest_batch_bytes},
            f"Invalid value {config.max_message_bytes} for configuration max.message.bytes: "
            f"at most {settings.largest_batch_bytes} fits one group commit",
        )
    if config.min_insync_replicas > settings.majority:
        yield (
            {"min_insync_replicas": settings.majority},
            f"Invalid value {config.min_insync_replicas} for configuration min.insync.replicas: "
            f"must be at most {settings.majority}, the replicas that hold every acknowledged write",
        )
    if settings.log_flush == NOT_FLUSHED and min(config.flush_messages, config.flush_ms) < INT64_MAX:
        yield (
            {"flush_messages": INT64_MAX, "flush_ms": INT64_MAX},
            "flush.messages and flush.ms cannot be kept with log.flush=os: all topics share one log",
        )
    if config.lockstep_locks == LOCKS_KEPT and config.is_compacted:
        yield (
            {"cleanup_policy": tuple(each for each in config.cleanup_policy if each != "compact")},
            "conflict topic config setting lockstep.locks (true) and cleanup.policy (compact): a writer "
            "that catches up with a lock may not find the record that raised it",
        )
