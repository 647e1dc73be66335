"""The settings of the data logs' files and caches: a part of `config.Settings`."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.settings.properties import KIB, MIB, Kind, setting


@dataclass(frozen=True)
class DataLogSettings:
    """The settings of the log groups' files; `lockstep.storage.log.options` describes each."""

    lockstep_segment_bytes: int = setting(
        "lockstep.segment.bytes",
        Kind.LONG,
        64 * MIB,
        "Size of a segment. Segments are zeroed ahead of use and reused; a large one frees space "
        "late. Below 2.1 MiB message.max.bytes must be lowered, too: a batch takes half a segment at "
        "most.",
        minimum=1 * MIB,
        maximum=1024 * MIB,
    )
    lockstep_spare_segments: int = setting(
        "lockstep.spare.segments",
        Kind.INT,
        2,
        "Segments kept ready, so that a roll never waits.",
        minimum=1,
        maximum=64,
        unit="segments",
    )
    lockstep_tail_cache_bytes: int = setting(
        "lockstep.tail.cache.bytes",
        Kind.LONG,
        16 * MIB,
        "Memory for the newest batches, shared among the node's log groups: consumers that keep up "
        "read no file.",
        minimum=0,
    )
    lockstep_shared_reads_bytes: int = setting(
        "lockstep.shared.reads.bytes",
        Kind.LONG,
        8 * MIB,
        "Memory for recent reads of segments, for consumers that read the same side by side; shared "
        "among the node's log groups.",
        minimum=0,
    )
    lockstep_index_cache_bytes: int = setting(
        "lockstep.index.cache.bytes",
        Kind.LONG,
        16 * MIB,
        "Memory per log group for the indexes of sealed segments, so that memory stays flat as logs grow.",
        minimum=64 * KIB,
    )
    lockstep_reserve_bytes: int = setting(
        "lockstep.reserve.bytes",
        Kind.LONG,
        256 * KIB,
        "Room kept free in the log for deletions and log starts, so that a full disk can be emptied again.",
        minimum=64 * KIB,
    )
    lockstep_scrub_interval_ms: int = setting(
        "lockstep.scrub.interval.ms",
        Kind.LONG,
        7 * 24 * 3600 * 1000,
        "Interval at which each sealed segment is read to find corruption, which is repaired from "
        "other nodes; 0: never.",
        minimum=0,
    )
