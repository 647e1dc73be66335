"""Produce with acks=0: no answer, but a place among the unanswered until the commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from lockstep.broker.server import Broker
from lockstep.storage.types import NotLeader
from tests.broker.conftest import StartBroker
from tests.broker.waiting import until
from tests.broker.wire import Client, batch, produce_request


async def test_a_producer_without_responses_is_delayed_by_the_commit(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its requests pile up until the log group refuses everybody's, and its connection is closed."""
    broker = await start_broker(lockstep_connection_max_in_flight="2")
    client = await Client.connect(broker.port)
    await client.create("t")
    partition = broker.assembly.cluster.partition("t", 0)
    connections = broker.assembly.connections
    assert partition is not None and connections is not None
    log = partition.log
    waiters: list[Callable[[BaseException | None], None]] = []
    monkeypatch.setattr(partition.group, "when_committed", waiters.append)
    for _ in range(5):
        client.send(produce_request("t", batch(b"x"), acks=0), 9)
    await until(lambda: log.high_watermark == 2)
    await asyncio.sleep(0.05)
    assert (log.high_watermark, len(waiters)) == (2, 2), "the others are not taken"
    assert connections.in_flight_bytes > 0
    waiters.pop(0)(None)
    waiters.pop(0)(NotLeader("lost"))  # nobody is told
    await until(lambda: log.high_watermark == 4)
    for _ in range(3):
        await until(lambda: bool(waiters))
        waiters.pop(0)(None)
    await until(lambda: log.high_watermark == 5 and connections.in_flight_bytes == 0)
    monkeypatch.undo()
    assert (await client.produce("t", batch(b"last"))).base_offset == 5, "nothing was answered before"
    await client.close()


async def test_each_batch_that_is_lost_leaves_a_line(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no other trace of it; that others lost theirs for the same reason says nothing of this one."""
    for _ in range(2):
        client = await Client.connect(broker.port)
        peer = "{}:{}".format(*client.writer.get_extra_info("sockname"))
        client.send(produce_request("nowhere", batch(b"x"), acks=0), 9)
        assert await client.is_closed()
        assert [each for each in caplog.messages if each.startswith(f"{peer}: ")]
