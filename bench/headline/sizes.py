"""The sizes of the headline's blocks. Owns the numbers; runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bench.settings import FAN_OUT_BYTES, FLUSH, OS, Sizes

SMALL_RECORD_BYTES = 100
MANY_PRODUCERS = 64
NODES_PARTITIONS = 16


@dataclass(frozen=True)
class HeadlineSizes(Sizes):
    """`Sizes` for one session, and what only the headline has."""

    small_records: int = 4_500_000
    """Of 100 bytes, for either policy."""
    small_warmup_records: int = 1_500_000
    fan_out_bytes: int = FAN_OUT_BYTES
    """Written once, read by each of the groups."""


ONE_FULL = HeadlineSizes(
    name="headline",
    rounds=4,
    produce_records={FLUSH: 900_000, OS: 900_000},
    client_warmup_records=300_000,
    latency_s=4.0,
    latency_warmup_s=1.0,
    backlog_bytes=512 << 20,
    read_passes=8,
    client_read_records=0,
    rebalances=0,
    restarts_per_session=1,
    restart_sessions=4,
    warmup_min_s=30.0,
    warmup_max_s=60.0,
    plain_warmup_s=4.0,
)
THREE_FULL = replace(
    ONE_FULL,
    name="headline-nodes",
    produce_records={FLUSH: 240_000, OS: 240_000},
    client_warmup_records=240_000,
    latency_s=6.0,
    backlog_bytes=0,
    warmup_min_s=45.0,
    warmup_max_s=75.0,
)

ONE_QUICK = replace(
    ONE_FULL,
    name="headline-quick",
    rounds=1,
    produce_records={FLUSH: 15_000, OS: 15_000},
    client_warmup_records=0,
    latency_s=1.0,
    latency_warmup_s=0.3,
    backlog_bytes=64 << 20,
    read_passes=2,
    warmup_min_s=4.0,
    warmup_max_s=6.0,
    plain_warmup_s=1.0,
    kind_warmup_max_s=1.0,
    small_records=60_000,
    small_warmup_records=20_000,
    fan_out_bytes=8 << 20,
)
THREE_QUICK = replace(
    ONE_QUICK, name="headline-nodes-quick", produce_records={FLUSH: 6_000, OS: 6_000}, backlog_bytes=0
)
"""Sizes that show that it works, not how fast it is."""
