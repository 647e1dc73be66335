"""Producer epochs at their end, and the epoch before the last raise after a restart: docs/decisions/0037."""

from __future__ import annotations

import asyncio

import pytest

from lockstep.broker.transactions.transaction_records import TransactionState
from lockstep.broker.transactions.transaction_rules import LAST_EPOCH
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.control import ControlKind
from tests.broker.conftest import StartBroker
from tests.broker.transactions.worlds import NAME, TIMEOUT_MS, World, error, make, until


@pytest.fixture
async def one(start_broker: StartBroker) -> World:
    """All partitions are in one log group."""
    return await make(start_broker)


async def test_a_time_out_at_the_last_epoch_brings_a_new_id(start_broker: StartBroker) -> None:
    """KAFKA-20090: nothing is above the largest epoch, so it must not be a client's."""
    world = await make(start_broker, transaction_abort_timed_out_transaction_cleanup_interval_ms="3600000")
    expiration = world.broker.assembly.transaction_expiration
    producer_id, _ = await world.transactions.init_producer_id(NAME, 1, -1, -1)
    await world.coordinator._write(NAME, world.now._replace(producer_epoch=LAST_EPOCH))
    await world.transactions.add_partitions(NAME, producer_id, LAST_EPOCH, [("t", 0)], 2)
    await asyncio.sleep(0.01)
    assert await expiration.abort_overdue() == 1
    await until(world, TransactionState.COMPLETE_ABORT)
    assert world.kinds(("t", 0)) == [(ControlKind.ABORT, LAST_EPOCH + 1)]
    fresh = await world.transactions.end(NAME, producer_id, LAST_EPOCH, False, 2)  # its own, late abort
    assert fresh[0] != producer_id and fresh[1] == 0
    late = world.transactions.end(NAME, producer_id, LAST_EPOCH, True, 2)
    assert await error(late) is ErrorCode.PRODUCER_FENCED
    # It goes on with that, and the next time-out fences it.
    await world.transactions.add_partitions(NAME, *fresh, [("t", 1)], 2)
    await asyncio.sleep(0.01)
    assert await expiration.abort_overdue() == 1
    await until(world, TransactionState.COMPLETE_ABORT)
    assert world.kinds(("t", 1)) == [(ControlKind.ABORT, 1)]
    more = world.transactions.add_partitions(NAME, *fresh, [("t", 1)], 2)
    assert await error(more) is ErrorCode.PRODUCER_FENCED
    assert await error(world.transactions.end(NAME, *fresh, True, 2)) is ErrorCode.PRODUCER_FENCED


async def test_an_id_at_the_largest_epoch_is_mended_by_its_next_end(one: World) -> None:
    """Versions before handed that epoch out: their data directories open."""
    producer_id, _ = await one.begin()
    for commit in (None, True):
        largest = one.now._replace(producer_id=producer_id, producer_epoch=LAST_EPOCH + 1)
        await one.coordinator._write(NAME, largest)
        await one.transactions.add_partitions(NAME, producer_id, LAST_EPOCH + 1, [("t", 0)], 2)
        if commit is None:
            fresh = await one.begin()
        else:
            fresh = await one.transactions.end(NAME, producer_id, LAST_EPOCH + 1, commit, 2)
        assert fresh[0] > producer_id
        assert fresh[1] < 2
        producer_id = fresh[0]


@pytest.mark.parametrize("epoch", [0, LAST_EPOCH])
async def test_an_unacknowledged_identity_is_known_after_a_restart(
    start_broker: StartBroker, epoch: int
) -> None:
    """KAFKA-20357: the request is sent again to whatever coordinates by then."""
    world = await make(start_broker)
    producer_id, _ = await world.begin()
    await world.coordinator._write(NAME, world.now._replace(producer_epoch=epoch))
    raised = await world.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch)
    assert raised != (producer_id, epoch)
    for _ in range(2):
        await world.broker.stop()
        world = World(await start_broker(transaction_state_log_num_partitions="4"))
        assert await world.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch) == raised
    await world.begin()
    late = world.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch)
    assert await error(late) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [0, LAST_EPOCH])
async def test_a_producer_that_timed_out_may_come_back_after_a_restart(
    start_broker: StartBroker, epoch: int
) -> None:
    world = await make(start_broker)
    producer_id, _ = await world.transactions.init_producer_id(NAME, 1, -1, -1)
    await world.coordinator._write(NAME, world.now._replace(producer_epoch=epoch))
    await world.transactions.add_partitions(NAME, producer_id, epoch, [("t", 0)], 2)
    await asyncio.sleep(0.01)
    await world.broker.assembly.transaction_expiration.abort_overdue()
    await until(world, TransactionState.COMPLETE_ABORT)
    now = world.now.producer_id, world.now.producer_epoch
    await world.broker.stop()
    world = World(await start_broker(transaction_state_log_num_partitions="4"))
    assert await world.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch) == now
    assert await world.transactions.end(NAME, *now, False, 2) == (now[0], now[1] + 1)
