"""The settings of the log cleaner, each with its reason: a part of `config.Settings`.

Kafka's names, defaults and bounds; those of its buffers and threads have no counterpart here and warn.
Source: Kafka's CleanerConfig.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from lockstep.broker.settings.properties import INT64_MAX, Kind, setting


@dataclass(frozen=True)
class CleanerSettings:
    """The settings of compaction, and the defaults of topics."""

    log_cleanup_policy: tuple[str, ...] = setting(
        "log.cleanup.policy",
        Kind.LIST,
        ("delete",),
        "delete: records go by age and size. compact: the last record of each key stays. Or both.",
        choices=("delete", "compact"),
    )
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        Kind.BOOLEAN,
        True,
        "Compact topics with cleanup.policy=compact.",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "Pause between two passes of the cleaner.",
        minimum=0,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        128 << 20,
        "Memory for the keys of one pass, some 200 bytes each; more keys take more passes.",
        minimum=1 << 10,
        unit="bytes",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        Kind.DOUBLE,
        sys.float_info.max,
        "Limit of what the cleaner reads and writes in a second.",
        minimum=1,
        unit="bytes/s",
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        "log.cleaner.min.cleanable.ratio",
        Kind.DOUBLE,
        0.5,
        "Share of a partition that must be new since it was compacted.",
        minimum=0,
        maximum=1,
        unit="ratio",
    )
    log_cleaner_delete_retention_ms: int = setting(
        "log.cleaner.delete.retention.ms",
        Kind.LONG,
        86_400_000,
        "How long tombstones stay after they were compacted.",
        minimum=0,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        "log.cleaner.min.compaction.lag.ms",
        Kind.LONG,
        0,
        "Least age of a record that is compacted.",
        minimum=0,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        "log.cleaner.max.compaction.lag.ms",
        Kind.LONG,
        INT64_MAX,
        "Age at which a record is compacted, whatever the ratio.",
        minimum=1,
    )
