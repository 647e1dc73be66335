"""The version and the commit of this Lockstep, for `--version`, metrics and `cluster status`.

A wheel has the commit in a file of its own (`requirements/build_hook.py` writes it); a checkout has it in
git's files, which are read without running git: a broker's start does not wait for a process.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

VERSION: Final = "0.2.0"
"""The distribution's version, as pyproject.toml has it; a test compares the two."""
COMMIT_FILE: Final = "commit.txt"
UNKNOWN: Final = "unknown"
_COMMIT: Final = re.compile(r"[0-9a-f]{12,64}")
"""From the 12 digits of a wheel's file to SHA-256."""
_DIGITS: Final = 12


@cache
def commit() -> str:
    """The first 12 digits of the commit; "unknown" outside of a checkout and of a wheel made from one."""
    package = Path(__file__).resolve().parent
    return read_commit(package / COMMIT_FILE, package.parent / ".git")


def build() -> str:
    """Version and commit as nodes report them: `0.2.0 (commit 94a4d5618ee2)`."""
    return f"{VERSION} (commit {commit()})"


def read_commit(file: Path, git: Path) -> str:
    """The commit from a wheel's file, else from the `.git` of a checkout, which is a file in a worktree."""
    try:
        found = _text(file) if file.exists() else _head(git)
    except (OSError, UnicodeDecodeError):
        return UNKNOWN
    return found[:_DIGITS] if _COMMIT.fullmatch(found) else UNKNOWN


def _head(git: Path) -> str:
    if git.is_file():
        git = git.parent / _text(git).removeprefix("gitdir: ")
    head = _text(git / "HEAD")
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    common = git / _text(git / "commondir") if (git / "commondir").exists() else git
    for place in (git, common):
        if (place / name).exists():
            return _text(place / name)
    for line in _text(common / "packed-refs").splitlines():
        if line.endswith(f" {name}"):
            return line.split(" ")[0]
    return UNKNOWN


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8").strip()
