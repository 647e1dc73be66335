"""The front door: which coordinator has which id, and what is said where there is none."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker
from lockstep.broker.transactions.transaction_coordinators import TransactionCoordinators
from lockstep.broker.transactions.verification_client import VerificationRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.log_group import LogGroup
from lockstep.storage.read_index import ReadIndex
from tests.broker.conftest import StartBroker


def refused(call: object) -> ErrorCode:
    with pytest.raises(RequestError) as found:
        call()  # type: ignore[operator]
    return found.value.error


async def test_ids_are_spread_over_the_log_groups(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_data_groups="2", transaction_state_log_num_partitions="7")
    transactions = broker.assembly.transactions
    names = [f"id-{number}" for number in range(20)]
    assert transactions.log_group_of("a") is None
    assert refused(lambda: transactions.describe("a")) is ErrorCode.NOT_COORDINATOR
    assert list(transactions.list_all()) == []
    await transactions.create_topic(broker.assembly.forwarder)
    assert {transactions.log_group_of(name) for name in names} == {1, 2}
    for name in names:
        await transactions.init_producer_id(name, 1_000, -1, -1)
    assert sorted(name for name, _ in transactions.list_all()) == sorted(names)
    assert len(transactions.coordinators()) == 2


async def test_a_delayed_coordinator_serves_once_its_followers_respond(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease has lapsed: a refusal would end its producers, of which some do not ask again."""
    transactions: TransactionCoordinators = broker.assembly.transactions
    await transactions.create_topic(broker.assembly.forwarder)
    await broker.assembly.forwarder.ensure_topic("t")
    monkeypatch.setattr(LogGroup, "has_lease", False)
    identity = await transactions.init_producer_id("a", 1_000, -1, -1)
    await transactions.add_partitions("a", *identity, [("t", 0)], 0)
    request = VerificationRequest("a", *identity, add=False)
    assert transactions.verify_now(request, [("t", 0)]) is None, "not at once"
    assert await transactions.verify(request, [("t", 0)]) == {("t", 0): ErrorCode.NONE}
    for _ in range(2):  # the second finds it ended: no commit says that this node leads
        assert await transactions.end("a", *identity, True, 0) == identity
    assert transactions.lapsed_shards() and transactions.lapsed_shards(["a"])


async def test_a_deposed_coordinator_does_not_respond(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it may be so is found out first, by whoever asks."""
    transactions: TransactionCoordinators = broker.assembly.transactions
    await transactions.create_topic(broker.assembly.forwarder)
    identity = await transactions.init_producer_id("a", 1_000, -1, -1)

    def deposed(read_index: ReadIndex) -> asyncio.Future[bool]:
        monkeypatch.setattr(LogGroup, "is_leader", False)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        answer.set_result(False)
        return answer

    monkeypatch.setattr(LogGroup, "has_lease", False)
    monkeypatch.setattr(ReadIndex, "confirm_leadership", deposed)
    for ask in (
        transactions.verify(VerificationRequest("a", *identity, add=False), [("t", 0)]),
        transactions.init_producer_id("a", 1_000, -1, -1),
        transactions.add_partitions("a", *identity, [("t", 0)], 0),
        transactions.end("a", *identity, True, 0),
    ):
        with pytest.raises(RequestError) as found:
            await ask
        assert found.value.error is ErrorCode.NOT_COORDINATOR


async def test_a_log_group_comes_and_goes(broker: Broker) -> None:
    transactions: TransactionCoordinators = broker.assembly.transactions
    await transactions.create_topic(broker.assembly.forwarder)
    await transactions.init_producer_id("a", 1_000, -1, -1)
    group, state = broker.groups[1], transactions.coordinators()[0].state
    with pytest.raises(ValueError, match="has a shard already"):
        transactions.add_shard(1, group, state)
    transactions.remove_shard(1)
    transactions.remove_shard(1)
    assert refused(lambda: transactions.describe("a")) is ErrorCode.NOT_COORDINATOR
    assert transactions.coordinators() == []
    transactions.add_shard(1, group, state)
    await group.committed()
    await asyncio.sleep(0)
    assert transactions.describe("a").producer_epoch == 0
    transactions.resign()
    assert refused(lambda: transactions.describe("a")) is ErrorCode.NOT_COORDINATOR
