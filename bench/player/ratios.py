"""The ratios, the project's goals, and the seed's own figures. Pure.

The goals hold at every point of the seed's figures 12 and 13, at equal rates (open loop). What stands against
a bound of its own has no baseline.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from bench.figures.ratios import Goal, Ratio
from bench.player.points import (
    CLOSED,
    FULL,
    GRPC,
    OPEN,
    PLAIN,
    TRANSACTIONS,
    Point,
    block_name,
)
from bench.settings import FLUSH
from player.core.settings import PlayerSettings

_DEFAULT: Final = PlayerSettings()
THROUGHPUT: Final = 50_000.0
"""Records of 1 KB a second, from a log that is there."""
CALM_MS: Final = 0.32
"""The seed's average LogPlayer delay: at which rates is ours not longer?"""

BOUND_MB: Final = sum(each.size_bytes for each in (_DEFAULT.window, _DEFAULT.normal, _DEFAULT.catchup)) / 1e6
"""What a player's settings let it hold for one target."""

RATE_SHARE: Final = 0.95
"""Of the rate asked for, for an open loop to have kept it."""

_FIGURES: Final = {"mean": "average", "p99": "p99"}
_BASELINES: Final = {PLAIN: "plain Kafka", TRANSACTIONS: "Kafka transactions"}
_BOTH: Final = (FLUSH, FLUSH)


def ratio_name(baseline: str, figure: str, loop: str, point: Point) -> str:
    return f"{baseline}.{figure}.{loop}.t{point.targets}k{point.keys}"


def _ratios() -> Iterable[Ratio]:
    for loop in (OPEN, CLOSED):
        for baseline, words in _BASELINES.items():
            for point in FULL.points:
                for figure, called in _FIGURES.items():
                    yield Ratio(
                        ratio_name(baseline, figure, loop, point),
                        f"apply delay, {called}, {point.targets} targets, {point.keys} KB, {loop} loop, "
                        f"to {words}",
                        "ms",
                        f"{block_name(GRPC, loop, point)}.apply_{figure}_ms",
                        _BOTH,
                        against=f"{block_name(baseline, loop, point)}.apply_{figure}_ms",
                    )
    yield Ratio(
        "throughput",
        "from a log that is there, 4 targets",
        "records/s",
        "throughput.records_per_s",
        _BOTH,
        bound=THROUGHPUT,
    )
    yield Ratio(
        "stalled.p99",
        "apply delay, p99, of three targets while a fourth stands still, to the same without",
        "ms",
        "others_stalled.apply_p99_ms",
        _BOTH,
        own="others_calm.apply_p99_ms",
    )
    yield Ratio(
        "stalled.memory",
        "the player's memory grown while a target misses a million records, to its settings' bound",
        "MB",
        "missed_memory.grown_mb",
        _BOTH,
        bound=BOUND_MB,
    )


RATIOS: Final = {ratio.name: ratio for ratio in _ratios()}

GOALS: Final = (
    *(
        Goal(ratio_name(baseline, figure, OPEN, point), "<=", bound)
        for baseline, figure, bound in (
            (PLAIN, "mean", 0.5),
            (PLAIN, "p99", 0.3),
            (TRANSACTIONS, "mean", 0.1),
        )
        for point in FULL.points
    ),
    Goal("throughput", ">=", 1.0),
    Goal("stalled.p99", "<=", 1.2),
    Goal("stalled.memory", "<=", 1.0),
)


class Seen(NamedTuple):
    """A figure of the seed's, in milliseconds."""

    figure: str
    words: str
    system: str
    point: Point | None
    """None: at all points, "less than"."""
    name: str
    ms: float


SEED: Final = (
    Seen("9a", "LogPlayer delay, average, all numbers of targets", GRPC, None, "player_mean_ms", 0.32),
    Seen("9a", "LogPlayer delay, median, all numbers of targets", GRPC, None, "player_p50_ms", 0.32),
    Seen("9a", "LogPlayer delay, p99, all numbers of targets", GRPC, None, "player_p99_ms", 0.78),
    Seen("10a", "LogPlayer delay, average, all sizes", GRPC, None, "player_mean_ms", 0.31),
    Seen("10a", "LogPlayer delay, p99, all sizes", GRPC, None, "player_p99_ms", 0.67),
    Seen("11", "two-level Kafka, average", "two_level", Point(20, 10), "apply_mean_ms", 11_260.0),
    Seen("11", "two-level Kafka, p99", "two_level", Point(20, 10), "apply_p99_ms", 21_720.0),
    Seen("13", "LogPlayer, apply delay, average", GRPC, Point(10, 10), "apply_mean_ms", 7.16),
    Seen("13", "LogPlayer, apply delay, p99", GRPC, Point(10, 10), "apply_p99_ms", 12.47),
    Seen("13", "Kafka transactions, average", TRANSACTIONS, Point(10, 10), "apply_mean_ms", 45.0),
    Seen("13", "Kafka transactions, p99", TRANSACTIONS, Point(10, 10), "apply_p99_ms", 61.0),
)
"""On 8 processors of 2.0 GHz, other replicas on other machines; its rate is not told. Where `point` is None
the seed's figure bounds all of them, and so ours is the highest."""
