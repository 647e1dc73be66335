"""Ranges of a real broker: each record once, whatever the size of an answer; refusals; what is lost."""

from __future__ import annotations

import dataclasses
import time
from itertools import count

import pytest

from lockstep.protocol.cluster_view import TRANSACTION
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from lockstep.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from lockstep.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lockstep.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.records.compression import Codec
from lockstep.protocol.records.record import BatchBuilder
from lockstep.testing import RunningBroker
from spark_connector.connection import BrokerError, ClusterClient, ConnectionFailed
from spark_connector.options import (
    EARLIEST,
    LATEST,
    OffsetRangeLimit,
    OptionError,
    SourceOptions,
    source_options,
)
from spark_connector.source.byte_limit import limit_bytes
from spark_connector.source.positions import offsets_at, partitions_of, resolve_offsets
from spark_connector.source.progress import store
from spark_connector.source.range_plan import OffsetRange
from spark_connector.source.range_reader import DataLost, RangeReader
from tests.spark_connector.conftest import NewTopic, produce

_ids = count()


def options(**changed: object) -> SourceOptions:
    given = source_options({"kafka.bootstrap.servers": "unused", "subscribe": "t"})
    return dataclasses.replace(given, **changed)  # type: ignore[arg-type]


def filled(cluster: ClusterClient, topic: str, batches: int, each: int = 10, partition: int = 0) -> None:
    """Batches of all codecs in turn; values say their offset."""
    for n in range(batches):
        builder = BatchBuilder(Codec(n % 5))
        for m in range(each):
            builder.append(b"%d" % (n * each + m) + bytes(100), timestamp_ms=1000 * (n * each + m))
        produce(cluster, topic, builder.build(), partition)


def read(cluster: ClusterClient, wanted: OffsetRange, **how: object) -> list[int]:
    """Offsets of the range; each value says its own."""
    found: list[int] = []
    for columns in RangeReader(cluster, wanted, options(**how)):
        assert [int(value.rstrip(b"\0")) for value in columns.values if value] == list(columns.offsets)
        found += columns.offsets
    return found


@pytest.mark.parametrize("fetch_bytes", [1, 700, 8 << 20])
def test_a_range_in_answers_of_any_size(
    cluster: ClusterClient, new_topic: NewTopic, fetch_bytes: int
) -> None:
    topic = new_topic()
    filled(cluster, topic, 12)
    for start, end in [(0, 120), (5, 14), (33, 34), (119, 120), (50, 50)]:
        assert read(cluster, OffsetRange(topic, 0, start, end), fetch_bytes=fetch_bytes) == list(
            range(start, end)
        )


def test_what_the_rows_user_takes_is_no_waiting(
    cluster: ClusterClient, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the first empty answer after a slow one would end a range of failOnDataLoss=false."""
    topic = new_topic()
    filled(cluster, topic, 2)
    monkeypatch.setattr("spark_connector.source.range_reader._ROWS", 1)
    reader = RangeReader(
        cluster, OffsetRange(topic, 0, 0, 20), options(fail_on_data_loss=False)
    )  # in one answer
    told = iter(reader)
    next(told)
    reader._progress_at = 0.0  # so long ago
    assert len(list(told)) == 1 and reader._progress_at > 0.0


def test_much_comes_in_several_parts(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    filled(cluster, topic, 20, each=2000)
    parts = [len(each) for each in RangeReader(cluster, OffsetRange(topic, 0, 0, 40_000), options())]
    assert sum(parts) == 40_000 and len(parts) > 1


def test_positions(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    filled(cluster, topic, 3)
    parts = partitions_of(
        cluster,
        options(
            selection=source_options({"kafka.bootstrap.servers": "b", "subscribe": topic}).selection
        ).selection,
    )
    assert parts == [(topic, 0), (topic, 1)]

    def at(position: OffsetRangeLimit, default: int = EARLIEST) -> list[int]:
        found = resolve_offsets(cluster, parts, position, default=default, committed=False)
        return [found[part] for part in parts]

    assert at(OffsetRangeLimit()) == [0, 0] and at(OffsetRangeLimit(), LATEST) == [30, 0]
    assert at(OffsetRangeLimit(everywhere=LATEST)) == [30, 0]
    assert at(OffsetRangeLimit(offsets={(topic, 0): 7, (topic, 1): LATEST})) == [7, 0]
    assert at(OffsetRangeLimit(timestamp_ms=12_000, or_latest=True)) == [12, 0]
    assert at(OffsetRangeLimit(timestamps_ms={(topic, 0): 0, (topic, 1): 0}, or_latest=True)) == [0, 0]
    with pytest.raises(OptionError, match=r"startingTimestamp: .*, partition 1: no record is as late"):
        at(OffsetRangeLimit(timestamp_ms=12_000, option="startingTimestamp"))
    with pytest.raises(OptionError, match=f"x: {topic}-1 are read, too"):
        at(OffsetRangeLimit(offsets={(topic, 0): 7}, option="x"))
    with pytest.raises(OptionError, match=r"x: .*-9 are not among"):
        at(OffsetRangeLimit(offsets={(topic, 0): 7, (topic, 1): 7, (topic, 9): 7}, option="x"))


def test_chosen_partitions(cluster: ClusterClient, new_topic: NewTopic) -> None:
    one, two = new_topic(2), new_topic()

    def chosen(**given: str) -> list[tuple[str, int]]:
        return partitions_of(cluster, source_options({"kafka.bootstrap.servers": "b", **given}).selection)

    assert chosen(subscribe=f"{two},{one}") == sorted([(one, 0), (one, 1), (two, 0)])
    assert chosen(subscribePattern=f"{one}|{two[:-1]}.") == sorted([(one, 0), (one, 1), (two, 0)])
    assert chosen(subscribePattern=one[:-1]) == [], "the whole name matches, or it does not"
    assert chosen(assign=f'{{"{one}":[1]}}') == [(one, 1)]
    with pytest.raises(BrokerError, match=f"topic {two}, partition 3: there is no such partition"):
        chosen(assign=f'{{"{two}":[3]}}')


def delete_before(cluster: ClusterClient, topic: str, offset: int) -> None:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=9000
    )
    (answer,) = cluster.leader(topic, 0).call(request, DeleteRecordsResponse).topics
    assert answer.partitions[0].error_code == 0


def delete_topic(cluster: ClusterClient, topic: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=9000)
    (answer,) = cluster.any().call(request, DeleteTopicsResponse).responses
    assert answer.error_code == 0


def test_what_is_deleted(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    filled(cluster, topic, 4)
    delete_before(cluster, topic, 25)
    whole = OffsetRange(topic, 0, 0, 40)
    with pytest.raises(DataLost, match=r"offsets 0 to 39 were to be read, the partition has 25 to 39"):
        read(cluster, whole)
    assert read(cluster, whole, fail_on_data_loss=False) == list(range(25, 40))
    assert read(cluster, OffsetRange(topic, 0, 3, 20), fail_on_data_loss=False) == []
    with pytest.raises(DataLost):
        read(cluster, OffsetRange(topic, 0, 50, 60))
    assert read(cluster, OffsetRange(topic, 0, 50, 60), fail_on_data_loss=False) == []


def test_what_never_comes(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    filled(cluster, topic, 1)
    with pytest.raises(DataLost, match=r"nothing at offset 10 or after it for 0\.2 s"):
        read(cluster, OffsetRange(topic, 0, 5, 12), poll_timeout_s=0.2)


def test_what_never_comes_is_passed_over(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    filled(cluster, topic, 1)
    how = {"fail_on_data_loss": False, "poll_timeout_s": 0.4}
    begun = time.monotonic()
    assert read(cluster, OffsetRange(topic, 0, 5, 12), **how) == [5, 6, 7, 8, 9]
    assert time.monotonic() - begun > 0.4, "not before it has waited"


def test_a_topic_that_is_gone(running: RunningBroker, cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    filled(cluster, topic, 1)
    wanted = OffsetRange(topic, 0, 0, 10)
    with ClusterClient(running.bootstrap_servers, timeout_s=0.5) as other:
        other.topic(topic)  # so that it is asked for by an id that nobody knows any more
        delete_topic(cluster, topic)
        begun = time.monotonic()
        assert read(other, wanted, fail_on_data_loss=False) == []
        assert time.monotonic() - begun > 0.5, "not before it has waited"
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC"):
            read(other, wanted)


def test_a_topic_that_is_deleted_while_its_offsets_are_requested(
    running: RunningBroker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()

    def gone(*_: object, **__: object) -> None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)

    monkeypatch.setattr("spark_connector.source.range_reader.offsets_at", gone)
    with ClusterClient(running.bootstrap_servers, timeout_s=0.3) as other:
        assert read(other, OffsetRange(topic, 0, 5, 10), fail_on_data_loss=False) == []
        with pytest.raises(BrokerError):
            read(other, OffsetRange(topic, 0, 5, 10))


def test_a_broker_that_is_away_has_lost_nothing(
    running: RunningBroker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()

    def away(*_: object) -> None:
        raise ConnectionFailed("away")

    with ClusterClient(running.bootstrap_servers, timeout_s=0.2) as other:
        monkeypatch.setattr(other, "leader", away)
        with pytest.raises(ConnectionFailed):
            read(other, OffsetRange(topic, 0, 5, 10), fail_on_data_loss=False)


def transaction(cluster: ClusterClient, topic: str, values: list[bytes], *, ended: bool | None) -> None:
    """Records in one transaction: committed, aborted, or (None) left open."""
    name = f"tx-{next(_ids)}-{topic}"
    coordinator = cluster.coordinator(name, TRANSACTION)
    identity = cluster.retry(
        lambda: coordinator.call(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
        )
    )
    assert identity.error_code == 0
    who = identity.producer_id, identity.producer_epoch
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    coordinator.call(added, AddPartitionsToTxnResponse, newest=3)
    for n, value in enumerate(values):
        builder = BatchBuilder(producer_id=who[0], producer_epoch=who[1], base_sequence=n, transactional=True)
        builder.append(value, timestamp_ms=5)
        produce(cluster, topic, builder.build(), transactional_id=name)
    if ended is not None:
        request = EndTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=ended
        )
        assert coordinator.call(request, EndTxnResponse, newest=4).error_code == 0


@pytest.mark.parametrize("fetch_bytes", [1, 8 << 20])
def test_committed_records_alone(cluster: ClusterClient, new_topic: NewTopic, fetch_bytes: int) -> None:
    topic = new_topic()
    part = (topic, 0)
    transaction(cluster, topic, [b"a0", b"a1"], ended=False)
    transaction(cluster, topic, [b"c0", b"c1", b"c2"], ended=True)
    transaction(cluster, topic, [b"a2"], ended=False)
    transaction(cluster, topic, [b"c3"], ended=True)
    transaction(cluster, topic, [b"open"], ended=None)
    until = {kind: offsets_at(cluster, [part], LATEST, committed=kind)[part] for kind in (True, False)}
    assert until == {True: 11, False: 12}, "seven records and four markers; the open one is behind"

    def values(committed: bool, start: int = 0) -> list[bytes | None]:
        wanted = OffsetRange(topic, 0, start, until[committed])
        how = options(committed=committed, fetch_bytes=fetch_bytes)
        return [value for columns in RangeReader(cluster, wanted, how) for value in columns.values]

    assert values(True) == [b"c0", b"c1", b"c2", b"c3"]
    assert values(True, start=1) == [b"c0", b"c1", b"c2", b"c3"], "from the middle of an aborted one"
    assert values(True, start=4) == [b"c1", b"c2", b"c3"]
    assert values(False) == [b"a0", b"a1", b"c0", b"c1", b"c2", b"a2", b"c3", b"open"]


def test_how_far_bytes_reach(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    for partition in (0, 1):
        for n in range(20):
            builder = BatchBuilder()
            for _ in range(10):
                builder.append(bytes(93), timestamp_ms=n)
            produce(cluster, topic, builder.build(), partition)
    start = {(topic, 0): 0, (topic, 1): 100}
    end = {(topic, 0): 200, (topic, 1): 200}
    size = len(builder.build())

    def reached(max_bytes: int) -> dict[tuple[str, int], int]:
        return limit_bytes(cluster, start, end, max_bytes, committed=False)

    assert reached(9 * size) == {(topic, 0): 60, (topic, 1): 130}, "two thirds of the bytes, and one"
    assert reached(100 * size) == end
    assert reached(1) == {(topic, 0): 10, (topic, 1): 100}, "one batch, so that the stream moves on"
    assert limit_bytes(cluster, end, end, 1, committed=False) == end


def test_bytes_are_counted_from_where_there_is_anything(cluster: ClusterClient, new_topic: NewTopic) -> None:
    topic = new_topic()
    for _ in range(20):
        builder = BatchBuilder()
        for _ in range(10):
            builder.append(bytes(93), timestamp_ms=1)
        produce(cluster, topic, builder.build())
    size = len(builder.build())
    delete_before(cluster, topic, 100)
    part = (topic, 0)
    assert limit_bytes(cluster, {part: 0}, {part: 200}, 3 * size, committed=False) == {part: 130}
    assert limit_bytes(cluster, {part: 0}, {part: 90}, 3 * size, committed=False) == {part: 90}


def test_positions_of_a_group(cluster: ClusterClient, new_topic: NewTopic) -> None:
    from lockstep.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestTopic,
        OffsetFetchResponse,
    )

    topic = new_topic(2)
    group = f"g-{topic}"

    def stored() -> list[int]:
        asked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1])
        request = OffsetFetchRequest(group_id=group, topics=[asked])
        (answer,) = cluster.coordinator(group).call(request, OffsetFetchResponse, newest=7).topics
        return [each.committed_offset for each in answer.partitions]

    store(cluster, group, {(topic, 0): 5, (topic, 1): 0})
    assert stored() == [5, 0]
    store(cluster, group, {(topic, 0): 9})
    assert stored() == [9, 0]
    store(cluster, group, {("gone", 0): 1})  # a warning: the stream goes on


def test_a_connection_that_breaks_while_reading(
    running: RunningBroker, cluster: ClusterClient, new_topic: NewTopic
) -> None:
    topic = new_topic()
    filled(cluster, topic, 30)
    with ClusterClient(running.bootstrap_servers, timeout_s=10) as other:
        reader = RangeReader(other, OffsetRange(topic, 0, 0, 300), options(fetch_bytes=700))
        found: list[int] = []
        original = reader._next
        calls = count()

        def breaking() -> object:
            if next(calls) % 3 == 1:
                other.leader(topic, 0).close()
            return original()

        reader._next = breaking  # type: ignore[method-assign, assignment]
        for columns in reader:
            found += columns.offsets
    assert found == list(range(300))
