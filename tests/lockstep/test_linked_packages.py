"""A copy without symbolic links is told so, by the command and by the build."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.linked_packages import LINKED, missing_links

ROOT = Path(__file__).resolve().parents[2]
ALL = "no directory: lockstep/broker, lockstep/player, lockstep/protocol, lockstep/storage; "


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The tracked files as git checks them out with `core.symlinks=false`."""
    source = tmp_path / "source"
    tracked = (
        "lockstep",
        "spark_connector",
        "requirements",
        "pyproject.toml",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
    )
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *tracked]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        file = source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        here = ROOT / name
        file.write_bytes(os.readlink(here).encode() if here.is_symlink() else here.read_bytes())
    return source


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    where = {**os.environ, "PYTHONPATH": str(cwd)}
    return subprocess.run(
        [sys.executable, "-P", "-m", *command],
        cwd=cwd,
        env=where,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_each_directory_is_missed_by_its_name(tmp_path: Path) -> None:
    for name in LINKED:
        (tmp_path / name).mkdir()
    assert missing_links(tmp_path) is None
    (tmp_path / "player").rmdir()
    (tmp_path / "player").write_text("../player")
    (tmp_path / "storage").rmdir()
    found = missing_links(tmp_path)
    assert found is not None and found.startswith("no directory: lockstep/player, lockstep/storage; ")


def test_the_links_of_this_checkout_are_all() -> None:
    assert {path.name for path in (ROOT / "lockstep").iterdir() if path.is_symlink()} == set(LINKED)


@pytest.mark.parametrize("arguments", [("topics", "list"), ("serve", "--data-dir", "d")])
def test_the_command_reports_an_error_in_one_line(clone: Path, arguments: tuple[str, ...]) -> None:
    done = run("lockstep", *arguments, cwd=clone)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"lockstep: {ALL}") and done.stderr.count("\n") == 1
    assert "git config core.symlinks true" in done.stderr and "install the wheel" in done.stderr
    assert run("lockstep", "--version", cwd=clone).returncode == 0


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_nothing_is_built_without_the_packages(clone: Path, kind: str, tmp_path: Path) -> None:
    done = run("hatchling", "build", "--target", kind, "--directory", str(tmp_path / "out"), cwd=clone)
    assert done.returncode == 1
    assert f"lockstep: {ALL}" in done.stderr and "Traceback" not in done.stderr
    assert not list((tmp_path / "out").glob("*"))
