"""Stages and epochs against a real broker: each epoch once, whoever commits it how often."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator

import pytest

import lockstep.testing
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lockstep.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from lockstep.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lockstep.protocol.records.batch import iter_headers
from lockstep.protocol.records.committed import CommittedReader
from lockstep.protocol.records.record import BatchBuilder, iter_records
from spark_connector.connection import (
    BlockingConnection,
    BrokerError,
    ClientError,
    ClusterClient,
    ConnectionFailed,
    Unsupported,
    list_offsets,
)
from spark_connector.options import LATEST, OptionError
from spark_connector.sink.batch_encoder import bodies
from spark_connector.sink.epochs import EpochRecord, Epochs, Fenced
from spark_connector.sink.stage import StageSummary, StageWriter, new_stage, require_staging
from spark_connector.sink.topics import commit_topic
from tests.spark_connector.conftest import NewTopic, produce

QUERIES = iter(range(1_000_000))


@pytest.fixture
def query() -> str:
    return f"query-{next(QUERIES)}"


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(2)


@pytest.fixture
def epochs(cluster: ClusterClient, query: str, topic: str) -> Iterator[Epochs]:
    yield Epochs(cluster, commit_topic(cluster, query, [topic], None), query)


def stage(cluster: ClusterClient, query: str, topic: str, *values: bytes, partition: int = 0) -> StageSummary:
    writer = StageWriter(cluster, query)
    for value in values:
        for body in bodies(None, [value], None, 1_000, 1 << 20):
            writer.put(topic, partition, body)
    return writer.finish()


def committed(cluster: ClusterClient, topic: str, partition: int = 0) -> list[bytes | None]:
    """What a reader of committed records sees."""
    part = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        isolation_level=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[part])]
    )
    answer = cluster.leader(topic, partition).call(request, FetchResponse, newest=12)
    (data,) = answer.responses[0].partitions
    assert data.error_code == 0
    records = bytes(data.records or b"")  # type: ignore[arg-type]
    reader = CommittedReader(data.aborted_transactions or [])
    return [
        each.value
        for at, header in iter_headers(records)
        if reader.is_visible(records, at, header)
        for each in iter_records(records, at)
    ]


def stable(cluster: ClusterClient, topic: str, partition: int = 0) -> int:
    """Up to where readers of committed records come."""
    place = topic, partition
    return list_offsets(cluster, {place: LATEST}, committed=True)[place]


def test_an_epoch_shows_all_of_it(cluster: ClusterClient, epochs: Epochs, query: str, topic: str) -> None:
    first = stage(cluster, query, topic, b"a", b"b")
    second = stage(cluster, query, topic, b"c", partition=1)
    assert committed(cluster, topic) == []
    assert epochs.commit("run", 0, [first, second]) is True
    assert committed(cluster, topic) == [b"a", b"b"]
    assert committed(cluster, topic, 1) == [b"c"]
    assert first.records == 2 and first.topic_partitions == ((topic, 0),)


def test_a_replayed_epoch_is_known_to_be_done(
    cluster: ClusterClient, epochs: Epochs, query: str, topic: str
) -> None:
    assert epochs.commit("run", 0, [stage(cluster, query, topic, b"a")])
    for run in ("run", "run after a restart"):
        again = stage(cluster, query, topic, b"a")
        assert epochs.commit(run, 0, [again]) is False
    assert epochs.commit("run after a restart", 1, [stage(cluster, query, topic, b"b")])
    assert committed(cluster, topic) == [b"a", b"b"]


def test_a_zombie_is_fenced(cluster: ClusterClient, epochs: Epochs, query: str, topic: str) -> None:
    assert epochs.commit("old", 0, [stage(cluster, query, topic, b"a")])
    assert epochs.commit("new", 1, [stage(cluster, query, topic, b"b")])
    assert epochs.commit("old", 1, [stage(cluster, query, topic, b"b")]) is False
    with pytest.raises(Fenced, match="run new has committed epoch 1, and run old comes with epoch 2"):
        epochs.commit("old", 2, [stage(cluster, query, topic, b"c")])
    assert epochs.commit("new", 2, [stage(cluster, query, topic, b"c")])
    assert committed(cluster, topic) == [b"a", b"b", b"c"]


def test_a_checkpoint_that_was_set_back_is_no_success(
    cluster: ClusterClient, epochs: Epochs, query: str, topic: str
) -> None:
    assert epochs.commit("run", 7, [stage(cluster, query, topic, b"a")])
    with pytest.raises(Fenced, match=r"run again comes with epoch 0; do two drivers .* or was it set back"):
        epochs.commit("again", 0, [stage(cluster, query, topic, b"lost?")])
    assert committed(cluster, topic) == [b"a"]


@pytest.mark.parametrize("values", [(), (b"b", b"c")])
def test_an_epoch_with_other_rows_is_no_repetition(
    cluster: ClusterClient, epochs: Epochs, query: str, topic: str, values: tuple[bytes, ...]
) -> None:
    assert epochs.commit("run", 7, [stage(cluster, query, topic, b"a")])
    lost = stage(cluster, query, topic, *values)
    text = rf"epoch 7 is committed with 1 rows, and comes again with {len(values)}; was the checkpoint set"
    with pytest.raises(Fenced, match=text):
        epochs.commit("set back by one", 7, [lost])
    accepting = Epochs(cluster, commit_topic(cluster, query, [topic], None), query, accepted=7)
    assert accepting.commit("it is whole", 7, [stage(cluster, query, topic, *values)]) is False
    with pytest.raises(Fenced, match="epoch 7"):
        Epochs(cluster, commit_topic(cluster, query, [topic], None), query, accepted=8).commit(
            "another", 7, [stage(cluster, query, topic, *values)]
        )
    assert epochs.commit("run", 8, [stage(cluster, query, topic, b"d")])
    assert committed(cluster, topic) == [b"a", b"d"], "and what it staged is aborted"


def test_locks_of_others_below_an_estimate_are_no_record_of_ours(
    cluster: ClusterClient, query: str, topic: str
) -> None:
    plain = f"plain-{query}"
    _create(cluster, plain, 1)
    produce(cluster, plain, _batch_of(b"v"))
    _alter(cluster, plain, "lockstep.locks", "true")  # everything that is there counts as raised
    assert Epochs(cluster, plain, query).commit("run", 0, [stage(cluster, query, topic, b"a")])
    assert Epochs(cluster, plain, query).commit("run", 0, [stage(cluster, query, topic, b"a")]) is False


def test_a_commit_topic_without_locks_is_refused(cluster: ClusterClient, query: str, topic: str) -> None:
    plain = f"plain-{query}"
    _create(cluster, plain, 1)
    with pytest.raises(BrokerError, match=r"lockstep\.locks=true, which plain-.* is not"):
        Epochs(cluster, plain, query).commit("run", 0, [stage(cluster, query, topic, b"a")])


def _batch_of(value: bytes) -> bytes:
    building = BatchBuilder()
    building.append(value, timestamp_ms=time.time_ns() // 1_000_000)
    return building.build()


def _alter(cluster: ClusterClient, topic: str, name: str, value: str) -> None:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = cluster.any().call(request, IncrementalAlterConfigsResponse).responses
    assert answer.error_code == 0, answer


def test_an_abort_undoes_no_commit(cluster: ClusterClient, epochs: Epochs, query: str, topic: str) -> None:
    summary = stage(cluster, query, topic, b"a")
    dropped = stage(cluster, query, topic, b"b", partition=1)
    epochs.abort([dropped])
    assert epochs.commit("run", 0, [summary])
    epochs.abort([summary, StageSummary(-1, (), 0)])
    assert committed(cluster, topic) == [b"a"] and committed(cluster, topic, 1) == []


def test_an_abort_ends_what_it_can(cluster: ClusterClient, epochs: Epochs, query: str, topic: str) -> None:
    foreign = stage(cluster, f"{query} of others", topic, b"a")
    mine = stage(cluster, query, topic, b"b", partition=1)
    with pytest.raises(BrokerError, match=f"abort of stage {foreign.producer_id}: ") as refused:
        epochs.abort([foreign, mine])
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert stable(cluster, topic, 1) == 2, "the batch, and the marker that ends it"
    mine = stage(cluster, query, topic, b"c", partition=1)
    with pytest.raises(BrokerError, match="topic a-gone: there is no such topic"):
        epochs.abandon([topic, "a-gone"])
    assert stable(cluster, topic, 1) == 4
    with pytest.raises(BrokerError, match="has ended"):
        epochs.commit("run", 0, [mine])


def test_an_abort_waits_for_no_more_than_one_silence(
    cluster: ClusterClient, epochs: Epochs, query: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = [stage(cluster, query, topic, b"v") for _ in range(3)]
    asked: list[str] = []

    def silent(name: str, partition: int) -> BlockingConnection:
        asked.append(name)
        if name == topic:
            raise ConnectionFailed("nobody answers")
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)

    cluster.timeout_s = 0.0
    monkeypatch.setattr(cluster, "leader", silent)
    with pytest.raises(ConnectionFailed, match="nobody answers"):
        epochs.abort([*summary, StageSummary(1, (("another", 0),), 1)])
    assert asked == [topic, "another"] * 2, "once more at the end of the time, whoever leads by then"


def test_a_stage_that_is_gone_refuses_the_epoch(
    cluster: ClusterClient, epochs: Epochs, query: str, topic: str
) -> None:
    gone, live = stage(cluster, query, topic, b"a"), stage(cluster, query, topic, b"b", partition=1)
    epochs.abort([gone])
    with pytest.raises(BrokerError, match="has ended") as refused:
        epochs.commit("run", 0, [gone, live])
    assert refused.value.code == ErrorCode.INVALID_TXN_STATE
    assert committed(cluster, topic, 1) == []


def test_an_empty_epoch_counts(cluster: ClusterClient, epochs: Epochs) -> None:
    assert epochs.commit("run", 0, []) is True
    assert epochs.commit("run", 0, []) is False


def test_queries_do_not_meet(cluster: ClusterClient, epochs: Epochs, query: str, topic: str) -> None:
    other = Epochs(cluster, commit_topic(cluster, query, [topic], None), f"{query} of others")
    assert epochs.commit("run", 5, [])
    assert other.commit("run", 0, [])
    assert epochs.commit("run", 6, []) and other.commit("run", 1, [])


def test_many_batches_of_a_stage_keep_their_order(
    cluster: ClusterClient, epochs: Epochs, query: str, topic: str
) -> None:
    values = [b"%d" % number for number in range(200)]
    assert epochs.commit("run", 0, [stage(cluster, query, topic, *values)])
    assert committed(cluster, topic) == values


def test_a_batch_whose_connection_broke_is_there_once(
    cluster: ClusterClient, epochs: Epochs, query: str, topic: str
) -> None:
    writer = StageWriter(cluster, query)
    values = [b"%d" % number for number in range(12)]
    for place, value in enumerate(values):
        (body,) = bodies(None, [value], None, 1_000, 1 << 20)
        writer.put(topic, 0, body)
        if place in (3, 7):
            cluster.leader(topic, 0).close()
    assert epochs.commit("run", 0, [writer.finish()])
    assert committed(cluster, topic) == values


def test_a_topic_that_is_not_there(cluster: ClusterClient, query: str) -> None:
    with pytest.raises(BrokerError, match="make it first"):
        commit_topic(cluster, query, ["nobody-made-this"], None)


def test_several_log_groups_are_refused(query: str) -> None:
    with (
        lockstep.testing.broker_in_thread(log_flush="os", lockstep_data_groups="2") as running,
        ClusterClient(running.bootstrap_servers, timeout_s=10) as cluster,
    ):
        for number in (1, 2):
            _create(cluster, f"t{number}", number)
        with pytest.raises(ClientError, match=r"in 2 \(t1 in 1; t2 in 2\); make the topics with the same"):
            commit_topic(cluster, query, ["t1", "t2"], None)
        assert commit_topic(cluster, query, ["t2"], None) == "lockstep-spark-commits-2"


def test_several_log_groups_are_refused_before_anything_is_sent_there(query: str) -> None:
    with (
        lockstep.testing.broker_in_thread(log_flush="os", lockstep_data_groups="2") as running,
        ClusterClient(running.bootstrap_servers, timeout_s=10) as cluster,
    ):
        _create(cluster, "both", None, partitions=2)
        for partition in range(2):
            with pytest.raises(ClientError, match=r"in 2 \(both in 1, 2\); make the topics with the same"):
                stage(cluster, query, "both", b"a", partition=partition)
        for number in (1, 2):
            _create(cluster, f"t{number}", number)
        writer = StageWriter(cluster, query)
        (body,) = bodies(None, [b"a"], None, 1_000, 1 << 20)
        writer.put("t1", 0, body)
        with pytest.raises(ClientError, match=r"in 2 \(t1 in 1; t2 in 2\)"):
            writer.put("t2", 0, body)
        assert writer.finish().topic_partitions == (("t1", 0),)
        Epochs(cluster, "", query).abort([writer.summary])
        assert stable(cluster, "t1") == 2, "the batch, and the marker that ends it"
        assert [stable(cluster, "t2"), stable(cluster, "both"), stable(cluster, "both", 1)] == [0, 0, 0]


def _create(
    cluster: ClusterClient,
    name: str,
    group: int | None,
    configs: dict[str, str] | None = None,
    partitions: int = 1,
) -> None:
    said = {each.replace("_", "."): value for each, value in (configs or {}).items()}
    if group is not None:
        said["lockstep.group"] = str(group)
    wanted = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=each, value=value) for each, value in said.items()],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
    (result,) = cluster.any().call(request, CreateTopicsResponse).topics
    assert result.error_code == 0, result


def test_a_commit_topic_that_was_chosen_is_made(cluster: ClusterClient, query: str, topic: str) -> None:
    name = f"commits-of-{query}"
    assert commit_topic(cluster, query, [topic], name) == name
    assert commit_topic(cluster, query, [topic], name) == name
    assert Epochs(cluster, name, query).commit("run", 0, [stage(cluster, query, topic, b"a")])


@pytest.mark.parametrize(
    ("configs", "wrong"),
    [
        ({}, r"lockstep\.locks=ignore, retention\.ms=604800000"),
        ({"lockstep_locks": "true"}, r"retention\.ms=604800000"),
        (
            {"lockstep_locks": "true", "retention_ms": "-1", "retention_bytes": "1000"},
            r"retention\.bytes=1000",
        ),
        ({"retention_ms": "-1"}, r"lockstep\.locks=ignore"),
        ({"cleanup_policy": ""}, r"lockstep\.locks=ignore"),
        ({"lockstep_locks": "true", "cleanup_policy": ""}, None),
        ({"lockstep_locks": "true", "retention_ms": "-1"}, None),
    ],
)
def test_a_commit_topic_that_was_chosen_forgets_nothing(
    cluster: ClusterClient, query: str, topic: str, configs: dict[str, str], wrong: str | None
) -> None:
    name = f"kept-{query}"
    _create(cluster, name, 1, configs)
    if wrong is None:
        assert commit_topic(cluster, query, [topic], name) == name
        return
    with pytest.raises(OptionError, match=f"^option commitTopic: {name} has {wrong}, and commits need a "):
        commit_topic(cluster, query, [topic], name)


def test_other_brokers_are_reported(cluster: ClusterClient, query: str) -> None:
    connection = cluster.any()
    known = dict(connection.features)
    connection.features.clear()
    with pytest.raises(Unsupported, match=r"lockstep\.staged"):
        require_staging(connection)
    connection.features.update(known)
    assert new_stage(cluster, query).producer_id > 1 << 61


def test_a_record_is_read_back() -> None:
    record = EpochRecord("q", "r", 3, 10, ("a", "b"))
    assert EpochRecord.of(record.value()) == record
    for other in (None, b"", b"{", b"[]", b"{}", dataclasses.replace(record).value()[:-2]):
        assert EpochRecord.of(other) is None
