"""The newcomer's commands: what make says when something is missing; CI runs the README's test command."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def stub(folder: Path, name: str, script: str = "exit 0") -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run(script: str, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script of `requirements/` that finds only what is in `path`."""
    return subprocess.run(
        ["/bin/sh", str(ROOT / "requirements" / script), *arguments],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the few ordinary commands the scripts use."""
    for name in ("sed", "head"):
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    return tmp_path


def test_a_missing_python_is_reported(tools: Path) -> None:
    done = run("make_venv.sh", tools, str(tools / "venv"))
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr


def test_an_old_python_is_passed_over(tools: Path) -> None:
    stub(tools, "python3.11", "exit 1")
    stub(tools, "python3", 'case "$1" in -m) echo "made $4";; esac; exit 0')
    done = run("make_venv.sh", tools, "somewhere")
    assert done.returncode == 0
    assert "made somewhere" in done.stdout


def python_stub(folder: Path, name: str, word: str, preferred: bool) -> None:
    """A Python that tells how it was built by `word`, and makes no venv but says so."""
    how = f'case "$2" in --preferred) exit {int(not preferred)};; esac; echo "{word}"'
    stub(folder, name, f"""case "$1" in -m) echo "{name} made $4";; *interpreter.py) {how};; esac; exit 0""")


def test_a_python_built_with_a_profile_is_preferred(tools: Path) -> None:
    python_stub(tools, "python3.11", "plain", preferred=False)
    python_stub(tools, "python3", "guided", preferred=True)
    done = run("make_venv.sh", tools, "somewhere")
    assert done.stdout.splitlines() == [
        "Making somewhere with Python guided ...",
        "python3 made somewhere",
    ]


def test_one_behind_another_of_the_same_name_is_found(
    tools: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    behind = tmp_path_factory.mktemp("behind")
    python_stub(tools, "python3", "plain", preferred=False)
    python_stub(behind, "python3", "guided", preferred=True)
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "requirements" / "make_venv.sh"), "somewhere"],
        env={"PATH": f"{tools}:{behind}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Making somewhere with Python guided ..." in done.stdout


def test_a_python_that_is_named_is_taken(tools: Path) -> None:
    python_stub(tools, "python3.11", "guided", preferred=True)
    python_stub(tools, "mine", "plain", preferred=False)
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "requirements" / "make_venv.sh"), "somewhere"],
        env={"PATH": str(tools), "PYTHON": "mine"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "mine made somewhere" in done.stdout


def test_a_python_reports_how_it_was_built() -> None:
    script = str(ROOT / "requirements" / "interpreter.py")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    build = "profile-guided|not profile-guided"
    assert re.fullmatch(rf"{re.escape(platform.python_version())}, ({build})\n", done.stdout)
    preferred = subprocess.run([sys.executable, script, "--preferred"], check=False).returncode == 0
    assert not preferred or ", profile-guided" in done.stdout


def test_a_python_without_venv_names_the_package(tools: Path) -> None:
    stub(tools, "python3.11", 'case "$2" in *ensurepip*) exit 1;; esac; exit 0')
    done = run("make_venv.sh", tools, "somewhere")
    assert done.returncode == 1
    assert "python3-venv" in done.stderr


def have_everything(tools: Path, java: str = "17.0.1") -> None:
    for name in ("kcat", "fusermount3", "mvn", "node", "npm", "go", "javac", "initdb"):
        stub(tools, name)
    stub(tools, "cargo", "echo 'cargo 1.85.0 (d73d2caf9 2024-12-31)'")
    stub(tools, "java", f"""echo 'openjdk version "{java}"' >&2""")


def test_system_deps_installs_nothing_when_nothing_is_missing(tools: Path) -> None:
    have_everything(tools)
    done = run("system_deps.sh", tools)
    assert done.returncode == 0
    assert "everything is here" in done.stdout


def test_system_deps_without_root_prints_the_command(tools: Path) -> None:
    have_everything(tools, java="11.0.2")
    stub(tools, "apt-get", "exit 99")
    stub(tools, "id", "echo 1000")
    done = run("system_deps.sh", tools)
    assert done.returncode == 1
    assert "openjdk-17-jdk-headless" in done.stderr
    assert "kcat" not in done.stderr
    assert "sudo make system-deps" in done.stderr


def test_system_deps_installs_only_what_is_missing(tools: Path) -> None:
    have_everything(tools)
    (tools / "kcat").unlink()
    stub(tools, "apt-get", 'echo "apt-get $*"')
    stub(tools, "id", "echo 0")
    done = run("system_deps.sh", tools)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "apt-get install -y -qq --no-install-recommends kcat"


@pytest.mark.parametrize(("known", "package"), [("exit 0", "cargo-web"), ("exit 1", "cargo")])
def test_system_deps_replaces_an_old_rust(tools: Path, known: str, package: str) -> None:
    """Debian 12's own Rust is too old; a newer one has another name there, and none in Debian 13."""
    have_everything(tools)
    stub(tools, "cargo", "echo 'cargo 1.66.1'")
    stub(tools, "apt-get", 'echo "apt-get $*"')
    stub(tools, "apt-cache", known)
    stub(tools, "id", "echo 0")
    done = run("system_deps.sh", tools)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"apt-get install -y -qq --no-install-recommends {package}"


def test_system_deps_without_apt_reports_that(tools: Path) -> None:
    done = run("system_deps.sh", tools)
    assert done.returncode == 1
    assert "no apt-get" in done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A virtual environment that has everything, as make sees it."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    for name in ("python", "lockstep"):
        stub(venv / "bin", name)
    packages = venv / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "_lockstep_broker.pth").touch()
    (venv / ".runtime").touch()
    (venv / ".extension").touch()
    return venv


def dry_run(venv: Path, *words: str) -> list[str]:
    """The commands that make would run."""
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", *words, f"VENV={venv}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_second_serve_only_starts_the_broker(installed: Path) -> None:
    """With the stamps in place make has nothing to do but exec one process."""
    assert dry_run(installed, "serve") == [
        f'exec {installed}/bin/lockstep serve --data-dir "data" --listen "localhost:9092" --processes "1"'
    ]


def test_a_file_of_settings_keeps_its_directory_and_listener(installed: Path) -> None:
    serve = f'exec {installed}/bin/lockstep serve --config "my.properties"'
    assert dry_run(installed, "serve", "CONFIG=my.properties") == [f'{serve} --processes "1"']
    assert dry_run(installed, "serve", "CONFIG=my.properties", "LISTEN=localhost:1") == [
        f'{serve} --listen "localhost:1" --processes "1"'
    ]
    (cluster,) = dry_run(installed, "cluster", "CONFIG=my.properties")
    assert cluster.endswith(
        'run_cluster.py --config "my.properties" --data-dir "data" --listen "localhost:9092"'
    )


@pytest.mark.parametrize("gone", ["bin/lockstep", "lib/python3.11/site-packages/_lockstep_broker.pth"])
def test_an_install_that_pip_has_replaced_or_left_out_is_made_again(installed: Path, gone: str) -> None:
    (installed / gone).unlink()
    *before, last = dry_run(installed, "serve")
    assert any(line.endswith("--no-index --editable .") for line in before)
    assert last.startswith(f"exec {installed}/bin/lockstep serve ")
    assert any(line.endswith("--editable .") for line in dry_run(installed, f"{installed}/.runtime"))


def test_ci_runs_the_readmes_test_command() -> None:
    readme = (ROOT / "README.md").read_text()
    ci_lines = (ROOT / ".ci" / "run").read_text().splitlines()
    command = re.search(r"Run the tests with `([^`]+)`", readme)
    assert command is not None
    assert ci_lines[-3:-1] == ["make system-deps", command.group(1)]
    assert "set -euo pipefail" in ci_lines
    assert "export CI=true" in ci_lines
