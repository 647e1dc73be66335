"""Rows for pipelines' tests, and what a topic holds, read with Fetch."""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lockstep.protocol.records.batch import iter_headers, verify
from lockstep.protocol.records.record import Record, iter_records
from spark_connector.connection import ClusterClient
from spark_connector.pipelines.partition_appender import Row

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


def stored(cluster: ClusterClient, topic: str, partition: int = 0) -> list[Record]:
    """All records of a partition."""
    return list(records(cluster, topic, partition))


def records(
    cluster: ClusterClient, topic: str, partition: int, size_bytes: int = 1 << 20
) -> Iterator[Record]:
    """The same one by one, from Fetches of about `size_bytes`; batches are verified, nobody aborts here."""
    offset = 0
    while True:
        wanted = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=size_bytes, current_leader_epoch=-1
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=size_bytes,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )
        answer = cluster.leader(topic, partition).call(request, FetchResponse, newest=_BY_NAME)
        ((data,),) = [each.partitions for each in answer.responses]
        assert data.error_code == 0, data.error_code
        found = data.records or b""
        assert not isinstance(found, list)
        began = offset
        for at, header in iter_headers(found):
            verify(found, at, header)
            yield from (each for each in iter_records(found, at) if each.offset >= began)
            offset = header.next_offset
        if offset == began:
            return
