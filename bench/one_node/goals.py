"""The ratios of one node, and the project's goals for them.

Owns: names of ratios and goals. Equal policies are paired; the pair that is not equal is named "cross" (the
subject flushes, the baseline as shipped does not). Measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from bench.figures.ratios import NO_POLICY, POLICY_PAIRS, Goal, Ratio
from bench.settings import FLUSH


def _ratios() -> Iterable[Ratio]:
    both = (FLUSH, FLUSH)
    for name, (policies, said) in POLICY_PAIRS.items():
        words = f"1 partition: throughput, {said}"
        yield Ratio(f"produce.{name}", words, "MB/s", "produce.mb_per_s", policies)
    for quantile in ("p50", "p99"):
        for name, (policies, said) in POLICY_PAIRS.items():
            words = f"1 partition: 1 producer, {quantile}, {said}"
            yield Ratio(f"latency1.{quantile}.{name}", words, "ms", f"latency1.{quantile}_ms", policies)
    for name, (policies, said) in POLICY_PAIRS.items():
        words = f"1 partition: 16 producers, {said}"
        yield Ratio(f"latency16.rate.{name}", words, "requests/s", "latency16.requests_per_s", policies)
        yield Ratio(f"latency16.p99.{name}", f"{words}, p99", "ms", "latency16.p99_ms", policies)
        words = f"1 partition: 16 librdkafka producers, {said}"
        yield Ratio(f"clients16.rate.{name}", words, "requests/s", "clients16.requests_per_s", policies)
        yield Ratio(f"clients16.p99.{name}", f"{words}, p99", "ms", "clients16.p99_ms", policies)
    yield Ratio("commits.flush", "offset commits, both flush", "commits/s", "commits.requests_per_s", both)
    yield Ratio("commits.p99.flush", "offset commits, both flush, p99", "ms", "commits.p99_ms", both)
    for name, words in (("start", "starts"), ("join", "gets one more"), ("leave", "loses one")):
        title = f"group of 50 {words}: seconds to settle"
        yield Ratio(f"rebalance.{name}", title, "s", f"rebalance.{name}_s", both)
    yield Ratio(
        "members.memory",
        "memory of one of 10,000 members, connection included, against 40 KiB",
        "KiB",
        "members.kib_each",
        both,
        bound=40.0,
    )
    yield Ratio("consume.raw", "1 partition: catch-up read", "GB/s", "consume.gb_per_s", NO_POLICY)
    words = "1 partition: catch-up read with librdkafka"
    yield Ratio("consume.client", words, "MB/s", "consume_client.mb_per_s", NO_POLICY)
    yield Ratio("memory.max", "resident memory, highest", "MB", "memory.rss_max_mb", NO_POLICY)
    yield Ratio("memory.median", "resident memory, median", "MB", "memory.rss_median_mb", NO_POLICY)
    yield Ratio("restart", "kill -9 to first ack", "s", "restart.first_ack_s", NO_POLICY)
    for name, words in (("one", "1 producer"), ("sixteen", "16 producers")):
        base = "latency1" if name == "one" else "latency16"
        title = f"16 partitions: {words}, p50, both flush"
        yield Ratio(f"partitions.{name}", title, "ms", f"partitions_{name}.p50_ms", both)
        yield Ratio(
            f"growth.{name}",
            f"own growth from 1 to 16 partitions, {words}, p50",
            "ms",
            f"partitions_{name}.p50_ms",
            both,
            own=f"{base}.p50_ms",
        )
    yield Ratio("partitions.span", "one request over 16 partitions, p50", "ms", "span16.p50_ms", both)
    yield Ratio(
        "growth.span",
        "own growth, 16 records in one batch to 16 batches, p50",
        "ms",
        "span16.p50_ms",
        both,
        own="span1.p50_ms",
    )


RATIOS = {ratio.name: ratio for ratio in _ratios()}

GOALS = tuple(
    Goal(*each)
    for each in (
        ("produce.flush", ">=", 2.0),
        ("produce.cross", ">=", 0.9),
        ("produce.os", ">=", 1.6),
        ("latency1.p50.flush", "<=", 0.65),
        ("latency1.p99.flush", "<=", 0.75),
        ("latency16.rate.flush", ">=", 4.0),
        ("latency16.p99.flush", "<=", 0.2),
        ("latency16.rate.cross", ">=", 0.9),
        ("consume.raw", ">=", 1.0),
        ("memory.max", "<=", 0.15),
        ("restart", "<=", 0.2),
        ("growth.one", "<=", 1.3),
        ("growth.sixteen", "<=", 1.3),
        ("commits.flush", ">=", 2.0),
        ("rebalance.start", "<=", 1.0),
        ("rebalance.join", "<=", 1.0),
        ("rebalance.leave", "<=", 1.0),
        ("members.memory", "<=", 1.0),
    )
)
"""What the project wants to show for one node against a warmed-up Apache Kafka 4.4.0."""
