"""The axes of growth: their steps and figures. Owns the numbers; runs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

RATE: Final = 2_000
"""Requests a second of one 1 KB record each, the same at every step: what is left to grow is the cost."""
WINDOW: Final = 50
"""Of each producer, so that an open loop is not held back by a step that takes longer."""
FLAT: Final = 0.1
"""A slope between this and its negative is called flat."""


class Fitted(NamedTuple):
    """A figure and whether the project promises that it stays flat."""

    figure: str
    unit: str
    stays_flat: bool


@dataclass(frozen=True)
class Axis:
    """One thing that grows."""

    name: str
    words: str
    values: tuple[int, ...]
    fitted: tuple[Fitted, ...]


_COST: Final = (
    Fitted("cpu_s_per_million_records", "CPU s per million records", False),
    Fitted("rss_mb", "resident MB", False),
    Fitted("idle_cpu_share", "CPU share when idle", False),
    Fitted("p99_ms", "p99 ms", False),
)
AXES: Final = (
    Axis("partitions", "partitions written in turn", (1, 10, 100, 1_000, 10_000), _COST),
    Axis("connections", "connections, each with a producer", (1, 10, 100, 1_000, 2_000), _COST),
    Axis("groups", "consumer groups with a member each", (1, 10, 100, 1_000), _COST),
    Axis(
        "log_gib",
        "GiB in the log",
        (1, 2, 5, 10, 20),
        (
            Fitted("start_s", "kill -9 to the first acknowledgement, s", True),
            Fitted("read_p50_ms", "random read, cold, p50 ms", True),
            Fitted("read_p99_ms", "random read, cold, p99 ms", True),
            Fitted("device_read_p50_ms", "the same by the disk alone, p50 ms", False),
            Fitted("device_read_p99_ms", "the same by the disk alone, p99 ms", False),
            Fitted("rss_mb", "resident MB", True),
            Fitted("cpu_s_per_million_records", "CPU s per million records, written to that log", False),
            Fitted("p99_ms", "p99 ms of these writes", False),
            Fitted("loaded_rss_mb", "resident MB after these writes", False),
        ),
    ),
)
BY_NAME: Final = {axis.name: axis for axis in AXES}


@dataclass(frozen=True)
class Lengths:
    """The durations of a step."""

    seconds: float = 10.0
    warmup_s: float = 2.0
    idle_s: float = 5.0
    reads: int = 500
    fill_bytes_per_unit: int = 1 << 30
    """What one GiB of the log axis is; less in a run that only shows that it works."""


FULL: Final = Lengths()
QUICK: Final = Lengths(seconds=0.5, warmup_s=0.2, idle_s=0.3, reads=40, fill_bytes_per_unit=4 << 20)
