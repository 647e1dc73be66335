"""Every shell and Python block of the README runs against a broker, in order, with its port put in; so do
the examples of docs/transactions.md, docs/targets.md, docs/locks.md and docs/player.md."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.kafka_jars import skip_or_fail
from compat_tests.probe import free_port
from compat_tests.targets import ROOT, LockstepTarget
from lockstep.cli import parser

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text()
EXAMPLE = (ROOT / "docs" / "transactions.md").read_text().partition("\n## ")[0]
BLOCKS = [(found[1], found[2]) for page in (README, EXAMPLE) for found in BLOCK.finditer(page)]
EXPECTED = [
    "three",
    "0 sunny=warm",
    "b'three apples'",
    "b'to Lisbon'",
    "parcels",
    "0",
    "refused",
    "before=80000 after=80000",
    "b'ink' b'for both'",
    "None",
]
TARGETS_PAGE = (ROOT / "docs" / "targets.md").read_text()
TARGET_PROGRAM = re.compile(r"^```python file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockstepTarget]:
    with LockstepTarget(directory=tmp_path_factory.mktemp("readme")) as target:
        yield target


def test_the_readme_shows_the_command_kcat_and_both_python_clients() -> None:
    text = "".join(code for _, code in BLOCKS)
    for word in (
        "lockstep produce",
        "lockstep consume",
        "kcat",
        "aiokafka",
        "confluent_kafka",
        "lockstep.testing",
    ):
        assert word in text
    assert len(BLOCKS) == len(EXPECTED)


def test_the_commands_about_clusters_are_there() -> None:
    section = README.partition("## A cluster\n")[2].partition("\n## ")[0]
    lines = [
        shlex.split(line, comments=True) for line in section.splitlines() if line.startswith("lockstep ")
    ]
    assert {" ".join(line[1:3]) for line in lines} >= {"cluster status", "cluster add", "cluster remove"}
    for line in lines:
        parser().parse_args(line[1:])


def _at_free_ports(code: str) -> str:
    """Those that it names may be taken; the broker's is put in later, and the player's is a default."""
    for port in sorted({*re.findall(r"localhost:(\d+)", code)} - {"9092"}):
        code = code.replace(f"localhost:{port}", f"localhost:{free_port()}")
    listen = re.search(r'listen = "(localhost:\d+)"', code)
    return code.replace("player status", f"player status --player {listen[1]}") if listen else code


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_readme_runs(broker: LockstepTarget, number: int, tmp_path: Path) -> None:
    language, code = BLOCKS[number]
    if "kcat" in code and shutil.which("kcat") is None:
        skip_or_fail("kcat is not installed (make system-deps)")
    script = _at_free_ports(code).replace("localhost:9092", broker.bootstrap)
    assert EXPECTED[number] in _printed(broker, language, script, tmp_path)


def test_the_example_of_a_target_runs(broker: LockstepTarget, tmp_path: Path) -> None:
    (program,) = TARGET_PROGRAM.finditer(TARGETS_PAGE)
    ((_, shell),) = [(found[1], found[2]) for found in BLOCK.finditer(TARGETS_PAGE)]
    parts = [f"cat > {program[1]} <<'PROGRAM'\n{program[2]}PROGRAM\n", shell]
    script = _at_free_ports("".join(parts))
    assert _printed(broker, "sh", script, tmp_path).splitlines()[-1] == "pen 7"


@pytest.mark.parametrize("page, expected", [("locks", "refused"), ("player", "b'ink' b'for both'")])
def test_the_first_example_of_a_page_runs(
    broker: LockstepTarget, page: str, expected: str, tmp_path: Path
) -> None:
    language, code = next(
        (found[1], found[2]) for found in BLOCK.finditer((ROOT / "docs" / f"{page}.md").read_text())
    )
    script = _at_free_ports(code.replace("seats", "other-seats"))
    assert expected in _printed(broker, language, script, tmp_path)


def _printed(broker: LockstepTarget, language: str, script: str, directory: Path) -> str:
    """What the block writes to standard output; it must end with status 0."""
    if language == "sh":
        script = f"trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT\n{script}"
    words = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    # the command's own default address is localhost:9092, as the README has it
    environment = {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "LOCKSTEP_BOOTSTRAP": broker.bootstrap,
    }
    done = subprocess.run(
        [*words, script],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
