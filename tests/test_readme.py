"""The shell and Python blocks of the README and of the pages that it leads to run against a broker, in order,
with the broker's port put in. `compat_tests/test_spark_pages.py` runs the blocks that need Spark."""

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
MAX_README_LINES = 150
MAX_README_WORDS = 1_200
README = (ROOT / "README.md").read_text()
CLUSTER = (ROOT / "docs" / "cluster.md").read_text()
EXPECTED = {
    "README.md": ["three", "b'to Lisbon'", "rejected", "Appended(offsets={0: 0}, tries=1) None", "records=1"],
    "docs/clients.md": ["0 sunny=warm", "b'three apples'", "b'to Lisbon'", "letters", "to Lisbon"],
    "docs/testing.md": ["0"],
    "docs/transactions.md": [
        "None",
        "before=80000 after=80000",
        "Appended(offsets={0: 1, 1: 0}, tries=1)",
        "",
    ],
}
"""A part of what each block prints, by page."""
RUN_BELOW = {
    "docs/locks.md": 1,
    "docs/player.md": 2,
    "docs/security.md": 4,
    "docs/sql.md": 1,
    "docs/targets.md": 1,
}
"""The number of blocks of a page that tests of their own run."""
RUN_IN_COMPAT_TESTS = ("docs/spark.md", "docs/spark_pipelines.md", "docs/spark_sink.md")
NOT_RUN = {
    "docs/metrics.md": "lockstep serve --set",  # two terminals; tests/broker/metrics covers it
    "docs/sql.md": "pip install",  # it would change the environment that runs the tests
}
"""How a block begins that no test runs."""
TARGETS_PAGE = (ROOT / "docs" / "targets.md").read_text()
TARGET_PROGRAM = re.compile(r"^```python file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockstepTarget]:
    with LockstepTarget(directory=tmp_path_factory.mktemp("readme")) as target:
        yield target


def blocks_of(page: str) -> list[tuple[str, str]]:
    """Language and code of each block of a page that runs."""
    return [(found[1], found[2]) for found in BLOCK.finditer((ROOT / page).read_text())]


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= MAX_README_LINES
    assert len(README.split()) <= MAX_README_WORDS


def test_the_readme_shows_a_first_use_of_each_feature() -> None:
    for word in (
        "make serve",
        "lockstep produce",
        "lockstep consume",
        "confluent_kafka",
        "lockstep-write-lock",
        "lockstep.transactions",
        "lockstep.sql",
        "lockstep player run",
        "lockstep.demo.shard",
        "spark_connector.session",
    ):
        assert word in README
    clients = "".join(code for _, code in blocks_of("docs/clients.md"))
    for word in ("kcat", "aiokafka", "confluent_kafka", "lockstep groups"):
        assert word in clients
    assert "lockstep.testing" in "".join(code for _, code in blocks_of("docs/testing.md"))
    for page, expected in EXPECTED.items():
        assert len(blocks_of(page)) == len(expected), page


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_block_of_a_page_is_run(page: Path) -> None:
    name = f"docs/{page.name}"
    if name in RUN_IN_COMPAT_TESTS:
        return
    left_out = NOT_RUN.get(name)
    blocks = [code for _, code in blocks_of(name) if left_out is None or not code.startswith(left_out)]
    assert len(blocks) == len(EXPECTED.get(name, ())) + RUN_BELOW.get(name, 0)


def test_what_is_installed_into_the_clones_environment_stays_editable() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages += [path for name in ("lockstep", "spark_connector") for path in (ROOT / name).rglob("*.py")]
    for page in pages:
        assert not re.search(r"pip install ['\"]?\.(\[| |`|$)", page.read_text(), re.MULTILINE), page


def test_the_commands_about_clusters_are_there() -> None:
    lines = [
        shlex.split(line, comments=True) for line in CLUSTER.splitlines() if line.startswith("lockstep ")
    ]
    assert {" ".join(line[1:3]) for line in lines} >= {"cluster status", "cluster add", "cluster remove"}
    for line in lines:
        parser().parse_args(line[1:])


def _at_free_ports(code: str) -> str:
    """Those that it names may be taken; the broker's is put in later, and the player's is a default."""
    for port in sorted({*re.findall(r"localhost:(\d+)", code)} - {"9092"}):
        code = code.replace(f"localhost:{port}", f"localhost:{free_port()}")
    listen = re.search(r'listen = "(localhost:\d+)"', code)
    if listen is None:
        return code
    asking = r"lockstep player (status|pause|resume|add|remove)\b"
    return re.sub(asking, rf"lockstep player \1 --player {listen[1]}", code)


@pytest.mark.parametrize(
    "page, number", [(page, number) for page, expected in EXPECTED.items() for number in range(len(expected))]
)
def test_a_block_runs(broker: LockstepTarget, page: str, number: int, tmp_path: Path) -> None:
    language, code = blocks_of(page)[number]
    if "kcat" in code and shutil.which("kcat") is None:
        skip_or_fail("kcat is not installed (make system-deps)")
    script = _at_free_ports(code).replace("localhost:9092", broker.bootstrap)
    assert EXPECTED[page][number] in _printed(broker, language, script, tmp_path)


def test_the_example_of_a_target_runs(broker: LockstepTarget, tmp_path: Path) -> None:
    (program,) = TARGET_PROGRAM.finditer(TARGETS_PAGE)
    ((_, shell),) = [(found[1], found[2]) for found in BLOCK.finditer(TARGETS_PAGE)]
    parts = [f"cat > {program[1]} <<'PROGRAM'\n{program[2]}PROGRAM\n", shell]
    script = _at_free_ports("".join(parts))
    assert _printed(broker, "sh", script, tmp_path).splitlines()[-1] == "pen 7"


@pytest.mark.parametrize("page, expected", [("locks", "rejected"), ("player", "b'ink' b'for both'")])
def test_the_first_example_of_a_page_runs(
    broker: LockstepTarget, page: str, expected: str, tmp_path: Path
) -> None:
    language, code = next(
        (found[1], found[2]) for found in BLOCK.finditer((ROOT / "docs" / f"{page}.md").read_text())
    )
    script = _at_free_ports(code.replace("seats", "other-seats"))
    assert expected in _printed(broker, language, script, tmp_path)


def test_the_examples_of_players_operation_run(broker: LockstepTarget, tmp_path: Path) -> None:
    (_, start), (_, change) = blocks_of("docs/player.md")
    start = start.replace("orders", "changed-orders").replace("shop-1", "changed-shop")
    shown = _printed(broker, "sh", _at_free_ports(f"{start}\n{change}\nlockstep player status"), tmp_path)
    assert shown.count("changed-orders") >= 1 and "localhost" in shown


def test_the_example_of_a_sql_application_runs(broker: LockstepTarget, tmp_path: Path) -> None:
    (code,) = [code for language, code in blocks_of("docs/sql.md") if language == "python"]
    script = code.replace("localhost:9092", broker.bootstrap)
    for balance in (100, 200):
        printed = _printed(broker, "python", script, tmp_path).splitlines()
        assert printed == [f"Appended(offsets={{0: {balance // 100 - 1}}}, tries=1)", f"[('ann', {balance})]"]


def test_a_broker_is_secured_as_documented(broker: LockstepTarget, tmp_path: Path) -> None:
    """All blocks in one shell, as a newcomer types them."""
    if shutil.which("kcat") is None:
        skip_or_fail("kcat is not installed (make system-deps)")
    shell = {"sh": "{}", "python": "python - <<'PROGRAM'\n{}PROGRAM\n"}
    script = "".join(shell[language].format(code) for language, code in blocks_of("docs/security.md"))
    printed = _printed(broker, "sh", _at_free_ports(script), tmp_path).splitlines()
    ready, allowed = (
        next(n for n, each in enumerate(printed) if word in each) for word in ("ready", "may use")
    )
    assert ready < allowed and printed[-2:] == ["pencils", "b'pencils'"]


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
