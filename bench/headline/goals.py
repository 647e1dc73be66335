"""The ratios of the headline, and the project's goals for them.

Owns: names of ratios and goals, which are those of step 9's issue, "The head-to-head" (docs/sources.md).
"flush": both sides flush each acknowledged write; "cross": a Lockstep that flushes against a Kafka as
shipped, which does not. A latency goal of three nodes is of one closed-loop producer, where nothing but the
path of one write counts. Measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bench.figures.ratios import NO_POLICY, POLICY_PAIRS, Goal, Ratio
from bench.settings import FLUSH

_PAIRS: Final = {name: POLICY_PAIRS[name] for name in ("flush", "cross")}
"""A Lockstep that does not flush is in no headline."""

_ONE: Final = (
    ("produce", "throughput", "MB/s", "produce.mb_per_s"),
    ("small", "100-byte records", "records/s", "small.records_per_s"),
    ("latency1.rate", "1 producer", "requests/s", "latency1.requests_per_s"),
    ("latency1.p50", "1 producer, p50", "ms", "latency1.p50_ms"),
    ("latency1.p99", "1 producer, p99", "ms", "latency1.p99_ms"),
    ("latency16.rate", "16 producers", "requests/s", "latency16.requests_per_s"),
    ("latency16.p99", "16 producers, p99", "ms", "latency16.p99_ms"),
    ("latency64.rate", "64 producers", "requests/s", "latency64.requests_per_s"),
    ("latency64.p99", "64 producers, p99", "ms", "latency64.p99_ms"),
    ("fan_out", "write and fan-out to 8 groups", "MB/s", "fan_out.mb_per_s"),
)
_THREE: Final = (
    ("n3.produce", "throughput", "MB/s", "n3_produce.mb_per_s"),
    ("n3.latency1.rate", "1 producer", "requests/s", "n3_latency1.requests_per_s"),
    ("n3.latency1.p50", "1 producer, p50", "ms", "n3_latency1.p50_ms"),
    ("n3.latency1.p99", "1 producer, p99", "ms", "n3_latency1.p99_ms"),
    ("n3.latency16.rate", "16 producers", "requests/s", "n3_latency16.requests_per_s"),
    ("n3.latency16.p50", "16 producers, p50", "ms", "n3_latency16.p50_ms"),
    ("n3.latency16.p99", "16 producers, p99", "ms", "n3_latency16.p99_ms"),
)


def _ratios() -> Iterable[Ratio]:
    for pair, (policies, words) in _PAIRS.items():
        for name, title, unit, figure in _ONE:
            yield Ratio(f"{name}.{pair}", f"one node, 1 partition: {title}, {words}", unit, figure, policies)
    yield Ratio("consume", "one node, 1 partition: catch-up read", "GB/s", "consume.gb_per_s", NO_POLICY)
    yield Ratio("memory", "one node: resident memory, highest", "MB", "memory.rss_max_mb", NO_POLICY)
    yield Ratio("restart", "one node: kill -9 to first ack", "s", "restart.first_ack_s", NO_POLICY)
    for pair, (policies, words) in _PAIRS.items():
        for name, title, unit, figure in _THREE:
            yield Ratio(
                f"{name}.{pair}", f"three nodes, 1 partition: {title}, {words}", unit, figure, policies
            )
    title = "three nodes, 16 partitions: 16 producers, p50, both flush"
    yield Ratio("n3.partitions16.p50", title, "ms", "n3_partitions16.p50_ms", (FLUSH, FLUSH))
    title = "three nodes: resident memory of all, highest"
    yield Ratio("n3.memory", title, "MB", "n3_memory.rss_max_mb", NO_POLICY)


RATIOS: Final = {ratio.name: ratio for ratio in _ratios()}

GOALS: Final = tuple(
    Goal(*each)
    for each in (
        ("produce.flush", ">=", 3.0),
        ("latency64.rate.flush", ">=", 5.0),
        ("produce.cross", ">=", 1.2),
        ("small.cross", ">=", 1.5),
        ("consume", ">=", 1.5),
        ("fan_out.cross", ">=", 1.2),
        ("memory", "<=", 0.1),
        ("restart", "<=", 0.1),
        ("n3.produce.cross", ">=", 2.0),
        ("n3.latency16.rate.cross", ">=", 1.5),
        ("n3.latency1.p50.cross", "<=", 1.0),
        ("n3.latency1.p99.cross", "<=", 0.7),
        ("n3.produce.flush", ">=", 6.0),
        ("n3.latency16.rate.flush", ">=", 6.0),
        ("n3.partitions16.p50", "<=", 0.3),
    )
)
"""Against a warmed-up Apache Kafka 4.4.0 on the same machine."""
