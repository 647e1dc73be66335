"""What the page says of the feed, beside contention."""

from __future__ import annotations

from bench.feed.command import evaluate
from bench.page.document import page
from tests.bench.feed.results import feed_sessions
from tests.bench.outcomes import FACTS


def test_the_page_tells_of_contention_and_of_bodies() -> None:
    shared = {
        "command": "python -m bench",
        **FACTS,
        "failures": [],
    }
    rows, _ = evaluate(feed_sessions((0, 20.0, 1.0), (10_000, 40.0, 6.0)))
    contended = {"accounts": 1000, "goodput_per_s": 1234.0, "refusals_per_success": 0.01, "p50_ms": 1.0}
    contended |= {"p99_ms": 2.0, "least_share": 0.93, "longest_wait_s": 0.2, "mean_wait_s": 0.01}
    text = page(
        [
            {**shared, "kind": "feed", "rows": rows},
            {**shared, "kind": "contention", "rows": [contended], "failures": ["1 hot accounts: too few"]},
        ]
    )
    assert text.index("## Contention") < text.index("Failed: 1 hot accounts") < text.index("## A feed")
    assert "1,234" in text and "contention.svg" in text and "| 25.0" in text
