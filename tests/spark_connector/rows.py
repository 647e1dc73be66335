"""Rows for pipelines' tests, and what a topic holds, read with Fetch."""

from __future__ import annotations

from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.records.batch import iter_headers
from protocol.records.record import Record, iter_records
from spark_connector.connection import Cluster
from spark_connector.pipelines.appending import Row

_BY_NAME = 12
"""The newest version of Fetch that names topics."""


def row(number: int) -> Row:
    """The row of a number: every kind of key, value and header is among them."""
    return (
        None if number % 7 == 3 else b"value-%d" % number * (1 + number % 5),
        None if number % 5 == 4 else b"key-%d" % (number % 11),
        1_700_000_000_000 + number * 37 % 1000,
        [("n", b"%d" % number), ("n", None)] if number % 3 else [],
    )


def rows_of(found: list[Record]) -> list[Row]:
    return [(each.value, each.key, each.timestamp, each.headers) for each in found]


def stored(cluster: Cluster, topic: str, partition: int = 0) -> list[Record]:
    """All records of a partition."""
    found: list[Record] = []
    while True:
        wanted = FetchPartition(
            partition=partition,
            fetch_offset=found[-1].offset + 1 if found else 0,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        answer = cluster.leader(topic, partition).call(request, FetchResponse, newest=_BY_NAME)
        ((data,),) = [each.partitions for each in answer.responses]
        assert data.error_code == 0
        records = data.records or b""
        assert not isinstance(records, list)
        more = [each for at, _ in iter_headers(records) for each in iter_records(records, at)]
        if not more:
            return found
        found += more
