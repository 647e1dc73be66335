"""A small run of the campaign, and what it says of a broker that forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.targets import LockstepTarget
from tests.campaigns import offset_restart


def test_a_few_thousand_commits_are_there_after_a_restart() -> None:
    figures = offset_restart.run(3_000, 1, 1, to_worst=False)
    assert figures["problems"] == [] and figures["restarts"][0]["right"]


def test_an_offset_that_is_missing_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_restart, "_asked", lambda target: {0: 5, 1: 6})
    target = LockstepTarget(directory=tmp_path)
    assert offset_restart.restart(target, {0: 5, 1: 6})["right"]
    assert not offset_restart.restart(target, {0: 5, 2: 7})["right"]
    assert not offset_restart.restart(target, {0: 5, 1: 7})["right"]
