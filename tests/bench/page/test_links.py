"""Links of sections, from the page that they come to stand on."""

from __future__ import annotations

from bench.page.links import relocate_links


def test_links_of_a_section_lead_to_the_same_place_from_its_page() -> None:
    text = "[a](decisions/1.md) ![b](growth.svg) [c](benchmarks/grid.md) [d](#e) [f](https://g) [h](../R.md)"
    assert relocate_links(text, "benchmarks.md") == text
    assert relocate_links(text, "benchmarks/player.md") == (
        "[a](../decisions/1.md) ![b](../growth.svg) [c](grid.md) [d](#e) [f](https://g) [h](../../R.md)"
    )
