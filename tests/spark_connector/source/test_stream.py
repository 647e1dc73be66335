"""A stream's reader, asked in the order in which Spark asks: where a stream begins is decided once.

pyspark is not installed where these run: stand-ins have its names. With Spark itself: compat_tests.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from lockstep.testing import RunningBroker
from spark_connector.connection import ClusterClient
from spark_connector.options import source_options
from spark_connector.source.range_reader import DataLost
from tests.spark_connector.conftest import NewTopic
from tests.spark_connector.source.test_range_reader import filled

Reader = Any
Readers = Callable[..., Reader]
OURS = ("spark_connector.source.batch", "spark_connector.source.stream")
LIMITS = "pyspark.sql.streaming.datasource"
AFTER_ALL = "9999999999999"


class _Partition:
    def __init__(self, value: object) -> None:
        self.value = value


class _Limit:
    def __init__(self, most: int = 0) -> None:
        self.max_rows = self.max_bytes = most


def _stand_ins() -> dict[str, ModuleType]:
    """What `source/stream.py` imports of pyspark 4.2."""
    names = ("pyspark", "pyspark.sql", "pyspark.sql.datasource", "pyspark.sql.streaming", LIMITS)
    found = {name: ModuleType(name) for name in names}
    classes = {
        "pyspark.sql.datasource": ("DataSourceReader", "DataSourceStreamReader"),
        LIMITS: ("ReadLimit", "SupportsTriggerAvailableNow"),
    }
    for name, those in classes.items():
        for each in those:
            setattr(found[name], each, type(each, (), {}))
    found["pyspark.sql.datasource"].InputPartition = _Partition  # type: ignore[attr-defined]
    for each in ("ReadAllAvailable", "ReadMaxBytes", "ReadMaxRows"):
        setattr(found[LIMITS], each, type(each, (_Limit,), {}))
    return found


@pytest.fixture
def stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`source/stream.py` as it is with pyspark 4.2, or (parameter False) with 4.0."""
    for name, module in _stand_ins().items():
        monkeypatch.setitem(sys.modules, name, module)
    if not getattr(request, "param", True):
        monkeypatch.setitem(sys.modules, LIMITS, None)
    for name in OURS:
        monkeypatch.setitem(sys.modules, name, None)  # what is imported now goes with the stand-ins
        del sys.modules[name]
    return importlib.import_module(OURS[-1])


@pytest.fixture
def readers(stream: ModuleType, running: RunningBroker) -> Iterator[Readers]:
    """Makes a reader, as Spark does for each run of a query."""
    made = []

    def make(topic: str, **options: str) -> Reader:
        given = {"kafka.bootstrap.servers": running.bootstrap_servers, "subscribe": topic, **options}
        made.append(stream.StreamReader(source_options(given)))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def kept(offset: dict[str, Any]) -> dict[str, Any]:
    """As Spark keeps it, and gives it back."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def newest(stream: ModuleType, reader: Reader, start: dict[str, Any]) -> dict[str, Any]:
    """What Spark 4.2 gets when it asks for the end of the next micro-batch."""
    limits: Any = sys.modules[LIMITS]
    return kept(reader.latestOffset(start, limits.ReadAllAvailable()))


def ranges(reader: Reader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [
        (each.value.partition, each.value.start, each.value.end) for each in reader.partitions(start, end)
    ]


def two_partitions(cluster: ClusterClient, new_topic: NewTopic) -> str:
    """A topic with 20 records in partition 0 and 10 in partition 1."""
    topic = new_topic(2)
    filled(cluster, topic, 2, partition=0)
    filled(cluster, topic, 1, partition=1)
    return topic


def begins(topic: str) -> dict[str, dict[str, str]]:
    """Ways to begin partition 1 with the newest offset."""
    return {
        "default": {},
        "named": {"startingOffsets": json.dumps({topic: {"0": 5, "1": -1}})},
        "time": {"startingTimestamp": AFTER_ALL, "startingOffsetsByTimestampStrategy": "latest"},
    }


@pytest.mark.parametrize("way", ["default", "named", "time"])
@pytest.mark.parametrize("available_now", [False, True])
def test_where_a_stream_begins_is_decided_once(
    stream: ModuleType,
    cluster: ClusterClient,
    new_topic: NewTopic,
    readers: Readers,
    way: str,
    available_now: bool,
) -> None:
    topic = two_partitions(cluster, new_topic)
    options = begins(topic)[way]
    one = readers(topic, **options)
    if available_now:
        one.prepareForTriggerAvailableNow()
    start = kept(one.initialOffset())
    filled(cluster, topic, 3, partition=1)
    end = newest(stream, one, start)
    filled(cluster, topic, 3, partition=1)
    again = kept(one.initialOffset())
    wanted = [(0, 5, 20)] if way == "named" else []
    wanted += [] if available_now else [(1, 10, 40)]
    assert again == start
    assert ranges(one, again, end) == wanted
    other = readers(topic, **options)  # after a restart, with the micro-batch not committed
    if available_now:
        other.prepareForTriggerAvailableNow()
    assert ranges(other, kept(other.initialOffset()), end) == wanted
    following = newest(stream, other, end)
    assert ranges(other, end, following) == [(1, 10 if available_now else 40, 70)]


def test_marks_make_no_micro_batch(
    stream: ModuleType, cluster: ClusterClient, new_topic: NewTopic, readers: Readers
) -> None:
    topic = new_topic()
    one = readers(topic)
    start = kept(one.initialOffset())
    filled(cluster, topic, 1)
    first = newest(stream, one, start)
    assert newest(stream, one, first) == first, "Spark compares them as texts"
    filled(cluster, topic, 1)
    second = newest(stream, one, first)
    assert second == {"group": start["group"], "topics": {topic: {"0": 20}}}


def test_a_stream_that_begins_with_nothing(
    stream: ModuleType, cluster: ClusterClient, new_topic: NewTopic, readers: Readers
) -> None:
    topic = new_topic()
    one = readers(topic)
    start = kept(one.initialOffset())
    empty = newest(stream, one, start)
    assert empty == start and ranges(one, start, empty) == []
    filled(cluster, topic, 2)
    other = readers(topic)
    assert ranges(other, kept(other.initialOffset()), empty) == [], "what came since is for the next one"
    end = newest(stream, other, empty)
    for each in (other, readers(topic)):
        assert ranges(each, empty, end) == [(0, 0, 20)]


def test_checkpoints_of_former_versions(
    stream: ModuleType, cluster: ClusterClient, new_topic: NewTopic, readers: Readers
) -> None:
    topic = new_topic()
    filled(cluster, topic, 3)
    one = readers(topic, startingOffsets="earliest")
    first, second = ({"group": "g", "topics": {topic: {"0": offset}}} for offset in (10, 20))
    assert ranges(one, kept(one.initialOffset()), first) == [(0, 0, 10)]
    assert ranges(one, first, second) == [(0, 10, 20)]
    assert newest(stream, one, second) == {"group": "g", "topics": {topic: {"0": 30}}}
    late = readers(topic)
    with pytest.raises(DataLost, match="read up to 30, it ends at 10 now"):
        ranges(late, kept(late.initialOffset()), first)


@pytest.mark.parametrize("stream", [False], indirect=True)
@pytest.mark.parametrize("way", ["default", "named", "time"])
def test_where_the_end_is_requested_first(
    cluster: ClusterClient, new_topic: NewTopic, readers: Readers, way: str
) -> None:
    topic = two_partitions(cluster, new_topic)
    options = begins(topic)[way]
    one = readers(topic, **options)
    end = kept(one.latestOffset())
    wanted = [(0, 5, 20)] if way == "named" else []
    for reader in (one, readers(topic, **options)):
        filled(cluster, topic, 1, partition=1)
        assert ranges(reader, kept(reader.initialOffset()), end) == wanted
    assert kept(one.latestOffset())["topics"] == {topic: {"0": 20, "1": 30}}
    assert ranges(one, end, kept(one.latestOffset())) == [(1, 10, 30)]


@pytest.mark.parametrize("stream", [False], indirect=True)
def test_a_partition_that_came_before_the_first_micro_batch_was_committed(
    cluster: ClusterClient, new_topic: NewTopic, readers: Readers
) -> None:
    topic = two_partitions(cluster, new_topic)
    one = readers(topic)
    end = kept(one.latestOffset())
    whole = kept(end)
    del end["topics"][topic]["1"]  # it was not there yet
    again = readers(topic)
    assert ranges(again, kept(again.initialOffset()), end) == []
    assert ranges(again, end, whole) == [(1, 0, 10)]


@pytest.mark.parametrize("stream", [True, False], indirect=True)
def test_an_offset_that_was_named_is_not_moved(
    stream: ModuleType, cluster: ClusterClient, new_topic: NewTopic, readers: Readers
) -> None:
    topic = new_topic()
    filled(cluster, topic, 1)
    one = readers(topic, startingOffsets=json.dumps({topic: {"0": 11}}))
    start = kept(one.initialOffset())
    with pytest.raises(DataLost, match="read up to 11, it ends at 10 now"):
        if stream.HAS_LIMITS:
            newest(stream, one, start)
        else:
            ranges(one, start, kept(one.latestOffset()))
