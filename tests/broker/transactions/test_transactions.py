"""The front door: which coordinator has which id, and what is said where there is none."""

from __future__ import annotations

import asyncio

import pytest

from broker.refused import Refused
from broker.server import Broker
from broker.transactions.transactions import Transactions
from protocol.errors import ErrorCode
from tests.broker.conftest import StartBroker


def refused(call: object) -> ErrorCode:
    with pytest.raises(Refused) as found:
        call()  # type: ignore[operator]
    return found.value.error


async def test_ids_are_spread_over_the_log_groups(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_data_groups="2", transaction_state_log_num_partitions="7")
    transactions = broker.services.transactions
    names = [f"id-{number}" for number in range(20)]
    assert transactions.log_group_of("a") is None
    assert refused(lambda: transactions.described("a")) is ErrorCode.NOT_COORDINATOR
    assert list(transactions.listed()) == []
    await transactions.ready()
    assert {transactions.log_group_of(name) for name in names} == {1, 2}
    for name in names:
        await transactions.init_producer_id(name, 1_000, -1, -1)
    assert sorted(name for name, _ in transactions.listed()) == sorted(names)
    assert len(transactions.coordinators()) == 2


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
