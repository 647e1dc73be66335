"""ListTransactions and DescribeTransactions, while there are no transactions."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.describe_transactions import DescribeTransactionsRequest
from protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.wire import Client


@pytest.mark.parametrize("version", range(3))
async def test_none_are_listed(client: Client, version: int) -> None:
    states = ["Ongoing", "Bogus", "", "ongoing", "Bogus", "PrepareEpochFence"]
    request = ListTransactionsRequest(state_filters=states, producer_id_filters=[-1, 5])
    response = await client.call(request, version)
    assert (response.error_code, response.transaction_states) == (0, [])
    assert response.unknown_state_filters == ["Bogus", "", "ongoing"]


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        (None, 0),
        ("", 0),
        ("my-.*", 0),
        ("[", ErrorCode.INVALID_REGULAR_EXPRESSION),
        ("(" * 20_000, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
async def test_patterns(client: Client, pattern: str | None, error: int) -> None:
    response = await client.call(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert response.error_code == error


async def test_none_is_described(client: Client) -> None:
    request = DescribeTransactionsRequest(transactional_ids=["a", "", "a"])
    response = await client.call(request, 0)
    assert [(each.transactional_id, each.error_code) for each in response.transaction_states] == [
        ("a", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        ("", ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    ]
