"""The figures of a player result as numbers, with the seed's beside them. Measures nothing."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from bench.figures.ratios import medians
from bench.figures.tables import text_table
from bench.player.backlogs import MISSED_MEMORY, OTHERS_CALM, OTHERS_STALLED
from bench.player.points import CALM_MS, CLOSED, OPEN, RATE_SHARE, SEED, Point, Seen

Figures = dict[str, float]
_NAME = re.compile(r"(?P<system>[a-z_]+)_(?P<loop>closed|open)_t(?P<targets>\d+)_k(?P<keys>\d+)")


class Measured(NamedTuple):
    """One block's figures: medians over the sessions."""

    system: str
    loop: str
    point: Point
    figures: Figures


def blocks_by_name(result: dict[str, Any]) -> dict[str, Figures]:
    """Every proven block's figures, each the median over the sessions that had it; blocks in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for session in result["sessions"]:
        for block in session["blocks"]:
            if not block.get("proven", True):
                continue
            found.setdefault(block["name"], []).append(block["figures"])
    return {name: medians(each) for name, each in found.items()}


def delays_of(result: dict[str, Any]) -> list[Measured]:
    """The blocks that have both a loop and a point."""
    return [
        Measured(match["system"], match["loop"], Point(int(match["targets"]), int(match["keys"])), figures)
        for name, figures in blocks_by_name(result).items()
        if (match := _NAME.fullmatch(name))
    ]


def sustained_rates(result: dict[str, Any]) -> dict[int, list[tuple[float, Figures]]]:
    """By number of targets: (rate asked for, figures), rates ascending."""
    found: dict[int, list[tuple[float, Figures]]] = {}
    for name, figures in blocks_by_name(result).items():
        if match := re.fullmatch(r"sustained_t(\d+)_r(\d+)", name):
            found.setdefault(int(match[1]), []).append((float(match[2]), figures))
    return {targets: sorted(rates, key=lambda each: each[0]) for targets, rates in sorted(found.items())}


def calm_rate(rates: list[tuple[float, Figures]]) -> float:
    """The highest that was kept, with an average LogPlayer delay of CALM_MS at most; 0 where none was."""
    calm = [
        rate
        for rate, figures in rates
        if figures["player_mean_ms"] <= CALM_MS and figures["per_s"] >= RATE_SHARE * rate
    ]
    return max(calm, default=0.0)


def numbered_blocks(result: dict[str, Any], prefix: str) -> list[tuple[int, Figures]]:
    """Blocks that are called `prefix` and a number, by that."""
    found = [
        (int(match[1]), figures)
        for name, figures in blocks_by_name(result).items()
        if (match := re.fullmatch(prefix + r"(\d+)", name))
    ]
    return sorted(found, key=lambda each: each[0])


def summary(result: dict[str, Any], style: str = "simple") -> str:
    """Everything but the ratios, as tables."""
    parts = [
        ("Delays, ms", _delays(result, style)),
        ("Beside the seed's (its machine: see `bench.player.ratios`), ms", _seed(result, style)),
        (
            f"Highest rate at which the average LogPlayer delay was at most {CALM_MS} ms",
            _sustained_table(result, style),
        ),
        ("From a log that is there", _throughput(result, style)),
        ("A target that missed something", _recoveries(result, style)),
        ("Entries read again when the player starts again", _dummies(result, style)),
        ("While one target stands still", _stalled_table(result, style)),
    ]
    return "\n\n".join(f"{title}\n\n{text}" for title, text in parts if text)


def _table(rows: list[list[str]], heads: list[str], style: str) -> str:
    return text_table(rows, heads, style)


def _delays(result: dict[str, Any], style: str) -> str:
    heads = ["system", "loop", "targets", "KB", "rate/s", "apply avg", "p50", "p99"]
    heads += ["LogPlayer avg", "p50", "p99", "append avg"]
    names = [
        *("apply_mean_ms", "apply_p50_ms", "apply_p99_ms"),
        *("player_mean_ms", "player_p50_ms", "player_p99_ms", "append_mean_ms"),
    ]
    rows = [
        [system, loop, str(point.targets), str(point.keys), f"{figures['per_s']:,.0f}"]
        + [f"{figures[name]:,.3f}" if name in figures else "" for name in names]
        for system, loop, point, figures in sorted(delays_of(result), key=lambda each: each[:3])
    ]
    return _table(rows, heads, style)


def _seed(result: dict[str, Any], style: str) -> str:
    rows = []
    for seen in SEED:
        values = [seen_here(result, seen, loop) for loop in (CLOSED, OPEN)]
        if any(value is not None for value in values):
            words = ["" if value is None else f"{value:,.2f}" for value in values]
            sign = "<" if seen.point is None else ""
            rows.append([seen.figure, seen.words, f"{sign} {seen.ms:,.2f}".strip(), *words])
    return _table(rows, ["figure", "", "the seed", "here, closed loop", "here, open loop"], style)


def seen_here(result: dict[str, Any], seen: Seen, loop: str) -> float | None:
    """The same figure here; the highest, where the seed's is a bound. None: not measured."""
    axes = result["axes"]
    values = []
    for system, its_loop, point, figures in delays_of(result):
        if (system, its_loop) != (seen.system, loop) or seen.name not in figures:
            continue
        if seen.point is None:
            by_targets = seen.figure.startswith("9")
            counts = (
                point.keys == axes["targets_keys"] if by_targets else point.targets == axes["keys_targets"]
            )
        else:
            counts = point == seen.point
        if counts:
            values.append(figures[seen.name])
    return max(values, default=None)


def _sustained_table(result: dict[str, Any], style: str) -> str:
    rows = [
        [
            str(targets),
            f"{calm_rate(rates):,.0f}",
            ", ".join(f"{r:,.0f}: {f['player_mean_ms']:.2f}" for r, f in rates),
        ]
        for targets, rates in sustained_rates(result).items()
    ]
    return _table(rows, ["targets", "transactions/s", "average ms at each rate"], style)


def _throughput(result: dict[str, Any], style: str) -> str:
    rows = [
        [
            name,
            f"{figures['records']:,.0f}",
            f"{figures['records_per_s']:,.0f}",
            f"{figures['mb_per_s']:,.1f}",
        ]
        for name, figures in blocks_by_name(result).items()
        if name.startswith("throughput")
    ]
    return _table(rows, ["", "records", "records/s", "MB/s"], style)


def _recoveries(result: dict[str, Any], style: str) -> str:
    rows = [
        [
            f"{missed:,}",
            f"{each['reconnect_s']:.3f}",
            f"{each['recovery_s']:.3f}",
            f"{each['entries_per_s']:,.0f}",
        ]
        for missed, each in numbered_blocks(result, "recovery")
    ]
    return _table(
        rows, ["entries missed", "s until it was greeted", "s from there to the last", "entries/s"], style
    )


def _dummies(result: dict[str, Any], style: str) -> str:
    rows = [
        [
            f"{every:,}" if every else "off",
            f"{each['entries']:,.0f}",
            f"{each['read_again']:,.0f}",
            f"{each['start_s']:.3f}",
        ]
        for every, each in numbered_blocks(result, "dummies")
    ]
    return _table(rows, ["a dummy every", "entries in the log", "read again", "s until it follows"], style)


def _stalled_table(result: dict[str, Any], style: str) -> str:
    found = blocks_by_name(result)
    rows = [
        [words, f"{found[name]['per_s']:,.0f}"]
        + [f"{found[name][f'apply_{each}_ms']:,.3f}" for each in ("mean", "p50", "p99")]
        for name, words in {
            OTHERS_CALM: "nobody stands still",
            OTHERS_STALLED: "a fourth target is stopped",
        }.items()
        if name in found
    ]
    parts = [_table(rows, ["three targets", "rate/s", "apply avg, ms", "p50", "p99"], style)]
    if missed := found.get(MISSED_MEMORY):
        parts.append(
            f"While a target missed {missed['missed']:,.0f} records of 1 KB, the player's memory went from "
            f"{missed['calm_mb']:.0f} MB to {missed['most_mb']:.0f} MB at most."
        )
    return "\n\n".join(part for part in parts if part)
