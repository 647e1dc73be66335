"""Several processes follow one feed with one database, and are killed: each effect is there exactly once."""

from __future__ import annotations

import multiprocessing
import random
import signal
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

import pytest

from tests.lockstep.sql.ledger import STAGES, Ledger, follow

PARTITIONS = 2


@pytest.fixture(scope="module")
def forks() -> ForkServerContext:
    """Processes that begin with the imports done."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.lockstep.sql.ledger"])
    return context


def started(forks: ForkServerContext, *arguments: Any) -> ForkServerProcess:
    process = forks.Process(target=follow, args=arguments)
    process.start()
    return process


def exit_codes(processes: list[ForkServerProcess]) -> list[int | None]:
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


def check(database: str, length: int) -> None:
    ledger = Ledger(database)
    for partition in range(PARTITIONS):
        ledger.check(partition, length)


def test_concurrent_clients(forks: ForkServerContext, database: str) -> None:
    """Waltz: testConcurrentClients. They also create the tables, all at once."""
    processes = [started(forks, database, PARTITIONS, 60) for _ in range(3)]
    assert exit_codes(processes) == [0, 0, 0]
    check(database, 60)


def test_killed_again_and_again(forks: ForkServerContext, database: str) -> None:
    """Two at a time, each killed at some stage of some transaction; then another one goes on to the end."""
    drawn = random.Random(f"kill {database.split(':')[0]}")
    stages = [*STAGES, *STAGES[::-1]]
    while stages:
        deaths = [(stages.pop(), drawn.randint(1, 6)) for _ in range(2)]
        killed = [started(forks, database, PARTITIONS, 40, *death) for death in deaths]
        assert exit_codes(killed) == [-signal.SIGKILL] * 2, deaths
    assert exit_codes([started(forks, database, PARTITIONS, 40)]) == [0]
    check(database, 40)
