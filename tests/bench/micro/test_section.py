"""What the page says of the history of single steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kept import Unreadable
from bench.micro.history import append, read
from bench.page.document import page
from bench.page.document import read as read_result
from bench.page.sections import micro
from tests.bench.micro.records import LONG, MACHINE, record_of, recorded


def _rows(text: str) -> dict[str, list[str]]:
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    return {line[0]: line[1:] for line in lines}


def test_the_page_has_each_step_with_the_commit_that_changed_it_most(tmp_path: Path) -> None:
    path = tmp_path / "micro" / "history.jsonl"
    disk = "group turn, 1 x 1 KB, flush"
    append(path, recorded("elsewhere", {**MACHINE, "processor": "Q"}, decode=90.0))
    for commit, machine, decode, encode in (
        ("a" * 40, 1.0, 10.0, 4.0),
        ("b" * 40, 1.0, 10.0, 4.1),
        ("c" * 40, 2.0, 40.0, 8.2),
        ("d" * 40, 2.0, 40.0, 4.0),
    ):
        append(
            path, record_of(commit, {"decode": decode, "encode": encode, disk: 50 * decode, LONG: machine})
        )
    append(path, record_of("d" * 40, {**read(path)[-1]["steps"], "request header": 7.0}))
    result = read_result(path)
    assert result["elsewhere"] == 1 and len(result["records"]) == 4
    text = page([result], ["history.jsonl"])
    rows = _rows(text)
    assert rows["decode"] == ["10", "40", "2.00", "2.00", "c" * 12, "b" * 12]
    assert rows["encode"] == ["4", "4", "0.50", "0.49?", "d" * 12, "c" * 12], "the newest record alone has it"
    assert rows[disk] == ["500", "2,000", "2.00", "not judged", "", ""]
    assert rows[LONG][:4] == ["1", "2", "1.00", "not judged"]
    assert rows["request header"][:4] == ["7", "7", "", "one record"]
    assert "2.00 times as long in the newest record as in the first" in text
    assert f"4 commits on this kind of machine, from {'a' * 12} " in text
    assert "- records of other kinds of machine, which are not compared with these: 1" in text
    assert f"Slower now: decode: 40.00 us with {'c' * 12}, 20.00 us before" in text
    assert "Made from, in `bench/results`: `micro/history.jsonl`." in text

    append(path, recorded("alone", {**MACHINE, "python": "3.12"}, decode=1.0))
    text = micro(read_result(path))
    assert _rows(text)["decode"] == ["1", "1", "", "one record", "", ""], "it has none to be compared with"
    assert "which are not compared with these: 5" in text and "Nothing is slower now." in text


@pytest.mark.parametrize("text", ["", "{", "3\n", "[]\n", '{"commit": "a", "machine": {}}\n'])
def test_what_is_no_history_is_no_result(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    with pytest.raises(Unreadable, match=r"history\.jsonl is no history"):
        read_result(path)
