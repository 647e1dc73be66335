"""The history of single steps: what a regression is, and which commit is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.kept import Unreadable
from bench.micro.history import (
    Change,
    append,
    comparable,
    courses,
    is_comparable_over_time,
    machine_factor,
    newest_factor,
    read,
    regressions,
)
from bench.page.document import read as read_result
from tests.bench.micro.records import LONG, MACHINE, PYTHON, SHORT, record_of, recorded


def _history(*figures: float) -> list[dict[str, Any]]:
    return [recorded(f"c{number}", decode=figure, steady=5.0) for number, figure in enumerate(figures)]


def test_a_step_that_stays_slower_names_the_commit_it_became_so_with() -> None:
    (found,) = regressions(_history(10.0, 10.5, 9.8, 14.0, 13.9))
    assert (found.step, found.commit, found.last_good) == ("decode", "c3", "c2")
    assert found.before_us == 10.0 and found.after_us == pytest.approx(13.95)
    assert "git log c2..c3" in str(found)


def test_one_slow_record_noise_and_what_became_faster_are_no_regressions() -> None:
    assert regressions(_history(10.0, 20.0, 10.1)) == []
    assert regressions(_history(10.0, 11.9, 12.0)) == []
    assert regressions(_history(10.0, 5.0, 5.1)) == []
    assert regressions(_history(10.0)) == regressions([]) == []


def test_slow_growth_is_seen_against_the_records_before_it() -> None:
    # no commit alone is a quarter slower than the one before, the last three are than what was usual
    (found,) = regressions(_history(10.0, 10.0, 10.0, 11.5, 13.0, 13.2, 13.1))
    assert found.commit == "c4"


def _largest(*figures: float) -> Change | None:
    (decode, steady) = courses(_history(*figures))
    assert (decode.step, steady.largest, steady.grown) == ("decode", None, 1.0)
    assert (decode.first_us, decode.newest_us) == (figures[0], figures[-1])
    return decode.largest


def test_the_largest_change_is_the_one_that_stayed_whether_slower_or_faster() -> None:
    up = _largest(10.0, 10.0, 14.0, 14.0, 14.0, 14.0, 14.0, 28.0, 28.0)
    assert up == Change(2.0, "c7", "c6", 2)
    # the second record of a change is beyond what was usual as well, and by more: the first one made it
    assert _largest(10.0, 10.0, 14.0, 15.0) == Change(1.45, "c2", "c1", 2)
    assert _largest(10.0, 10.0, 4.0, 4.0, 4.0, 4.0, 4.0, 6.0) == Change(0.4, "c2", "c1", 6)
    assert _largest(10.0, 15.0) == Change(1.5, "c1", "c0", 1)
    for noise in ((10.0,), (10.0, 12.4, 9.2), (10.0, 10.0, 10.0, 30.0, 10.0), (10.0, 10.0, 10.0, 3.0, 10.0)):
        assert _largest(*noise) is None
    assert courses([]) == []


def _referring(*figures: tuple[float, dict[str, float]]) -> list[dict[str, Any]]:
    return [record_of(f"c{at}", {"decode": figure, **others}) for at, (figure, others) in enumerate(figures)]


def test_a_machine_that_became_slower_makes_no_step_slower() -> None:
    fast, slow = {SHORT: 0.4, LONG: 0.8}, {SHORT: 0.5, LONG: 1.44}  # by 1.25 and 1.8: by 1.5
    assert machine_factor(record_of("b", slow), record_of("a", fast)) == pytest.approx(1.5)
    records = _referring((10.0, fast), (10.2, fast), (15.1, slow), (15.2, slow))
    assert regressions(records) == []
    assert newest_factor(records) == pytest.approx(1.5)  # two of the three before were fast


def test_what_a_step_takes_beyond_the_machine_is_a_regression() -> None:
    fast, slow = {LONG: 0.8}, {LONG: 1.2}
    (found,) = regressions(_referring((10.0, fast), (20.0, slow), (20.2, slow)))
    assert (found.step, found.commit) == ("decode", "c1")
    assert (found.before_us, found.after_us) == pytest.approx((15.0, 20.1))
    assert "15.00 us before, at the machine's speed of now" in str(found)
    # a machine that became faster does not hide it
    (found,) = regressions(_referring((10.0, slow), (10.1, fast)))
    assert found.before_us == pytest.approx(20.0 / 3)


def test_records_are_compared_by_the_references_that_both_have() -> None:
    old, new = record_of("a", {LONG: 0.8}), record_of("b", {LONG: 1.2, PYTHON: 9.0})
    none = record_of("c", {"decode": 1.0})
    assert machine_factor(new, old) == pytest.approx(1.5)
    assert machine_factor(record_of("d", {LONG: 1.2, PYTHON: 36.0}), new) == pytest.approx(2.0)
    assert machine_factor(new, none) is None
    assert newest_factor([new]) is None and newest_factor([none, new]) is None
    assert regressions(_referring((10.0, {}), (15.0, {LONG: 9.0})))[0].before_us == 10.0


def test_references_and_what_waits_for_the_disk_are_not_judged() -> None:
    disk, group = "group turn, 1 x 1 KB, flush", "group turn, 1 x 1 KB, no flush"
    before = {PYTHON: 9.0, SHORT: 0.4, disk: 100.0, group: 20.0}
    after = {PYTHON: 18.0, SHORT: 0.2, disk: 300.0, group: 30.0}  # together the two say: as fast as before
    (found,) = regressions([record_of("a", before), record_of("b", after)])
    assert found.step == group and not is_comparable_over_time(disk)


def test_a_commit_has_one_record_for_each_kind_of_machine(tmp_path: Path) -> None:
    path = tmp_path / "below" / "history.jsonl"
    other = {**MACHINE, "processor": "Q"}
    for entry in (recorded("a", decode=1.0), recorded("a", other, decode=9.0), recorded("b", decode=2.0)):
        append(path, entry)
    append(path, recorded("a", decode=1.5))
    found = read(path)
    assert [(each["commit"], each["steps"]["decode"]) for each in found] == [
        ("a", 9.0),
        ("b", 2.0),
        ("a", 1.5),
    ]
    assert comparable(found[1], found[2]) and not comparable(found[0], found[1])
    assert "more" not in found[0]["machine"]


@pytest.mark.parametrize("text", ["", "{", "3\n", "[]\n", '{"commit": "a", "machine": {}}\n'])
def test_what_is_no_history_is_no_result(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text)
    with pytest.raises(Unreadable, match=r"history\.jsonl is no history"):
        read_result(path)
