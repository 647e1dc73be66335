"""The history of micro-benchmarks: what a regression is, which commit is named; Raft's steps themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.kept import Unreadable
from bench.micro import command as micro
from bench.micro.history import append, comparable, read, record, regressions
from bench.micro.raft import KEPT_ENTRIES, following_step, leading_step

MACHINE = {"processor": "P", "cpus": 2, "python": "3.11", "file_system": "ext4", "kernel": "6", "more": 1}


def _record(commit: str, machine: dict[str, Any] = MACHINE, **steps: float) -> dict[str, Any]:
    return record(steps, machine, {"commit": commit, "dirty": False}, "2026-01-01T00:00:00Z")


def _history(*figures: float) -> list[dict[str, Any]]:
    return [_record(f"c{number}", decode=figure, steady=5.0) for number, figure in enumerate(figures)]


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


def test_a_commit_has_one_record_for_each_kind_of_machine(tmp_path: Path) -> None:
    path = tmp_path / "below" / "history.jsonl"
    other = {**MACHINE, "processor": "Q"}
    for entry in (_record("a", decode=1.0), _record("a", other, decode=9.0), _record("b", decode=2.0)):
        append(path, entry)
    append(path, _record("a", decode=1.5))
    found = read(path)
    assert [(each["commit"], each["steps"]["decode"]) for each in found] == [
        ("a", 9.0),
        ("b", 2.0),
        ("a", 1.5),
    ]
    assert comparable(found[1], found[2]) and not comparable(found[0], found[1])
    assert "more" not in found[0]["machine"]


def test_a_tree_with_changes_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    words = ["--record", "--history", str(path)]
    monkeypatch.setattr(micro, "measured", lambda directory: pytest.fail("nothing is measured in vain"))
    monkeypatch.setattr(micro, "code_facts", lambda: {"commit": "a", "dirty": True})
    assert micro.main(words) == 1
    assert "commit them" in capsys.readouterr().err and not path.exists()
    path.write_text('{"comm')
    with pytest.raises(Unreadable, match=r"history\.jsonl is no history"):
        micro.main(words)
    path.unlink()
    monkeypatch.setattr(micro, "machine_facts", lambda directory: MACHINE)
    for commit, figure, status in (("a", 1.0, 0), ("b", 2.0, 1), ("c", 1.0, 0)):
        monkeypatch.setattr(micro, "code_facts", lambda commit=commit: {"commit": commit, "dirty": False})
        monkeypatch.setattr(micro, "measured", lambda directory, figure=figure: {"decode": figure})
        assert micro.main(words) == status
    assert "SLOWER: decode: 2.00 us with b, 1.00 us before" in capsys.readouterr().err
    assert len(read(path)) == 3


def test_raft_steps_can_be_repeated_for_ever() -> None:
    lead, follow = leading_step(), following_step()
    count = KEPT_ENTRIES + 50
    assert [lead() for _ in range(count)] == list(range(2, count + 2))  # the first entry is the no-op
    assert [follow() for _ in range(count)] == list(range(count))
