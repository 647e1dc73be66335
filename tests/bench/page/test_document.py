"""Which pages there are, and that the machine is told once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.page.__main__ import main
from bench.page.document import FIRST, PAGES, pages, read, relocate_links
from compat_tests.targets import ROOT
from tests.bench.outcomes import FACTS


def test_each_result_has_its_page_and_the_machine_is_stated_once() -> None:
    shared = {
        "command": "python -m bench growth",
        **FACTS,
        "failures": [],
    }
    axes = {"batch": 32, "batch_rate": 10_000, "seconds": 2.0}
    store = {**shared, "kind": "logstore", "axes": axes, "stream_bytes_per_s": 87_000_000, "runs": []}
    feed = {**shared, "kind": "feed", "command": "python -m bench feed", "sizes": [], "rounds": []}
    found = pages([store], ["a.json"])
    assert list(found) == [FIRST, "benchmarks/logstore.md"] and feed["kind"] == "feed"
    first, other = found.values()
    assert "- P, 2 CPUs" in first and "P, 2 CPUs" not in other and "- commit 0123456789ab" in other
    assert "](benchmarks/logstore.md)" in first and "](../benchmarks.md)" in other
    cells_of_other_machines = {**store, "machine": {**store["machine"], "kernel": "7"}}
    assert "kernel 7" in pages([cells_of_other_machines])[FIRST]


KEPT = ("headline-lockstep-vs-kafka", "secured-lockstep-vs-kafka", "profile")
"""The kinds whose newest result is on the pages, beside the grid's."""


def test_the_pages_in_docs_are_those_of_the_kept_results() -> None:
    """All figures of all kinds: what is changed here is changed there, by `make bench-page`."""
    results = ROOT / "bench" / "results"
    kept = [max(results.glob(f"*-{kind}.json")) for kind in KEPT]
    kept += [results / "growth", results / "micro" / "history.jsonl", results / "full"]
    found = pages([read(path) for path in kept], [path.name for path in kept])
    assert set(found) == {FIRST, *(each.path for each in PAGES)}
    for name, text in found.items():
        assert text == (ROOT / "docs" / name).read_text(), f"{name}: make bench-page writes another one"


def test_links_of_a_section_lead_to_the_same_place_from_its_page() -> None:
    text = "[a](decisions/1.md) ![b](growth.svg) [c](benchmarks/grid.md) [d](#e) [f](https://g) [h](../R.md)"
    assert relocate_links(text, "benchmarks.md") == text
    assert relocate_links(text, "benchmarks/player.md") == (
        "[a](../decisions/1.md) ![b](../growth.svg) [c](grid.md) [d](#e) [f](https://g) [h](../../R.md)"
    )


SHAPES = (
    "",
    "[]",
    "null",
    "{}",
    '{"kind": "headline"}',
    '{"kind": "xyz", "machine": {}, "failures": []}',
    '{"kind": [], "machine": {}, "failures": []}',
    '{"kind": "headline", "machine": {}, "failures": []}',
    '{"kind": "growth", "machine": {}, "failures": []}',
    '{"kind": "full", "machine": {}, "failures": [], "rows": 3}',
    '{"machine": [], "failures": []}',
)


@pytest.mark.parametrize("text", SHAPES)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([str(path)])
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out and "result" in said.err


@pytest.mark.parametrize("name", ["log_gib-1.json", "foreign.json", "requests/1n-x.json"])
@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_a_bad_file_of_a_directory_is_refused(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    said = capsys.readouterr()
    assert ended.value.code == 2 and not said.out
    assert path.name in said.err or "has no step" in said.err


def test_where_pages_cannot_go_nothing_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main(["--directory", str(tmp_path / "a.json"), str(tmp_path / "a.json")])
    assert ended.value.code == 2 and not capsys.readouterr().out
