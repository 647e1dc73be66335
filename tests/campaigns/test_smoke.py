"""The smoke test sees every planted fault, in a client or a broker; and a short cut of it, with a kill."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import lockstep.testing
from lockstep.broker.locks.lock_check import LockChecks
from lockstep.broker.produce.producer_state import NEW, ProducerState
from lockstep.kafka_client.client import Client
from lockstep.kafka_client.connection import BrokerConnection
from lockstep.protocol.messages.produce import PartitionProduceResponse
from lockstep.transactions import TransactionClient
from lockstep.transactions.remote import RemoteLog
from tests.campaigns import evidence, smoke, smoke_client, smoke_judge
from tests.campaigns.brokers import Brokers
from tests.campaigns.smoke_client import PLANTS, Smoke

COUNT = 120


@pytest.fixture(scope="module")
def running() -> Iterator[lockstep.testing.RunningBroker]:
    with lockstep.testing.broker_in_thread(log_flush="os") as broker:
        yield broker


async def smoked(bootstrap: str, plant: str | None = None) -> tuple[list[str], dict[str, int]]:
    """Two clients on a new topic, in this process: problems and counts."""
    seed = random.SystemRandom().randrange(2**31)
    topic = f"smoke-{seed}"
    print(f"repeat with seed {seed}")
    async with Client(bootstrap) as client:
        await client.create_topic(topic, partitions=smoke.PARTITIONS, configs=smoke.CONFIGS)
    both = [Smoke(0, seed, plant), Smoke(1, seed)]
    clients = [TransactionClient(bootstrap, topic, each.counts) for each in both]
    async with clients[0], clients[1]:
        pairs = list(zip(both, clients, strict=True))
        await asyncio.gather(*(each.execute(client, COUNT) for each, client in pairs))
        found = [await each.report(client) for each, client in pairs]
    records, own = await asyncio.to_thread(smoke.read_committed, bootstrap, topic)
    reports = [own, *(smoke_judge.report_of(json.loads(json.dumps(each))) for each in found)]
    assert not any(each["errors"] for each in found)
    problems, counts = smoke_judge.judge(topic, records, reports)
    return problems, dict(counts)


async def test_two_clients_agree_with_the_log_the_model_and_kafka_python(
    running: lockstep.testing.RunningBroker,
) -> None:
    problems, counts = await smoked(running.bootstrap_servers)
    assert problems == []
    assert counts["conditions held"] > COUNT and counts["over several partitions"] > 5
    assert counts["transactions in the log"] > 1.8 * COUNT


@pytest.mark.parametrize("plant", PLANTS)
async def test_a_client_with_a_fault_is_seen(plant: str, running: lockstep.testing.RunningBroker) -> None:
    problems, _ = await smoked(running.bootstrap_servers, plant)
    said = {
        "skip": "client 0 has another checksum than kafka-python",
        "twice": "is there 2 times",
        "lie": "was reported expired",
    }[plant]
    assert len(problems) == 1 and said in problems[0]


@pytest.mark.parametrize(
    ("kind", "said"), [("write", ("was raised at", "it saw")), ("elsewhere", ("no order fits",))]
)
async def test_a_broker_that_does_not_look_at_locks_is_seen(
    kind: str, said: tuple[str, ...], running: lockstep.testing.RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoke_client, "KINDS", {kind: 1})
    monkeypatch.setattr(smoke_client, "HOT", 2)  # few keys, so that many are after the same one
    monkeypatch.setattr(LockChecks, "_check", lambda *_: None)
    problems, _ = await smoked(running.bootstrap_servers)
    for words in said:
        assert any(words in each for each in problems)


def send_again(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """As if the first answer was lost, each so-manieth time."""
    honest, sends = RemoteLog._produce, itertools.count(1)

    async def sent(
        self: RemoteLog, connection: BrokerConnection, batches: Mapping[int, bytes], left_s: float
    ) -> dict[int, PartitionProduceResponse]:
        if not next(sends) % every:
            await honest(self, connection, batches, left_s)
        return await honest(self, connection, batches, left_s)

    monkeypatch.setattr(RemoteLog, "_produce", sent)


async def test_what_is_sent_twice_is_there_once(
    running: lockstep.testing.RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_again(monkeypatch, 1)
    assert (await smoked(running.bootstrap_servers))[0] == []


async def test_a_broker_that_forgets_producers_is_seen(
    running: lockstep.testing.RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_again(monkeypatch, 5)
    monkeypatch.setattr(ProducerState, "check", lambda *_: NEW)
    problems, _ = await smoked(running.bootstrap_servers)
    assert any("stands twice" in each for each in problems), "without locks both copies are taken"
    assert any("is there 2 times" in each for each in problems), "with locks the second one is refused"


def test_hundreds_of_transactions_survive_a_kill(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.campaigns.smoke --transactions 600 --kills 1 --seed {seed}")
    brokers = Brokers("lockstep", 3, {}, tmp_path)
    try:
        brokers.start()
        short = smoke.Round(brokers, "short-cut", seed, tmp_path)
        short.run(600, 2, least_kills=1)
    finally:
        brokers.close()
    assert short.problems == []
    assert short.figures["kills"] >= 1
    assert short.figures["counts"][smoke_judge.APPENDED] > 500


def test_only_sound_rounds_of_this_source_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sound: dict[str, Any] = {
        "source": evidence.source_digest(), "nodes": 3, "transactions": 70, "problems": [],
    }  # fmt: skip
    others: list[dict[str, Any]] = [{"source": "x"}, {"nodes": 1}, {"problems": ["lost"]}]
    runs = [sound, *({**sound, **change} for change in others)]
    monkeypatch.setattr(evidence, "load_runs", lambda _: runs)
    assert smoke.recorded(3) == 70
    assert smoke.main(["--transactions", "70", "--resume"]) == 0
    assert "0 transactions" in capsys.readouterr().out
