"""Readers side by side against a broker: each of them reads all there is, whatever they begin at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.load.backlog import fill, side_by_side
from bench.load.wire import WrongAnswer
from lockstep.testing import RunningBroker, broker_in_thread

BATCHES = 100
RECORDS = 10
BATCH = {"topic": "t", "records": RECORDS, "record_bytes": 2000}


@pytest.fixture(scope="module")
def backlog() -> Iterator[tuple[RunningBroker, int]]:
    """A broker with a topic that is not in memory any more, and the size of its batches."""
    with broker_in_thread(lockstep_tail_cache_bytes="8192") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for done in admin.create_topics([NewTopic("t", 1, 1)]).values():
            done.result(10)
        wanted = BATCHES * RECORDS * 2000
        filled = fill({"host": "localhost", "port": broker.port, "total_bytes": wanted, "window": 4, **BATCH})
        yield broker, filled["bytes"] // filled["requests"]


@pytest.mark.parametrize("apart", [0, 3])
def test_every_reader_reads_everything(backlog: tuple[RunningBroker, int], apart: int) -> None:
    broker, batch_bytes = backlog
    whole = (
        side_by_side({"host": "localhost", "port": broker.port, "readers": 1, **BATCH})["bytes"]
        // batch_bytes
    )
    done = side_by_side({"host": "localhost", "port": broker.port, "readers": 4, "apart": apart, **BATCH})
    assert whole in (BATCHES - 1, BATCHES)
    assert done["bytes"] == sum(whole - number * apart for number in range(4)) * batch_bytes


def test_a_topic_that_is_not_there_ends_the_run(backlog: tuple[RunningBroker, int]) -> None:
    job = {"host": "localhost", "port": backlog[0].port, "readers": 2, **BATCH, "topic": "no-such-topic"}
    with pytest.raises(WrongAnswer, match="error code 3"):
        side_by_side(job)
