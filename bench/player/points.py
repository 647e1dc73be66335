"""The points to measure: numbers of targets, sizes of transactions, rates, names of blocks. Pure.

A block is `SYSTEM_LOOP_tTARGETS_kKEYS`, such as `plain_open_t20_k10`: keys are key-values of 1 KB.
The goals hold at every point of the seed's figures 12 and 13, at equal rates (open loop). What stands against
a bound of its own has no baseline.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bench.figures.ratios import Goal, Ratio
from bench.settings import FLUSH
from lockstep.player.core.settings import PlayerSettings

PLAIN: Final = "plain"
"""Each target's part to the topic of that target; a consumer for each."""
TRANSACTIONS: Final = "transactions"
"""The same in one Kafka transaction; consumers read what is committed."""
GRPC: Final = "grpc"
"""LogPlayer in the broker that leads the log, with the transport it has by default."""
RAW: Final = "raw"
"""The same with frames on a plain TCP connection."""
REMOTE: Final = "remote"
"""LogPlayer in a process of its own, which reads the log as a client does; over gRPC."""
STORED: Final = "stored"
"""As the first to SQLite targets: what is timed ends when it is durable there."""
LOG_PLAYERS: Final = (GRPC, RAW, REMOTE)
CLOSED: Final = "closed"
OPEN: Final = "open"
LOOPS: Final = (CLOSED, OPEN)


class Point(NamedTuple):
    """Targets there are, key-values in a transaction."""

    targets: int
    keys: int

    def __str__(self) -> str:
        return f"t{self.targets}_k{self.keys}"


def block_name(system: str, loop: str, point: Point) -> str:
    return f"{system}_{loop}_{point}"


@dataclass(frozen=True)
class Axes:
    """The values of each axis. Times in seconds, rates a second."""

    name: str
    targets: tuple[int, ...] = (2, 5, 10, 15, 20)
    targets_keys: int = 10
    """Key-values where the number of targets varies: the seed's figures 9, 12a, 13a, 13b."""
    keys: tuple[int, ...] = (1, 2, 5, 10)
    keys_targets: int = 20
    """Targets where the size varies: its figures 10, 12b, 13c, 13d."""
    transactions: int = 0
    """A run of either loop ends after so many; 0: by its time alone."""
    closed_s: float = 6.0
    open_s: float = 12.0
    warmup_s: float = 2.0
    rate: float = 8.0
    """Transactions of an open loop, equal for all; a Kafka transaction takes most of 100 ms here."""
    two_level_targets: tuple[int, ...] = (2, 10, 20)
    two_level_transactions: int = 1000
    stored: tuple[Point, ...] = (Point(2, 10), Point(10, 10))
    sustained_targets: tuple[int, ...] = (2, 5, 10, 20)
    sustained_rates: tuple[float, ...] = (25, 50, 100, 150, 200, 300, 400, 600, 800)
    sustained_s: float = 5.0
    throughput_records: int = 200_000
    missed: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    dummies: tuple[int, ...] = (0, 1_000, 100, 10)
    """0: off."""
    dummy_entries: int = 9_999
    stall_pairs: int = 4
    stall_rate: float = 50.0
    stall_s: float = 15.0
    stall_records: int = 1_000_000

    @property
    def points(self) -> list[Point]:
        """All of both figures, each once."""
        by_targets = [Point(each, self.targets_keys) for each in self.targets]
        by_keys = [Point(self.keys_targets, each) for each in self.keys]
        return sorted({*by_targets, *by_keys})


FULL: Final = Axes("full")
QUICK: Final = Axes(
    "quick",
    targets=(2, 10, 20),
    keys=(1, 10),
    closed_s=3.0,
    open_s=5.0,
    warmup_s=1.0,
    two_level_targets=(2, 10),
    two_level_transactions=100,
    sustained_targets=(2, 10),
    sustained_rates=(25, 100, 400),
    sustained_s=2.0,
    throughput_records=50_000,
    missed=(100, 10_000),
    dummies=(0, 100),
    dummy_entries=1_999,
    stall_pairs=2,
    stall_s=5.0,
    stall_records=100_000,
)
SMOKE: Final = Axes(
    "smoke",
    targets=(2,),
    targets_keys=3,
    keys=(3,),
    keys_targets=2,
    transactions=20,
    closed_s=60.0,
    open_s=60.0,
    warmup_s=0.0,
    rate=50.0,
    stored=(Point(2, 3),),
    sustained_targets=(2,),
    sustained_rates=(50,),
    sustained_s=60.0,
    throughput_records=2_000,
    missed=(50,),
    dummies=(0, 10),
    dummy_entries=199,
    stall_pairs=1,
    stall_s=60.0,
    stall_records=2_000,
)
"""Sizes that show in a few seconds that it works: one node, no Kafka. Runs end by their counts, so that all
that was written is measured however slow the machine is."""


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
"""On 8 processors of 2.0 GHz, other replicas on other machines; its rate is not given. Where `point` is None
the seed's figure bounds all of them, and so ours is the highest."""
