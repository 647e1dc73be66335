"""Processes of a target die at every line of their store's code: nothing is lost, or applied twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.player.target.dying import LEDGERS, is_dummy, play
from tests.player.target.stores import NAME, Ledger, PostgresLedger, SqliteLedger

MOST_LINES = 500
"""Two transactions, with all that comes before them, must be done by then."""


@pytest.fixture(scope="module")
def forks() -> ForkServerContext:
    """Processes that begin with the imports done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.player.target.dying"])
    return context


@pytest.fixture
def acked(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "acked", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield number
    os.close(number)


def played(path: Path, kind: str, place: str, term: int, last: int, dies_before: int | None) -> None:
    """The child's: descriptors do not pass to it."""
    play(kind, place, term, last, dies_before, os.open(path, os.O_WRONLY | os.O_APPEND))


def place_of(ledger: Ledger, tmp_path: Path) -> tuple[str, str]:
    if isinstance(ledger, SqliteLedger):
        return "sqlite", str(ledger.path)
    if isinstance(ledger, PostgresLedger):
        return "postgres", ledger.database
    return "file", str(tmp_path)


@pytest.mark.tier(name="rest")
def test_a_death_before_each_line(
    forks: ForkServerContext, ledger: Ledger, tmp_path: Path, acked: int
) -> None:
    kind, place = place_of(ledger, tmp_path)
    path = tmp_path / "acked"
    highest, told = -1, list[int]()
    for line in range(1, MOST_LINES):
        process = forks.Process(target=played, args=(path, kind, place, line, 10_000, line))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, line
        log = LEDGERS[kind](place).store().open(NAME)
        stored = log.load()
        log.close()
        position = -1 if stored is None else stored.position
        before, told = len(told), [int(each) for each in path.read_text().split()]
        assert position >= max(told, default=-1), f"line {line}: acknowledged, and not stored"
        assert position >= highest
        highest = position
        if len(told) - before == 3:
            break
    else:
        pytest.fail(f"{MOST_LINES} lines, and no two transactions")
    last = highest + 3
    process = forks.Process(target=played, args=(path, kind, place, 10_000, last, None))
    process.start()
    process.join()
    assert process.exitcode == 0
    wanted = [at for at in range(last + 1) if not is_dummy(at)]
    if kind == "file":
        again = in_order_again(ledger.applied())
        assert again == wanted
    else:
        assert ledger.applied() == wanted


def in_order_again(applied: list[int]) -> list[int]:
    """At least once: what comes again begins at or below the last, and goes on without a gap."""
    found: list[int] = []
    for at in applied:
        if found and at <= found[-1]:
            assert at in found, f"{at} comes late"
            del found[found.index(at) :]
        found.append(at)
    return found
