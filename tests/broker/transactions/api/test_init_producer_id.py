"""InitProducerId for idempotent producers: what cannot be granted now is asked for again by every client."""

from __future__ import annotations

import pytest

from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.storage.types import StorageError, StorageFull
from tests.broker.wire import Client

ANY = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)


async def test_each_is_another_one(client: Client) -> None:
    answers: list[InitProducerIdResponse] = [await client.call(ANY, version) for version in (0, 2, 4, 5)]
    assert {each.error_code for each in answers} == {ErrorCode.NONE}
    assert len({each.producer_id for each in answers}) == 4 and {each.producer_epoch for each in answers} == {
        0
    }


@pytest.mark.parametrize("failure", [StorageFull("no room"), StorageError("no controller")])
async def test_transient_errors_are_retriable_for_clients(
    broker: Broker, client: Client, monkeypatch: pytest.MonkeyPatch, failure: StorageError
) -> None:
    async def no_block() -> int:
        raise failure

    producer_ids = broker.assembly.producer_ids
    monkeypatch.setattr(producer_ids, "_block", no_block)
    monkeypatch.setattr(producer_ids, "_next", 0)
    monkeypatch.setattr(producer_ids, "_end", 0)
    answer: InitProducerIdResponse = await client.call(ANY, 4)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
    monkeypatch.undo()
    answer = await client.call(ANY, 4)
    assert answer.error_code == ErrorCode.NONE
