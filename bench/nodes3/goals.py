"""The ratios of three nodes, and the project's goals for them.

Owns: the ratios' names, as `one_node.goals` does for one broker, once for one group and partition ("g1") and
once for three ("g3"). Measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from bench.figures.ratios import NO_POLICY, POLICY_PAIRS, Goal, Ratio

SHAPES = (1, 3)
"""Partitions of a block's topic, each in a Lockstep group of its own; titles name the partitions."""
RESUMES_S = 1.0


def _of_shape(shape: int) -> Iterable[Ratio]:
    end = f"g{shape}"
    where = "1 partition" if shape == 1 else f"{shape} partitions"
    for pair, (policies, words) in POLICY_PAIRS.items():
        for name, title, unit, figure in (
            ("produce", "throughput", "MB/s", "produce_{}.mb_per_s"),
            ("latency1.p50", "1 producer, p50", "ms", "latency1_{}.p50_ms"),
            ("latency1.p99", "1 producer, p99", "ms", "latency1_{}.p99_ms"),
            ("latency16.rate", "16 producers", "requests/s", "latency16_{}.requests_per_s"),
            ("latency16.p99", "16 producers, p99", "ms", "latency16_{}.p99_ms"),
        ):
            full_title = f"{where}: {title}, {words}"
            yield Ratio(f"{name}.{pair}.{end}", full_title, unit, figure.format(shape), policies)
    title = f"{where}: resident memory of all nodes, highest"
    yield Ratio(f"memory.{end}", title, "MB", f"memory_{shape}.rss_max_mb", NO_POLICY)
    title = f"{where}: leader killed to next acknowledgement"
    yield Ratio(f"loss.{end}", title, "s", f"loss_{shape}.first_ack_s", NO_POLICY)
    title = f"{where}: the same, against {RESUMES_S:g} s"
    yield Ratio(f"resume.{end}", title, "s", f"loss_{shape}.first_ack_s", NO_POLICY, bound=RESUMES_S)


RATIOS = {ratio.name: ratio for shape in SHAPES for ratio in _of_shape(shape)}

GOALS = tuple(
    Goal(f"{name}.g{shape}", relation, bound)
    for shape in SHAPES
    for name, relation, bound in (
        ("produce.flush", ">=", 4.0),
        ("latency1.p50.flush", "<=", 0.5),
        ("latency1.p99.flush", "<=", 0.5),
        ("latency16.rate.flush", ">=", 4.0),
        ("latency16.p99.flush", "<=", 0.35),
        ("produce.cross", ">=", 1.5),
        ("latency16.rate.cross", ">=", 1.0),
        ("latency1.p50.cross", "<=", 1.2),
        ("memory", "<=", 0.15),
        ("resume", "<=", 1.0),
    )
)
"""What the project wants to show for three nodes against three warmed-up Apache Kafka 4.4.0 nodes."""
