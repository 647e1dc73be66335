"""The section of docs/benchmarks/ about a feed without bodies. Measures nothing."""

from __future__ import annotations

from typing import Any

from bench.feed import figures as feeds
from bench.figures.tables import facts, with_failures


def section(result: dict[str, Any]) -> str:
    """The cost of bodies for readers that do not open them."""
    parts = [
        "## A feed without bodies",
        facts(result),
        feeds.table(result, "github"),
        "*How to read this.* One node; topics of transactions, a record with a request, a lock and one "
        "header of the application each, read from the beginning to the end by what a transaction client "
        "reads with, which looks at no body. CPU per transaction, medians over the rounds. What a body costs "
        "above the empty one is the most that a Fetch without bodies could save; the last column is what "
        "taking the body out of one batch takes, which the broker would have to do for each transaction and "
        "each reader, where now it sends what lies on the disk. Bytes of a network are not in these figures; "
        "the second column has them.",
    ]
    return with_failures(parts, result)
