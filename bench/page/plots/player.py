"""The figures of a player result as one picture: the seed's 9 to 13, and ours. Measures nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import pictures
from bench.player.points import CLOSED, GRPC, LOG_PLAYERS, OPEN, PLAIN, RAW, REMOTE, TRANSACTIONS, TWO_LEVEL
from bench.player.ratios import CALM_MS, THROUGHPUT
from bench.player.tables import Measured, blocks_by_name, delays_of, numbered_blocks, sustained_rates

PERCENTILES = {"mean": "average", "p50": "p50", "p90": "p90", "p99": "p99"}
STYLES = {CLOSED: "-", OPEN: "--"}
WORDS = {
    GRPC: "LogPlayer",
    RAW: "LogPlayer, raw frames",
    REMOTE: "LogPlayer in a process of its own",
    PLAIN: "plain Kafka",
    TRANSACTIONS: "Kafka transactions",
}


class _Picture:
    """Panels of one result, in order."""

    def __init__(self, result: dict[str, Any], panels: list[Any]) -> None:
        self.result = result
        self.measured = delays_of(result)
        self._panels = iter(panels)

    def panel(self, title: str, x: str, y: str = "ms", *, log: bool = False) -> Any:
        axes = next(self._panels)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if log:
            axes.set_yscale("log")
        return axes

    def of(self, system: str, loop: str, *, by_targets: bool) -> list[tuple[int, Measured]]:
        """The points of one axis: (targets or keys, the block)."""
        axes = self.result["axes"]
        found = []
        for each in self.measured:
            on_axis = (
                each.point.keys == axes["targets_keys"]
                if by_targets
                else each.point.targets == axes["keys_targets"]
            )
            if (each.system, each.loop) == (system, loop) and on_axis:
                found.append((each.point.targets if by_targets else each.point.keys, each))
        return sorted(found, key=lambda each: each[0])

    def line(self, axes: Any, found: list[tuple[int, Measured]], name: str, style: str, **words: Any) -> None:
        points = [(x, each.figures[name]) for x, each in found if name in each.figures]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.plot(xs, ys, style, marker="o", markersize=3, **words)


def _own(picture: _Picture, delay: str, *, by_targets: bool, title: str, seen: dict[str, float]) -> None:
    """Figures 9 and 10: one delay of LogPlayer's, average and percentiles, both loops."""
    axes = picture.panel(title, "targets" if by_targets else "KB")
    for loop, style in STYLES.items():
        found = picture.of(GRPC, loop, by_targets=by_targets)
        for place, (name, words) in enumerate(PERCENTILES.items()):
            label = f"{words}, {loop} loop"
            picture.line(axes, found, f"{delay}_{name}_ms", style, color=f"C{place}", label=label)
    for words, ms in seen.items():
        axes.axhline(ms, color="gray", linewidth=0.8, linestyle=":", label=f"the seed: {words} < {ms}")
    axes.set_ylim(bottom=0)


def _against(picture: _Picture, baseline: str, *, by_targets: bool, title: str) -> None:
    """Figures 12 and 13: apply delays of both at equal rates."""
    axes = picture.panel(title, "targets" if by_targets else "KB", log=True)
    for place, system in enumerate((GRPC, baseline)):
        found = picture.of(system, OPEN, by_targets=by_targets)
        for name, style in (("mean", "-"), ("p99", "--")):
            label = f"{WORDS[system]}, {PERCENTILES[name]}"
            picture.line(axes, found, f"apply_{name}_ms", style, color=f"C{place}", label=label)


def _two_level(picture: _Picture) -> None:
    axes = picture.panel("11. two-level Kafka, apply delay", "targets", "s")
    found = picture.of(TWO_LEVEL, CLOSED, by_targets=True)
    for name in ("mean", "p99"):
        points = [(x, each.figures[f"apply_{name}_ms"] / 1e3) for x, each in found]
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=PERCENTILES[name])
    for words, seconds in (("average", 11.26), ("p99", 21.72)):
        axes.axhline(
            seconds, color="gray", linewidth=0.8, linestyle=":", label=f"the seed: {words} {seconds} s"
        )
    axes.set_ylim(bottom=0)


def _transports(picture: _Picture) -> None:
    axes = picture.panel("LogPlayer delay by transport and place, average, open loop", "targets")
    for system in LOG_PLAYERS:
        found = picture.of(system, OPEN, by_targets=True)
        picture.line(axes, found, "player_mean_ms", "-", label=WORDS[system])
    axes.set_ylim(bottom=0)


def _plot_sustained(picture: _Picture) -> None:
    axes = picture.panel("LogPlayer delay by rate, average", "transactions/s", log=True)
    for targets, rates in sustained_rates(picture.result).items():
        xs = [rate for rate, _ in rates]
        ys = [figures["player_mean_ms"] for _, figures in rates]
        axes.plot(xs, ys, marker="o", markersize=3, label=f"{targets} targets")
    axes.axhline(CALM_MS, color="gray", linewidth=0.8, linestyle=":", label=f"{CALM_MS} ms")


def _plot_numbered(
    picture: _Picture, prefix: str, name: str, axes: Any, called: Callable[[int], str] = "{:,}".format
) -> None:
    points = [(called(number), figures[name]) for number, figures in numbered_blocks(picture.result, prefix)]
    if points:
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3)
        axes.set_ylim(bottom=0)


def _throughput(picture: _Picture) -> None:
    axes = picture.panel("from a log that is there, 4 targets", "", "records/s")
    found = [(n, f) for n, f in blocks_by_name(picture.result).items() if n.startswith("throughput")]
    axes.bar([name for name, _ in found], [figures["records_per_s"] for _, figures in found], width=0.4)
    axes.axhline(THROUGHPUT, color="gray", linewidth=0.8, linestyle=":", label=f"goal: {THROUGHPUT:,.0f}")


def draw(result: dict[str, Any], path: Path) -> None:
    """Write the picture; the file's ending says its format."""
    figure, panels = pictures.canvas("player", 5, 3, (16, 22))
    picture = _Picture(result, panels)
    _own(picture, "player", by_targets=True, title="9a. LogPlayer delay", seen={"average": 0.32, "p99": 0.78})
    _own(picture, "apply", by_targets=True, title="9b. apply delay", seen={})
    _own(
        picture, "player", by_targets=False, title="10a. LogPlayer delay", seen={"average": 0.31, "p99": 0.67}
    )
    _own(picture, "apply", by_targets=False, title="10b. apply delay", seen={})
    _two_level(picture)
    _transports(picture)
    for number, baseline in (("12", PLAIN), ("13", TRANSACTIONS)):
        words = "without" if baseline == PLAIN else "with"
        title = f"apply delay, Kafka {words} transactions, equal rates"
        _against(picture, baseline, by_targets=True, title=f"{number}a. {title}")
        _against(picture, baseline, by_targets=False, title=f"{number}b. {title}")
    _plot_sustained(picture)
    _plot_numbered(
        picture, "recovery", "recovery_s", picture.panel("recovery of a target", "entries missed", "s")
    )
    axes = picture.panel("the player starts again", "a dummy every ... entries", "entries read again")
    _plot_numbered(picture, "dummies", "read_again", axes, lambda every: f"{every:,}" if every else "off")
    _throughput(picture)
    panels[-1].axis("off")
    pictures.save(figure, panels, path)
