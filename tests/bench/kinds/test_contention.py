"""Contention measured: rows, what is kept, and clients against a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.figures.contention import LEAST_SUCCESSES, point, table
from bench.kinds.contention import evaluate, run_clients
from bench.load.contention import balances
from bench.sessions.children import Child
from bench.sessions.jobs import RoundFailed
from compat_tests.targets import LockstepTarget
from lockstep.kafka_client.client import Client
from tests.bench.kinds.results import client_result, sessions_of


def test_rows_are_medians_with_the_worst_share_and_wait() -> None:
    rounds = [
        point([client_result(200), client_result(200)], 10.0),
        point([client_result(250), client_result(250, longest_wait_s=0.9)], 10.0),
        point([client_result(260), client_result(100)], 10.0),
    ]
    rows, problems = evaluate(sessions_of(*rounds))
    (row,) = rows
    assert (row["accounts"], row["goodput_per_s"]) == (3, 40.0)
    assert (row["least_share"], row["longest_wait_s"]) == (pytest.approx(100 / 180), 0.9)
    assert problems == []
    unproven_blocks = sessions_of(*rounds, point([client_result(1)] * 2, 10.0))
    unproven_blocks[-1]["blocks"][0]["proven"] = False
    assert evaluate(unproven_blocks) == ([row], [])
    assert evaluate(unproven_blocks[-1:]) == ([], [])
    few = point([client_result(LEAST_SUCCESSES - 1)] * 2, 1.0)
    assert evaluate(sessions_of(few))[1] != [] and evaluate(sessions_of(few), quick=True)[1] == []
    _, problems = evaluate(
        sessions_of(*rounds, point([client_result(400), client_result(10)], 10.0)), quick=True
    )
    assert len(problems) == 1 and problems[0].startswith("3 hot accounts: a client had 5%")


def test_the_table_has_a_line_for_each_number_of_accounts() -> None:
    rows, _ = evaluate(sessions_of(point([client_result(200, 20), client_result(200)], 10.0)))
    (line,) = table({"rows": rows}).splitlines()[2:]
    assert "40" in line and "0.05" in line


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with LockstepTarget(directory=tmp_path) as target:

        async def make() -> None:
            async with Client(target.bootstrap) as client:
                await client.create_topic("hot", partitions=1, configs={"lockstep.locks": "true"})

        asyncio.run(make())
        yield {"bootstrap": target.bootstrap, "topic": "hot"}


def test_clients_in_processes_of_their_own_share_two_accounts(topic: dict[str, Any]) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Child("bench.load.contention")) for _ in range(3)]
        found = run_clients(clients, {**topic, "accounts": 2}, 0.1, 0.6)
        total = sum(each["total"] for each in found)
        assert all(len(each["latencies_ns"]) == each["successes"] <= each["total"] for each in found)
        with pytest.raises(RoundFailed, match="BrokerError"):
            run_clients(clients, {**topic, "topic": "nowhere", "accounts": 2}, 0.0, 0.1)
        with pytest.raises(RoundFailed, match="the contention ended"):
            run_clients(clients, {**topic, "accounts": 2}, 0.0, 0.1)
    stored = asyncio.run(balances(**topic))
    assert stored.lost == 0 and stored.balances.keys() <= {0, 1}
    assert sum(stored.balances.values()) == total > 0
