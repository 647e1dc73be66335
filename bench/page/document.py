"""docs/benchmarks.md and the pages of docs/benchmarks/ from kept results: which there are, with what on them.

The first page is `first`; each comparison is told by its own `section`, on a page of docs/benchmarks/. Of a
whole comparison that the grid has run as well the newer one is taken. Sections write their links as for a
page in docs/ (`links`).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import kept
from bench.contention import section as contention
from bench.feed import section as feed
from bench.figures.tables import machine_lines
from bench.full import section as full
from bench.full.lookup import Grid
from bench.growth import section as growth
from bench.growth import steps as growth_steps
from bench.headline import section as headline
from bench.logstore import section as logstore
from bench.micro import history
from bench.micro import section as micro
from bench.nodes3 import section as nodes3
from bench.one_node import section as one_node
from bench.page import first, grid_losses, losses, promises
from bench.page.links import relocate_links
from bench.page.prepared import ONE_NODE, prepare
from bench.player import section as player
from bench.profile import section as profile
from bench.spark import section as spark
from bench.transactions import section as transactions

Results = dict[str, dict[str, Any]]

PICTURES = {
    "contention": ("bench.contention.plots", contention.PICTURE),
    "growth": ("bench.growth.plots", growth.PICTURE),
    "headline": ("bench.headline.plots", headline.PICTURE),
    "logstore": ("bench.logstore.plots", logstore.PICTURE),
    player.KIND: ("bench.player.plots", player.PICTURE),
    "spark": ("bench.spark.plots", spark.PICTURE),
}
"""By kind: the module that draws it, and the picture's name in docs/."""

MAKERS = {
    "headline": headline.details,
    ONE_NODE: one_node.section,
    "nodes3": nodes3.section,
    "transactions": transactions.transactions,
    "atomic": transactions.atomic,
    "contention": contention.section,
    "feed": feed.section,
    "full": full.section,
    "growth": growth.section,
    "profile": profile.section,
    micro.KIND: micro.section,
    player.KIND: player.section,
    player.ALONE: player.stalled_section,
    "spark": spark.section,
    "logstore": logstore.section,
}
"""By kind: its section; in the order of the pages."""


@dataclass(frozen=True)
class Page:
    """One page of docs/benchmarks/. Args: kinds: of the results whose sections it has."""

    name: str
    title: str
    kinds: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"benchmarks/{self.name}.md"


PAGES = (
    Page("headline", "how the headline was measured, and what its blocks cost", ("headline",)),
    Page("promised", "every goal of earlier steps"),
    Page("losses", "all that Lockstep loses"),
    Page("one_node", "one node against one node", (ONE_NODE,)),
    Page("three_nodes", "three nodes, transactions, atomic appends", ("nodes3", "transactions", "atomic")),
    Page("locks", "contention for locks, a feed without bodies", ("contention", "feed")),
    Page("grid", "the grid: every workload on every broker, and what it cost", ("full",)),
    Page("growth", "how cost grows with partitions, connections, groups and the log", ("growth",)),
    Page("profile", "where the time goes, single steps by commit", ("profile", micro.KIND)),
    Page("player", "the player (seed 000's experiments)", (player.KIND, player.ALONE)),
    Page("spark", "Spark", ("spark",)),
    Page("logstore", "seed 001's experiments", ("logstore",)),
)
FIRST = "benchmarks.md"


def _start_time(result: dict[str, Any]) -> str:
    return str(result.get("started") or "")


def _by_kind(results: Sequence[dict[str, Any]]) -> Results:
    """The results by kind; those that the grid has run where they are newer. Raises ValueError."""
    by_kind = {result.get("kind", ONE_NODE): result for result in results}
    if len(by_kind) < len(results):
        raise ValueError("at most one result of each kind")
    for run in full.comparisons(by_kind["full"]) if "full" in by_kind else ():
        kind = run.get("kind", ONE_NODE)
        if kind not in by_kind or _start_time(run) > _start_time(by_kind[kind]):
            by_kind[kind] = run
    return {kind: prepare(result) for kind, result in by_kind.items()}


def pages(results: list[dict[str, Any]], sources: Sequence[str] = ()) -> dict[str, str]:
    """Each page's text by its path below docs/, the first page first; those without results are none.

    Args:
        sources: names of what the results were read from, in their order; the first page ends with them.
    """
    names = [result.get("kind", ONE_NODE) for result in results]
    named = dict(zip(names, sources, strict=bool(sources)))
    by_kind = _by_kind(results)
    ordered = [by_kind[kind] for kind in MAKERS if kind in by_kind]
    goals = [_with_goals(each) for each in ordered]
    against = [spark.against_kafka(each) if each.get("kind") == "spark" else each for each in ordered]
    grid = Grid(by_kind.get("full"))
    memory = one_node.memory(by_kind[ONE_NODE]) if ONE_NODE in by_kind else ""
    made = {
        "promised": [promises.section(goals, grid, memory)],
        "losses": [losses.section(against), grid_losses.section(grid)],
    }
    found: dict[str, str] = {}
    for each in PAGES:
        sections = made.get(each.name) or [
            MAKERS[kind](by_kind[kind]) for kind in each.kinds if kind in by_kind
        ]
        kept_ones = [text for text in sections if text]
        if kept_ones:
            head = f"# Benchmarks: {each.title}\n\n{first.GENERATED} {HEAD}\n"
            found[each.path] = relocate_links("\n".join([head, *kept_ones]), each.path)
    used = [each.get("kept_in") or named.get(kind, "") for kind, each in by_kind.items()]
    titles = {each.path: each.title for each in PAGES if each.path in found}
    whole = first.page(by_kind, goals, against, titles, [name for name in used if name])
    return {FIRST: whole, **_without_machine(found, by_kind)}


HEAD = "Words, the machine and the short version: [benchmarks.md](benchmarks.md)."


def _without_machine(texts: dict[str, str], by_kind: Results) -> dict[str, str]:
    """The pages without the lines about the machine that the first page has already."""
    of = first.whose_machine(by_kind)
    if of is None:
        return texts
    said = "".join(f"{line}\n" for line in machine_lines(of))
    return {path: text.replace(said, "") for path, text in texts.items()}


def page(results: list[dict[str, Any]], sources: Sequence[str] = ()) -> str:
    """All pages, one after the other."""
    return "\n".join(pages(results, sources).values())


def _with_goals(result: dict[str, Any]) -> dict[str, Any]:
    """With rows for its goals, also of the kinds that keep none."""
    if result.get("kind") == "spark":
        return spark.with_comparison(result)
    if result.get("kind") == "growth":
        return {**result, "comparison": growth_steps.flat_slopes(result)}
    return result


def draw(results: Sequence[dict[str, Any]], directory: Path) -> None:
    """The pages' pictures, of the very results that they show."""
    by_kind = _by_kind(results)
    for kind, (plots, name) in PICTURES.items():
        if kind in by_kind:
            importlib.import_module(plots).draw(by_kind[kind], directory / name)


def read(path: Path) -> dict[str, Any]:
    """A kept result; a directory is the steps of `python -m bench growth`, or the rows of `full`, and
    lines of JSON are the history of `python -m bench micro`.

    Raises Unreadable, OSError.
    """
    if path.is_dir():
        return growth_steps.collect_steps(path) if any(path.glob("*.json")) else full.collect_rows(path)
    if path.suffix == history.HISTORY.suffix:
        return micro.collect_records(path)
    found = kept.read(path, "machine")
    if found.get("kind", ONE_NODE) not in MAKERS:
        raise kept.Unreadable(f"{path} is of no kind that the page has: {found.get('kind')!r}")
    return found
