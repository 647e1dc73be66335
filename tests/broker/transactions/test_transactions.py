"""The front door: which coordinator has which id, and what is said where there is none."""

from __future__ import annotations

import asyncio

import pytest

from broker.groups.groups import positive_hash
from broker.metadata import TRANSACTION_STATE, TRANSACTION_STATE_TOPIC_ID, Topic
from broker.refused import Refused
from broker.server import Broker
from broker.transactions.transactions import FOREIGN_TOPIC, Transactions
from protocol.errors import ErrorCode
from tests.broker.conftest import StartBroker


def refused(call: object) -> ErrorCode:
    with pytest.raises(Refused) as found:
        call()  # type: ignore[operator]
    return found.value.error


async def test_ids_are_spread_as_kafka_spreads_them(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_data_groups="2", transaction_state_log_num_partitions="7")
    transactions = broker.services.transactions
    names = [f"id-{number}" for number in range(20)]
    before = [transactions.partition_of(name) for name in names]
    assert before == [positive_hash(name) % 7 for name in names]
    assert transactions.log_group_of("a") is None
    assert transactions.coordinator_node("a") == -1
    assert not transactions.is_ready
    assert refused(lambda: transactions.described("a")) is ErrorCode.NOT_COORDINATOR
    assert list(transactions.listed()) == []
    await asyncio.gather(transactions.ready(), transactions.ready())
    await transactions.ready()
    assert [transactions.partition_of(name) for name in names] == before
    assert {transactions.log_group_of(name) for name in names} == {1, 2}
    assert {transactions.coordinator_node(name) for name in names} == {1}
    for name in names:
        await transactions.init_producer_id(name, 1_000, -1, -1)
    assert sorted(name for name, _ in transactions.listed()) == sorted(names)
    assert len(transactions.coordinators()) == 2


async def test_an_ordinary_topic_of_its_name_is_left_alone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    transactions, cluster = broker.services.transactions, broker.services.cluster
    transactions.check()
    assert not caplog.records
    config = (await broker.services.controller.ensure("t")).config
    monkeypatch.setitem(cluster._by_name, TRANSACTION_STATE, Topic(TRANSACTION_STATE, bytes(16), config))
    transactions.check()
    assert FOREIGN_TOPIC in caplog.text
    with pytest.raises(Refused) as found:
        await transactions.ready()
    assert found.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert refused(lambda: transactions.described("a")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster.topic_by_id(TRANSACTION_STATE_TOPIC_ID) is None


async def test_a_log_group_comes_and_goes(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    transactions: Transactions = broker.services.transactions
    await transactions.ready()
    await transactions.init_producer_id("a", 1_000, -1, -1)
    group, state = broker.groups[1], transactions.coordinators()[0].state
    with pytest.raises(ValueError, match="hosted already"):
        transactions.host(1, group, state)
    with monkeypatch.context() as patched:
        patched.setattr(type(group), "has_lease", False)
        assert refused(lambda: transactions.described("a")) is ErrorCode.NOT_COORDINATOR
    transactions.unhost(1)
    transactions.unhost(1)
    assert refused(lambda: transactions.described("a")) is ErrorCode.NOT_COORDINATOR
    assert transactions.coordinators() == []
    transactions.host(1, group, state)
    await group.committed()
    await asyncio.sleep(0)
    assert transactions.described("a").producer_epoch == 0
    transactions.resign()
    assert refused(lambda: transactions.described("a")) is ErrorCode.NOT_COORDINATOR
