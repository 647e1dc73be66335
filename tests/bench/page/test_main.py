"""The page's command: what is no result is named, and nothing is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.page.__main__ import main

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
