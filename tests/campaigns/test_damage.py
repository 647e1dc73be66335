"""A short cut of the campaign, the damage it makes, and a judge that sees what it is for."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaigns import damage

WORST = "groups/1/0000000000000002.segment"
"""Closed, and below the checkpoint: nothing reads it at a start."""


@pytest.mark.parametrize("kind", damage.KINDS)
def test_each_kind_of_damage_changes_the_file_or_says_that_it_did_not(kind: str, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_damage_of_a_closed_log_file_is_said_and_a_judge_that_is_told_otherwise_sees_it(
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
