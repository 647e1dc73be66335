"""The stories in scripts/ still happen as they are written, and planted faults make them go otherwise."""

from pathlib import Path

import pytest

from tests.storage.raft import scripts
from tests.storage.raft.planted_faults import FAULTS
from tests.support.cases import each_case

STORIES = sorted(scripts.FOLDER.glob("*.txt"))


@each_case("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    """`python -m tests.storage.raft.scripts --rewrite` writes down what happens now."""
    text = path.read_text(encoding="utf-8")
    assert scripts.play(text) == text


@pytest.mark.parametrize(
    ("fault", "story"),
    [
        ("older_terms_commit_by_counting", "figure_8"),
        ("votes_are_answered_before_they_are_flushed", "election"),
        ("stale_completions_count", "stale_completion"),
        ("entries_are_acknowledged_before_they_are_flushed", "election"),
        ("the_leader_counts_what_it_has_not_flushed", "election"),
        ("followers_commit_what_is_not_verified", "commit_follows"),
        ("answers_of_earlier_terms_count", "earlier_term"),
        ("joint_configurations_ask_only_the_new", "membership"),
        ("configurations_outlive_their_entries", "membership_reverted"),
        ("changes_do_not_wait_for_each_other", "membership"),
        ("voters_forget_the_leader_they_hear", "prevote"),
        ("a_restart_forgets_the_promise", "lease_restart"),
        ("the_lease_survives_a_transfer", "transfer"),
        ("the_lease_lasts_too_long", "lease"),
        ("the_lease_counts_from_the_answer", "lease"),
    ],
)
def test_a_fault_changes_the_story(monkeypatch: pytest.MonkeyPatch, fault: str, story: str) -> None:
    text = (scripts.FOLDER / f"{story}.txt").read_text(encoding="utf-8")
    FAULTS[fault](monkeypatch)
    try:
        now = scripts.play(text)
    except Exception as broken:
        now = repr(broken)
    assert now != text


def test_scripts_are_rewritten_only_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "short.txt"
    path.write_text("> group 1\n> pass 0\n  nonsense\n", encoding="utf-8")
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)
    assert scripts.main([]) == 1
    assert "nonsense" in path.read_text(encoding="utf-8")
    assert scripts.main(["--rewrite"]) == 0
    assert scripts.main([]) == 0
    assert "candidate" in path.read_text(encoding="utf-8")
