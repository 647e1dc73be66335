"""Rows are stored once, in their order, at their offsets: writers die, come late, work at once."""

from __future__ import annotations

import threading
from pathlib import Path
from uuid import uuid4

import pytest

import lockstep.testing
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.records.compression import Codec
from spark_connector.connection import BrokerError, ClusterClient
from spark_connector.pipelines.claims import TopicClaim, claim_topic
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.partition_appender import BatchSettings, PartitionAppender
from tests.spark_connector.conftest import produce
from tests.spark_connector.rows import row, rows_of, stored

ROWS = 200
SMALL = BatchSettings(size_bytes=900)
"""A dozen rows a batch."""


@pytest.fixture
def claimed(cluster: ClusterClient, tmp_path: Path) -> TopicClaim:
    return claim_topic(cluster, tmp_path, f"filled-{uuid4().hex[:12]}", "rows", partitions=2, configs={})


def fill(appender: PartitionAppender, rows: int = ROWS) -> None:
    for number in range(appender.position, rows):
        appender.add(row(number))
    appender.finish()


def check(cluster: ClusterClient, claimed: TopicClaim, rows: int = ROWS) -> None:
    found = stored(cluster, claimed.topic)
    assert [each.offset for each in found] == list(range(rows))
    assert rows_of(found) == [row(number) for number in range(rows)]


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_are_at_their_offsets(cluster: ClusterClient, claimed: TopicClaim, codec: Codec) -> None:
    fill(PartitionAppender(cluster, claimed, 0, BatchSettings(900, codec)))
    check(cluster, claimed)
    assert stored(cluster, claimed.topic, 1) == []


def test_a_new_writer_goes_on_where_the_partition_ends(cluster: ClusterClient, claimed: TopicClaim) -> None:
    first = PartitionAppender(cluster, claimed, 0, SMALL)
    fill(first, 77)
    for number in range(77, 90):
        first.add(row(number))  # and it dies: some of it was sent, nobody knows what of that is stored
    second = PartitionAppender(cluster, claimed, 0, SMALL)
    assert 77 <= second.position <= 90
    fill(second)
    check(cluster, claimed)


def test_a_dead_writers_batch_that_comes_between_look_and_write_is_stored_once(
    cluster: ClusterClient, claimed: TopicClaim
) -> None:
    fill(PartitionAppender(cluster, claimed, 0, SMALL), 20)
    second = PartitionAppender(cluster, claimed, 0, SMALL)
    late = second._batch(20, [row(number) for number in range(20, 27)])
    assert produce(cluster, claimed.topic, late) == 20
    assert second.position == 20  # as it has seen it
    fill(second)
    check(cluster, claimed)


def test_a_dead_writers_batch_that_comes_after_all_is_refused(
    cluster: ClusterClient, claimed: TopicClaim
) -> None:
    appender = PartitionAppender(cluster, claimed, 0, SMALL)
    late = appender._batch(20, [row(number) for number in range(20, 27)])
    fill(appender)
    with pytest.raises(AssertionError, match=f"error_code={int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)}"):
        produce(cluster, claimed.topic, late)
    check(cluster, claimed)


def test_without_the_sequence_that_late_batch_would_be_stored_twice(
    cluster: ClusterClient, claimed: TopicClaim
) -> None:
    """The danger that the tests above are about is real: another producer's batch is taken."""
    fill(PartitionAppender(cluster, claimed, 0, SMALL))
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    other = cluster.any().call(request, InitProducerIdResponse).producer_id
    stranger = TopicClaim(claimed.topic, claimed.topic_id, other, 2, "rows")
    late = PartitionAppender(cluster, stranger, 0)._batch(0, [row(0)])
    assert produce(cluster, claimed.topic, late) == ROWS


def test_writers_at_once_store_each_row_once(
    running: lockstep.testing.RunningBroker, cluster: ClusterClient, claimed: TopicClaim
) -> None:
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with ClusterClient(running.bootstrap_servers, timeout_s=20) as mine:
                fill(PartitionAppender(mine, claimed, 0, SMALL), 1500)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    check(cluster, claimed, 1500)


def test_a_connection_that_breaks_costs_nothing(cluster: ClusterClient, claimed: TopicClaim) -> None:
    appender = PartitionAppender(cluster, claimed, 0, SMALL)
    for number in range(ROWS):
        appender.add(row(number))
        if number % 30 == 29:
            cluster.leader(claimed.topic, 0).close()  # with a batch under way
    appender.finish()
    check(cluster, claimed)


def test_a_stranger_in_the_topic_is_noticed(cluster: ClusterClient, claimed: TopicClaim) -> None:
    appender = PartitionAppender(cluster, claimed, 0, SMALL)
    fill(appender, 20)
    stranger = TopicClaim(claimed.topic, claimed.topic_id, claimed.producer_id + 1000, 2, "rows")
    produce(cluster, claimed.topic, PartitionAppender(cluster, stranger, 0)._batch(0, [row(0)]))
    with pytest.raises(PipelineFailed, match="another producer writes"):
        fill(appender)


def test_batches_that_are_too_large_are_halved(cluster: ClusterClient, tmp_path: Path) -> None:
    name = f"small-{uuid4().hex[:12]}"
    claimed = claim_topic(cluster, tmp_path, name, "rows", partitions=1, configs={"max.message.bytes": "500"})
    fill(PartitionAppender(cluster, claimed, 0))
    check(cluster, claimed)


def test_a_row_that_is_too_large_is_the_users_to_know(cluster: ClusterClient, tmp_path: Path) -> None:
    name = f"small-{uuid4().hex[:12]}"
    claimed = claim_topic(cluster, tmp_path, name, "rows", partitions=1, configs={"max.message.bytes": "500"})
    appender = PartitionAppender(cluster, claimed, 0)
    appender.add(row(0))
    appender.add((bytes(1000), None, 0, []))
    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        appender.finish()
    assert rows_of(stored(cluster, name)) == [row(0)]


def test_sequences_begin_again_after_the_last_one(cluster: ClusterClient, claimed: TopicClaim) -> None:
    """2**31 rows are too many for a test: the broker is told of a producer that stands just before."""
    appender = PartitionAppender(cluster, claimed, 0, SMALL)
    near = (1 << 31) - 10
    first = appender._batch(near, [row(number) for number in range(10)])
    after = appender._batch(near + 10, [row(number) for number in range(10, 20)])
    assert produce(cluster, claimed.topic, first) == 0
    assert produce(cluster, claimed.topic, after) == 10
