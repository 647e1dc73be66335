"""What a run says of its code: the modules of a commit and changes to them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.machine import facts


def test_a_commits_modules_and_changes_to_them_are_its_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(facts, "ROOT", tmp_path)
    module, page = tmp_path / "broker" / "server.py", tmp_path / "broker" / "README.md"
    module.parent.mkdir()
    module.write_text("1\n")
    page.write_text("words\n")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    first = facts.sources()
    page.write_text("other words\n")
    git("commit", "-am", "two")
    assert facts.sources() == first, "no module has changed"
    module.write_text("2\n")
    second = facts.sources()
    assert second != first
    module.write_text("3\n")
    assert facts.sources() not in (first, second)
    git("commit", "-am", "three")
    assert facts.sources() not in (first, second)
