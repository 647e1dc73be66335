"""What a run says of its code: the modules of a commit and changes to them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.machine import facts
from bench.machine.device import NoBlockDevice, flushes_needed, parse_counters


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


DISKSTATS = """\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 57092 9607 3320378 11668 8683 21026 1234296 2431 0 5188 14313 3657 13 275648 198 434 14
"""


def test_flushes_are_the_nineteenth_field() -> None:
    counters = parse_counters(DISKSTATS, "vda")
    assert (counters.flushes, counters.flush_ms) == (434, 14)
    assert (counters.writes, counters.write_bytes) == (8683, 1234296 * 512)
    with pytest.raises(NoBlockDevice, match="does not list"):
        parse_counters(DISKSTATS, "sdz")
    with pytest.raises(NoBlockDevice, match="does not count"):
        parse_counters(DISKSTATS.replace(" 434 14", ""), "vda")


def test_one_producer_needs_a_flush_for_every_write() -> None:
    assert flushes_needed(1000, 1) == pytest.approx(950)
    assert flushes_needed(1600, 16) == pytest.approx(95)
