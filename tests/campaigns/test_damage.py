"""A short cut of the campaign, the damage it makes, and a judge that sees what it is for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaigns import damage, evidence

WORST = "groups/1/0000000000000002.segment"
"""Closed, and below the checkpoint: nothing reads it at a start."""


@pytest.mark.parametrize("kind", damage.KINDS)
def test_each_kind_of_damage_changes_the_file_or_reports_that_it_did_not(kind: str, tmp_path: Path) -> None:
    content = random.Random(1).randbytes(3 * damage.PAGE) + bytes(damage.PAGE)
    path, other, old = tmp_path / "a.x", tmp_path / "b.x", tmp_path / "old"
    for each in (path, other, old):
        each.write_bytes(content)
    old.write_bytes(content[:100])
    other.write_bytes(content[1:])
    assert damage.KINDS[kind](path, old, random.Random(2))
    assert not path.exists() or path.read_bytes() != content
    empty = tmp_path / "lonely.y"
    empty.touch()
    made = damage.KINDS[kind](empty, tmp_path / "no such file", random.Random(2))
    assert made is (kind in ("missing", "garbage appended"))


def test_cases_are_resumed_in_the_same_order() -> None:
    files = ["a", "b"]
    every = list(damage.cases(files, 1, set()))
    assert len(every) == len(set(every)) == 2 * len(damage.KINDS)
    assert list(damage.cases(files, 1, set(every[:3]))) == every[3:]
    assert damage.kind_of("groups/1/0002.segment") == "groups/N/N.segment"


def test_an_interrupted_run_resumes_behind_its_last_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each case is on record before the next one begins."""

    class Stopped:
        def __init__(self, nodes: int, directory: Path) -> None:
            pass

        def fill(self) -> None: ...

        def kill(self) -> None: ...

        def files(self) -> list[str]:
            return ["a.segment", "b.index"]

    tried: list[tuple[str, str]] = []

    def judge(world: object, file: str, kind: str, seed: int) -> dict[str, object]:
        if len(tried) == 3:
            raise KeyboardInterrupt
        tried.append((file, kind))
        return {"file": file, "kind": kind, "made": True, "outcome": "whole"}

    monkeypatch.setattr(damage, "World", Stopped)
    monkeypatch.setattr(damage, "judge", judge)
    record = evidence.OpenRun(damage.NAME, tmp_path)
    limit = damage.Limit(1000, 1000.0)
    with pytest.raises(KeyboardInterrupt):
        damage.run(1, limit, 5, set(), tmp_path, record.save)
    done = damage.done_before(1, 5, tmp_path)
    assert done == set(tried) and len(done) == 3
    assert damage.done_before(3, 5, tmp_path) == damage.done_before(1, 6, tmp_path) == set()
    tried.clear()
    figures = damage.run(1, damage.Limit(2, 1000.0), 5, done, tmp_path)
    assert len(figures["cases"]) == 2 and not done & set(tried)
    tried.clear()
    assert damage.run(1, damage.Limit(9, 0.0), 5, done, tmp_path)["cases"] == [] == tried


def test_damage_of_a_sealed_segment_is_reported_and_the_checker_sees_a_false_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = damage.World(1, tmp_path)
    try:
        world.fill()
        for kind in ("bit flip", "zeroed page", "truncated"):
            case = damage.judge(world, WORST, kind, 1)
            assert case["outcome"] in ("said", "refused", "whole"), case
        monkeypatch.setattr(damage, "value", lambda partition, number: b"something else")
        assert damage.judge(world, "groups/1/origin", "garbage appended", 1)["outcome"] in (
            "changed",
            "refused",
        )
        monkeypatch.setattr(damage, "read", lambda bootstrap: (0, {0: {1}}, {}))
        assert (
            damage.judge(world, "groups/0/0000000000000002.segment", "garbage appended", 1)["outcome"]
            == "silent"
        )
    finally:
        world.kill()
