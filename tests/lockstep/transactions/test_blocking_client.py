"""The face for threads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from lockstep.kafka_client.connection import ClientError
from lockstep.testing import RunningBroker
from lockstep.transactions import Appended, BlockingTransactionClient, Draft, Transaction
from tests.lockstep.transactions.accounts import Counters, Increment, locked_topic


@pytest.fixture
def locked(running: RunningBroker) -> str:
    return asyncio.run(locked_topic(running.bootstrap_servers, 2))


def test_everything_the_other_face_has(running: RunningBroker, locked: str) -> None:
    counters = Counters()
    with BlockingTransactionClient(running.bootstrap_servers, locked, counters) as client:
        appended = client.execute(Increment(counters))
        assert appended is not None and appended.offsets == {0: 0}
        futures = [client.submit(Increment(counters, partition=number % 2)) for number in range(10)]
        client.flush()
        assert all(future.result(10) is not None for future in futures) and client.pending_count() == 0
        client.caught_up()
        assert counters.counts == {(0, b"a"): 6, (1, b"a"): 5}
        assert (
            client.high_water_mark(1) == 4 and client.partition_count == 2 and not client.stalled_partitions()
        )
        client.assign([1])
        assert client.partitions == [1] and len(client.client_id) == 32


def test_the_application_may_block(running: RunningBroker, locked: str) -> None:
    counters, together = Counters(), threading.Barrier(2, timeout=20)

    class Meets(Transaction):
        def execute(self, draft: Draft) -> None:
            if counters.applied == []:
                together.wait()
            draft.add(b"1", key=threading.current_thread().name.encode())

    with BlockingTransactionClient(running.bootstrap_servers, locked, counters) as client:
        for future in [client.submit(Meets()), client.submit(Meets())]:
            assert future.result(20) is not None
    assert all(key is not None and key.startswith(b"lockstep-application") for _, key in counters.counts)


def test_a_callback_may_submit_and_not_execute(running: RunningBroker, locked: str) -> None:
    counters = Counters()
    more: list[Future[Appended | None]] = []
    refused: list[BaseException] = []

    class Goes(Increment):
        def on_completion(self, is_appended: bool) -> None:
            more.append(client.submit(Increment(counters)))
            try:
                client.execute(Increment(counters))
            except RuntimeError as error:
                refused.append(error)

    with BlockingTransactionClient(running.bootstrap_servers, locked, counters, max_outstanding=1) as client:
        assert client.submit(Goes(counters)).result(10) is not None
        assert more[0].result(10) is not None
    assert [str(each) for each in refused] == [
        "execute in a callback: the subscription waits for the callback; use submit"
    ]


def test_errors_are_the_callers(running: RunningBroker, locked: str) -> None:
    counters = Counters()

    class Fails(Transaction):
        def execute(self, draft: Draft) -> None:
            raise KeyError("no such account")

    with BlockingTransactionClient(running.bootstrap_servers, locked, counters) as client:
        with pytest.raises(KeyError, match="no such account"):
            client.execute(Fails())
        with pytest.raises(KeyError):
            client.submit(Fails()).result(10)
    with pytest.raises(RuntimeError, match="not open"):
        client.pending_count()
    with pytest.raises(ClientError):
        BlockingTransactionClient("localhost:1", locked, counters).open()


def test_it_may_be_closed_at_any_time(running: RunningBroker, locked: str) -> None:
    BlockingTransactionClient(running.bootstrap_servers, locked, Counters()).close()
    nobody = BlockingTransactionClient("localhost:1", locked, Counters())
    try:
        with pytest.raises(ClientError):
            nobody.open()
    finally:
        nobody.close()
    with BlockingTransactionClient(running.bootstrap_servers, locked, Counters()) as client:
        client.close()
        client.close()
