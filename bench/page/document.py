"""docs/benchmarks.md and the pages of docs/benchmarks/ from kept results: which there are, with what on them.

The first page is `first`; each comparison has its own `section`, on a page of docs/benchmarks/. Of a
whole comparison that the grid has run as well the newer one is taken. Sections write their links as for a
page in docs/ (`links`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import kept
from bench.figures.tables import machine_lines
from bench.full import section as full
from bench.full.lookup import Grid
from bench.growth import steps as growth_steps
from bench.micro import history
from bench.page import first, grid_losses, growth_plots, headline_plots, losses, promises, sections
from bench.page.prepared import ONE_NODE, prepare
from bench.spark import figures as spark

Results = dict[str, dict[str, Any]]

PICTURES = {"growth": growth_plots.draw, "headline": headline_plots.draw}
"""By kind: what draws its picture, which in docs/ is called like the kind."""

MAKERS = {
    "headline": sections.headline_details,
    ONE_NODE: sections.one_node,
    "nodes3": sections.nodes3,
    "transactions": sections.transactions,
    "atomic": sections.atomic,
    "contention": sections.contention,
    "feed": sections.feed,
    "secured": sections.tls_cost,
    "full": full.section,
    "growth": sections.growth,
    "profile": sections.profile,
    "micro": sections.micro,
    "player": sections.player,
    "player_stalled": sections.player_stalled,
    "spark": sections.spark,
    "logstore": sections.logstore,
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
    Page("headline", "the method of the headline, and the cost of its blocks", ("headline",)),
    Page("promised", "every goal of earlier steps"),
    Page("losses", "every loss of Lockstep"),
    Page("one_node", "one node against one node", (ONE_NODE,)),
    Page("three_nodes", "three nodes, transactions, atomic appends", ("nodes3", "transactions", "atomic")),
    Page("locks", "contention for locks, and reads without bodies", ("contention", "feed")),
    Page("secured", "the cost of TLS and logins", ("secured",)),
    Page("grid", "the grid: every workload on every broker, and its cost", ("full",)),
    Page("growth", "how cost grows with partitions, connections, groups and the log", ("growth",)),
    Page("profile", "where the time goes, and single steps by commit", ("profile", "micro")),
    Page("player", "the player (seed 000's experiments)", ("player", "player_stalled")),
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
    memory = sections.memory(by_kind[ONE_NODE]) if ONE_NODE in by_kind else ""
    made = {
        "promised": [promises.section(goals, grid, memory)],
        "losses": [losses.section(against), grid_losses.section(grid)],
    }
    found: dict[str, str] = {}
    for each in PAGES:
        found_ones = [MAKERS[kind](by_kind[kind]) for kind in each.kinds if kind in by_kind]
        kept_ones = [text for text in made.get(each.name) or found_ones if text]
        if kept_ones:
            head = f"# Benchmarks: {each.title}\n\n{first.GENERATED} {HEAD}\n"
            found[each.path] = relocate_links("\n".join([head, *kept_ones]), each.path)
    used = [each.get("kept_in") or named.get(kind, "") for kind, each in by_kind.items()]
    titles = {each.path: each.title for each in PAGES if each.path in found}
    whole = first.page(by_kind, goals, against, titles, [name for name in used if name])
    return {FIRST: whole, **_without_machine(found, by_kind)}


HEAD = "The terms, the machine and a summary are in [benchmarks.md](benchmarks.md)."


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
        return {**result, "comparison": spark.rows(result)}
    if result.get("kind") == "growth":
        return {**result, "comparison": growth_steps.flat_slopes(result)}
    return result


def draw(results: Sequence[dict[str, Any]], directory: Path) -> None:
    """The pages' pictures, of the very results that they show."""
    by_kind = _by_kind(results)
    for kind, draw_kind in PICTURES.items():
        if kind in by_kind:
            draw_kind(by_kind[kind], directory / f"{kind}.svg")


def read(path: Path) -> dict[str, Any]:
    """A kept result; a directory is the steps of `python -m bench growth`, or the rows of `full`, and
    lines of JSON are the history of `python -m bench micro`.

    Raises Unreadable, OSError.
    """
    if path.is_dir():
        return growth_steps.collect_steps(path) if any(path.glob("*.json")) else full.collect_rows(path)
    if path.suffix == history.HISTORY.suffix:
        return history.collect_records(path)
    found = kept.read(path, "machine")
    if found.get("kind", ONE_NODE) not in MAKERS:
        raise kept.Unreadable(f"{path} is of no kind that the page has: {found.get('kind')!r}")
    return found


_RELATIVE = re.compile(r"(\]\()(?!https?:|#|/|mailto:)")


def relocate_links(text: str, page: str) -> str:
    """The text with its links as they are from `page`, a path below docs/."""
    folder, _, _ = page.rpartition("/")
    moved = _RELATIVE.sub(rf"\1{'../' * page.count('/')}", text)
    return moved.replace(f"](../{folder}/", "](") if folder else moved
