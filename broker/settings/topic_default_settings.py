"""Broker settings that are defaults of topics and have little effect here: part of `config.Settings`.

Owns: their declarations, and the warnings about them at a start. Each is the default of a topic's
configuration; `topic_config.py` describes that and names both (`BROKER_SYNONYMS`). Those that mean more to a
broker are with their like (`log.retention.*`, `log.cleaner.*`). Kafka's names, types, defaults and bounds:
tools write back what they read. Source: Kafka's ServerTopicConfigSynonyms and ServerLogConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.broker.settings.properties import HOUR_MS, INT64_MAX, MIB, Kind, setting

_NO_LEVELS: Final = "levels of compression cannot be chosen"
NOT_TIERED: Final = "there is no tiered storage"

BROKERS_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "compression.gzip.level": _NO_LEVELS,
    "compression.lz4.level": _NO_LEVELS,
    "compression.zstd.level": _NO_LEVELS,
    "log.local.retention.bytes": NOT_TIERED,
    "log.local.retention.ms": NOT_TIERED,
    "log.remote.copy.lag.bytes": NOT_TIERED,
    "log.remote.copy.lag.ms": NOT_TIERED,
    "unclean.leader.election.enable": "a leader always has every acknowledged batch",
}
"""Names that are stored and described without effect -> why; so are the topics' names that follow them. A
value that is not Kafka's default warns."""

MAX_DECOMPRESSED_BYTES: Final = 2**31 - 9
"""Kafka's default: the largest array of Java."""

_BY_LOG_FLUSH: Final = "has no effect here: log.flush determines when data is flushed"
_EXACT: Final = "has no effect here: segment.ms is exact"

WARNINGS_AT_START: Final[Mapping[str, str]] = {
    "log.flush.interval.messages": _BY_LOG_FLUSH,
    "log.flush.interval.ms": _BY_LOG_FLUSH,
    "log.flush.scheduler.interval.ms": _BY_LOG_FLUSH,
    "log.index.interval.bytes": "has no effect here: an index has an entry per batch",
    "log.index.size.max.bytes": "has no effect here: an index has an entry per batch and needs no limit",
    "log.preallocate": "has no effect here: log files are always allocated ahead of use",
    "log.roll.jitter.hours": _EXACT,
    "log.roll.jitter.ms": _EXACT,
    "log.segment.bytes": "counts for compacted topics only: lockstep.segment.bytes sets the size of the "
    "shared log's files",
    "log.segment.delete.delay.ms": "has no effect here: files are reused, not deleted",
}
"""Warnings of a start where one of these is set: the name, and the rest of the sentence."""


@dataclass(frozen=True)
class TopicDefaultSettings:
    """The defaults of topics."""

    # --- count for compacted topics ---
    log_segment_bytes: int = setting(
        "log.segment.bytes",
        Kind.INT,
        1024 * MIB,
        "Size of a compacted topic's partition within an active segment at which that segment is "
        "sealed; segments themselves have lockstep.segment.bytes.",
        minimum=1 * MIB,
    )
    log_roll_ms: int | None = setting(
        "log.roll.ms",
        Kind.LONG,
        None,
        "Age of a compacted topic's records at which the active segment with them is sealed.",
        minimum=1,
    )
    log_roll_hours: int = setting(
        "log.roll.hours", Kind.INT, 168, "The same as log.roll.ms, which wins.", minimum=1
    )

    # --- true here, whatever the value ---
    log_roll_jitter_ms: int | None = setting(
        "log.roll.jitter.ms", Kind.LONG, None, "Without effect: log.roll.ms is exact.", minimum=0
    )
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours", Kind.INT, 0, "Without effect, as log.roll.jitter.ms, which wins.", minimum=0
    )
    log_index_size_max_bytes: int = setting(
        "log.index.size.max.bytes",
        Kind.INT,
        10 * MIB,
        "Without effect: an index has an entry per batch and needs no limit.",
        minimum=4,
    )
    log_index_interval_bytes: int = setting(
        "log.index.interval.bytes",
        Kind.INT,
        4096,
        "Without effect: an index has an entry per batch.",
        minimum=0,
    )
    log_segment_delete_delay_ms: int = setting(
        "log.segment.delete.delay.ms",
        Kind.LONG,
        60_000,
        "Without effect: segments are reused, not deleted, and never while a reader uses one.",
        minimum=0,
    )
    log_preallocate: bool = setting(
        "log.preallocate", Kind.BOOLEAN, False, "Without effect: segments are always allocated ahead of use."
    )
    log_flush_interval_messages: int = setting(
        "log.flush.interval.messages",
        Kind.LONG,
        INT64_MAX,
        "Without effect: with log.flush=always every acknowledged batch is on the disk already. "
        "Rejected with log.flush=os.",
        minimum=1,
        unit="records",
    )
    log_flush_interval_ms: int | None = setting(
        "log.flush.interval.ms", Kind.LONG, None, "Without effect, as log.flush.interval.messages.", minimum=0
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        Kind.LONG,
        INT64_MAX,
        "Without effect, as log.flush.interval.ms, which wins.",
        minimum=0,
    )

    # --- kept and shown, without effect ---
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        Kind.BOOLEAN,
        False,
        "Without effect: a leader always has every acknowledged batch.",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        Kind.INT,
        -1,
        "Without effect: levels of compression cannot be chosen.",
        choices=("-1", *map(str, range(1, 10))),
        unit="level",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        Kind.INT,
        9,
        "Without effect: levels of compression cannot be chosen.",
        minimum=1,
        maximum=17,
        unit="level",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        Kind.INT,
        3,
        "Without effect: levels of compression cannot be chosen.",
        minimum=-131_072,
        maximum=22,
        unit="level",
    )
    log_local_retention_bytes: int = setting(
        "log.local.retention.bytes",
        Kind.LONG,
        -2,
        "Without effect: there is no tiered storage.",
        minimum=-2,
    )
    log_local_retention_ms: int = setting(
        "log.local.retention.ms",
        Kind.LONG,
        -2,
        "Without effect: there is no tiered storage.",
        minimum=-2,
    )
    log_remote_copy_lag_bytes: int = setting(
        "log.remote.copy.lag.bytes",
        Kind.LONG,
        -1,
        "Without effect: there is no tiered storage.",
        minimum=-1,
    )
    log_remote_copy_lag_ms: int = setting(
        "log.remote.copy.lag.ms",
        Kind.LONG,
        0,
        "Without effect: there is no tiered storage.",
        minimum=-1,
    )

    # --- has an effect ---
    max_decompressed_message_bytes: int = setting(
        "max.decompressed.message.bytes",
        Kind.INT,
        MAX_DECOMPRESSED_BYTES,
        "Largest record of a compressed batch, decompressed. A lower value than Kafka's default has the "
        "broker open each such batch on its event loop, which is expensive.",
        minimum=1,
        maximum=MAX_DECOMPRESSED_BYTES,
    )

    @property
    def segment_ms(self) -> int:
        """A topic's `segment.ms` by default."""
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def segment_jitter_ms(self) -> int:
        """A topic's `segment.jitter.ms` by default."""
        jitter_ms = self.log_roll_jitter_ms
        return self.log_roll_jitter_hours * HOUR_MS if jitter_ms is None else jitter_ms

    @property
    def flush_ms(self) -> int:
        """A topic's `flush.ms` by default."""
        every_ms = self.log_flush_interval_ms
        return self.log_flush_scheduler_interval_ms if every_ms is None else every_ms
