"""The commit from a wheel's file and from a checkout's git files, in each of git's forms."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lockstep import build_info
from lockstep.build_info import UNKNOWN, read_commit

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "0123456789abcdef" * 2 + "01234567"


def test_this_checkouts_commit_is_gits() -> None:
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    assert read_commit(ROOT / "nothing", ROOT / ".git") == head.stdout.decode()[:12] == build_info.commit()
    assert build_info.build() == f"{build_info.VERSION} (commit {build_info.commit()})"


def lay_out(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    "files",
    [
        {"commit.txt": COMMIT},
        {"commit.txt": COMMIT[:12]},
        {".git/HEAD": COMMIT},
        {".git/HEAD": "ref: refs/heads/main", ".git/refs/heads/main": COMMIT},
        {
            ".git/HEAD": "ref: refs/heads/main",
            ".git/packed-refs": f"# pack-refs\n{'f' * 40} refs/heads/domain\n{COMMIT} refs/heads/main",
        },
        {
            ".git": "gitdir: repository/worktrees/w",
            "repository/worktrees/w/HEAD": "ref: refs/heads/w",
            "repository/worktrees/w/commondir": "../..",
            "repository/refs/heads/w": COMMIT,
        },
    ],
)
def test_each_form_of_a_commit(tmp_path: Path, files: dict[str, str]) -> None:
    lay_out(tmp_path, files)
    assert read_commit(tmp_path / "commit.txt", tmp_path / ".git") == COMMIT[:12]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"commit.txt": "no commit"},
        {".git/HEAD": "ref: refs/heads/main"},
        {".git/HEAD": "ref: refs/heads/.invalid", ".git/reftable/tables.list": ""},
        {".git/config": ""},
        {".git": "gitdir: nowhere/worktrees/w"},
        {".git/HEAD": "ref: refs/heads/main", ".git/packed-refs": f"{COMMIT} refs/heads/other"},
    ],
)
def test_what_has_no_commit(tmp_path: Path, files: dict[str, str]) -> None:
    lay_out(tmp_path, files)
    assert read_commit(tmp_path / "commit.txt", tmp_path / ".git") == UNKNOWN
