"""Contention measured: who starves, what rows and pictures are made of, and clients against a broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.contention.client import Accounts, Deposit, Window, balances
from bench.contention.command import Clients, judged, main
from bench.contention.figures import LEAST_SUCCESSES, longest_allowed_s, point, starved, table
from bench.running import alone
from bench.sessions.failures import RoundFailed
from bench.settings import FLUSH
from compat_tests.targets import LockstepTarget
from lockstep.client import Client
from lockstep.transactions import Committed, Draft, Refusal
from lockstep.transactions.model import Record

S = 1_000_000_000


def _client(successes: int, refusals: int = 0, longest_wait_s: float = 0.1) -> dict[str, Any]:
    latencies = [5_000_000] * successes
    return {
        "total": successes + 1,
        "successes": successes,
        "refusals": refusals,
        "longest_wait_s": longest_wait_s,
        "latencies_ns": latencies,
    }


def test_a_point_is_of_all_clients_together() -> None:
    found = point([_client(300, 150), _client(100, 50, longest_wait_s=0.7)], 10.0)
    assert (found["goodput_per_s"], found["refusals_per_success"]) == (40.0, 0.5)
    assert (found["least_share"], found["longest_wait_s"], found["mean_wait_s"]) == (0.5, 0.7, 0.05)
    assert found["p99_ms"] == 5.0 and starved(found) is None


def test_who_has_too_little_starves() -> None:
    said = starved(point([_client(200), _client(200), _client(60)], 10.0))
    assert said is not None and "39% of its share" in said


def test_who_waits_too_long_starves() -> None:
    fine = point([_client(200), _client(200, longest_wait_s=1.0)], 2.0)
    assert longest_allowed_s(fine) == 1.0 and starved(fine) is None, "waits below a second are forgiven"
    said = starved(point([_client(200), _client(200, longest_wait_s=1.01)], 2.0))
    assert said is not None and "waited 1.01 s" in said
    slow = point([_client(100), _client(100, longest_wait_s=1.9)], 10.0)
    assert longest_allowed_s(slow) == pytest.approx(2.0) and starved(slow) is None


@pytest.mark.parametrize("successes", [0, LEAST_SUCCESSES - 1])
def test_few_successes_show_nothing(successes: int) -> None:
    said = starved(point([_client(successes)] * 2, 10.0))
    assert said is not None and "too few" in said


def test_only_the_window_is_counted_and_the_time_without_success_at_its_edges_is() -> None:
    window = Window(10 * S, 20 * S)
    window.refused(9 * S)
    window.succeeded(8 * S, 9 * S)
    window.refused(11 * S)
    window.succeeded(9 * S, 13 * S)
    window.succeeded(13 * S, 14 * S)
    window.refused(21 * S)
    window.succeeded(19 * S, 21 * S)
    result = window.result()
    assert (result["total"], result["successes"], result["refusals"]) == (4, 2, 1)
    assert result["longest_wait_s"] == 6.0
    assert result["latencies_ns"] == [4 * S, 1 * S]
    assert Window(0, 5 * S).result()["longest_wait_s"] == 5.0


def test_a_deposit_asks_for_its_lock_and_counts_its_refusals() -> None:
    accounts, window = Accounts(), Window(0, time.monotonic_ns() + 100 * S)
    accounts.balances[4] = 8
    deposit, draft = Deposit(accounts, 4, window), Draft(0, 1)
    deposit.execute(draft)
    assert draft.parts[0].write_locks == [b"account/4"]
    assert [record.value for record in draft.parts[0].records] == [b"4 9"]
    deposit.on_refusal(Refusal("LOCK", False, 0, 3, True, b"account/4", "no"))
    assert window.result()["refusals"] == 1


def test_an_update_that_did_not_see_the_one_before_is_lost() -> None:
    accounts = Accounts()
    for offset, value in enumerate((b"7 1", b"7 2", b"8 1", b"7 2")):
        accounts.apply(Committed(0, offset, (Record(value),)))
    assert (accounts.lost, accounts.balances, accounts.high_water_mark(0)) == (1, {7: 2, 8: 1}, 3)


def _sessions(*rounds: dict[str, Any]) -> list[dict[str, Any]]:
    shared = {"name": "hot3", "policy": FLUSH, "proven": True}
    return [
        {"side": "subject", "memory": {}, "blocks": [{**shared, "figures": figures}]} for figures in rounds
    ]


def test_rows_are_medians_with_the_worst_share_and_wait() -> None:
    rounds = [
        point([_client(200), _client(200)], 10.0),
        point([_client(250), _client(250, longest_wait_s=0.9)], 10.0),
        point([_client(260), _client(100)], 10.0),
    ]
    rows, problems = judged(_sessions(*rounds))
    (row,) = rows
    assert (row["accounts"], row["goodput_per_s"]) == (3, 40.0)
    assert (row["least_share"], row["longest_wait_s"]) == (pytest.approx(100 / 180), 0.9)
    assert problems == []
    unproven = _sessions(*rounds, point([_client(1)] * 2, 10.0))
    unproven[-1]["blocks"][0]["proven"] = False
    assert judged(unproven) == ([row], [])
    assert judged(unproven[-1:]) == ([], [])
    few = point([_client(LEAST_SUCCESSES - 1)] * 2, 1.0)
    assert judged(_sessions(few))[1] != [] and judged(_sessions(few), quick=True)[1] == []
    _, problems = judged(_sessions(*rounds, point([_client(400), _client(10)], 10.0)), quick=True)
    assert len(problems) == 1 and problems[0].startswith("3 hot accounts: a client had 5%")


def test_what_is_kept_names_accounts_and_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[list[str]] = []

    def measured(name: str, words: list[str], *rest: object) -> tuple[int, None]:
        kept.append(words)
        return 1, None

    monkeypatch.setattr(alone, "measured", measured)
    assert main(["--accounts", "3", "--accounts", "10", "--clients", "4"]) == main([]) == 1
    begin = ["python -m bench contention", "--clients"]
    assert kept == [[*begin, "4", "--accounts", "3", "--accounts", "10"], [*begin, "16"]]


def test_table_and_picture(tmp_path: Path) -> None:
    rows, _ = judged(_sessions(point([_client(200, 20), _client(200)], 10.0)))
    result = {"rows": rows}
    assert "40" in table(result).splitlines()[-1] and "0.05" in table(result).splitlines()[-1]
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert main(["--plot", str(tmp_path / "result.json"), "--picture", str(tmp_path / "p.svg")]) == 0
    assert "</svg>" in (tmp_path / "p.svg").read_text()


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[dict[str, Any]]:
    with LockstepTarget(directory=tmp_path) as target:

        async def make() -> None:
            async with Client(target.bootstrap) as client:
                await client.create_topic("hot", partitions=1, configs={"lockstep.locks": "true"})

        asyncio.run(make())
        yield {"bootstrap": target.bootstrap, "topic": "hot"}


def test_clients_in_processes_of_their_own_share_two_accounts(topic: dict[str, Any]) -> None:
    with Clients(3) as clients:
        found = clients.run({**topic, "accounts": 2}, 0.1, 0.6)
        total = sum(each["total"] for each in found)
        assert all(len(each["latencies_ns"]) == each["successes"] <= each["total"] for each in found)
        with pytest.raises(RoundFailed, match="BrokerError"):
            clients.run({**topic, "topic": "nowhere", "accounts": 2}, 0.0, 0.1)
        with pytest.raises(RoundFailed, match="a client ended"):
            clients.run({**topic, "accounts": 2}, 0.0, 0.1)
    stored = asyncio.run(balances(**topic))
    assert stored.lost == 0 and stored.balances.keys() <= {0, 1}
    assert sum(stored.balances.values()) == total > 0
