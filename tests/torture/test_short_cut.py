"""A short cut of the torture for every test run: one node as it is today, and three nodes with one kill."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from compat_tests.kafka_jars import skip_or_fail
from tests.torture.clients.workers import TRANSACTIONAL
from tests.torture.cluster import ROOT
from tests.torture.faults import LEADER, plan
from tests.torture.network import NotPossible, command
from tests.torture.run import figures, report
from tests.torture.session import Options, Outcome, Session

CONTROL_SEED = 52
PYTHON_ONLY = tuple(name for name in TRANSACTIONAL if not name.startswith("java"))


def short_cut(directory: Path, nodes: int) -> Outcome:
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.torture --nodes {nodes} --seconds 10 --faults kill --seed {seed}")
    options = Options(
        nodes=nodes, seconds=10, seed=seed, faults=("kill",), workers=PYTHON_ONLY, partitions=3, rate=20
    )
    try:
        return Session(options, directory, print).run()
    except NotPossible as reason:
        skip_or_fail(str(reason))
        raise AssertionError("unreachable") from reason


def assert_sound(outcome: Outcome) -> None:
    assert outcome.problems == []
    assert outcome.verdict.problems == []
    assert outcome.verdict.acknowledged > 200
    assert outcome.verdict.transactions["committed"] > 5
    assert len(outcome.faults) == 1
    assert "sound" in report(figures(outcome, 0.0))


def test_a_kill_of_a_single_node_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert_sound(short_cut(tmp_path, 1))


def test_a_kill_among_three_nodes_loses_and_doubles_nothing(tmp_path: Path) -> None:
    assert_sound(short_cut(tmp_path, 3))


def test_leaders_that_do_not_wait_for_a_majority_are_found(tmp_path: Path) -> None:
    """The negative control. The seed cuts a leader off twice, and not from the clients."""
    options = Options(
        nodes=3,
        seconds=20,
        seed=CONTROL_SEED,
        faults=("partition",),
        workers=("confluent-plain", "confluent-idempotent", "confluent-assign"),
        partitions=3,
        rate=100,
        module="tests.torture.sabotage",
    )
    planned = plan(options.seed, options.faults, options.nodes, options.seconds)
    assert all(each.target == LEADER and each.spin % 3 and each.lasts_s > 4 for each in planned)
    try:
        outcome = Session(options, tmp_path, print).run()
    except NotPossible as reason:
        skip_or_fail(str(reason))
        return
    print(outcome.verdict.kinds, outcome.problems)
    assert {"lost-write", "inconsistent-offsets"} & set(outcome.verdict.kinds)


def test_nothing_is_left_behind_after_sigterm(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.torture", "--nodes", "1", "--no-evidence", "--faults", "pause"]
    running = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert running.stdout is not None
    for line in running.stdout:
        if "not possible" in line:
            skip_or_fail(line)
        if line.startswith("  pause on"):
            break
    running.terminate()
    rest = running.stdout.read()
    running.stdout.close()
    assert running.wait(60) == 128 + 15, rest
    assert f"lk-{running.pid}-" not in command("ip", "netns", "list")
