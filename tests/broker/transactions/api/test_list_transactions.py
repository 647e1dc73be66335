"""ListTransactions and DescribeTransactions; what Kafka says: `compat_tests/test_wire_transactions.py`."""

from __future__ import annotations

import pytest

from lockstep.broker.server import Broker
from lockstep.broker.transactions import id_pattern
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.describe_transactions import DescribeTransactionsRequest
from lockstep.protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.wire import Client


async def begin(broker: Broker, client: Client, *names: str) -> None:
    """These ids, the last of them with a transaction under way."""
    await client.create("t")
    transactions = broker.assembly.transactions
    await transactions.create_topic(broker.assembly.forwarder)
    for name in names:
        identity = await transactions.init_producer_id(name, 60_000, -1, -1)
    await transactions.add_partitions(names[-1], *identity, [("t", 0)], 0)


@pytest.mark.parametrize("version", range(3))
async def test_none_are_listed(client: Client, version: int) -> None:
    states = ["Ongoing", "Bogus", "", "ongoing", "Bogus", "PrepareEpochFence"]
    request = ListTransactionsRequest(state_filters=states, producer_id_filters=[-1, 5])
    response = await client.call(request, version)
    assert (response.error_code, response.transaction_states) == (0, [])
    assert response.unknown_state_filters == ["Bogus", "", "ongoing"]


async def test_a_pattern_that_takes_too_long(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(broker, client, "a" * 100)
    monkeypatch.setattr(id_pattern, "MAX_STEPS", 50)
    response = await client.call(ListTransactionsRequest(transactional_id_pattern="(a+)+b"), 2)
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_where_the_coordinator_is_uncertain(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(broker, client, "a")
    (coordinator,) = broker.assembly.transactions.coordinators()
    coordinator.prepare_load()
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await client.call(ListTransactionsRequest(), 2)).error_code == loading
    response = await client.call(DescribeTransactionsRequest(transactional_ids=["a"]), 0)
    assert response.transaction_states[0].error_code == loading


async def test_a_transaction_is_described_again_only_so_often(broker: Broker, client: Client) -> None:
    await begin(broker, client, "a", "b")
    request = DescribeTransactionsRequest(transactional_ids=["a"] * 1000 + ["b"] * 2)
    found = [each.transactional_id for each in (await client.call(request, 0)).transaction_states]
    assert found == ["a"] * 101 + ["b"]


async def test_nothing_is_described_before_the_first_transaction(client: Client) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["a", ""])
    response = await client.call(request, 0)
    assert [each.error_code for each in response.transaction_states] == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.INVALID_REQUEST,
    ]
