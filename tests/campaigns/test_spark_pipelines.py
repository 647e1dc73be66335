"""The judge of the pipelines' campaign: it finds every kind of planted difference, and no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import lockstep.testing
from spark_connector.connection import ClusterClient
from spark_connector.pipelines.claims import claim_topic
from spark_connector.pipelines.event_data import Shape
from spark_connector.pipelines.events import EventSettings
from spark_connector.pipelines.events import run as make_events
from spark_connector.pipelines.partition_appender import PartitionAppender, Row
from spark_connector.pipelines.progress import ProgressReporter
from tests.campaigns.spark_pipelines import compared_topics, not_of_the_seed
from tests.spark_connector.rows import row

ROWS = [row(number) for number in range(100)]
Change = Callable[[list[Row]], None]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterClient]:
    with (
        lockstep.testing.broker_in_thread(log_flush="os") as broker,
        ClusterClient(broker.bootstrap_servers) as made,
    ):
        yield made


def filled(cluster: ClusterClient, directory: Path, rows: list[Row]) -> str:
    name = f"judged-{uuid4().hex[:12]}"
    appender = PartitionAppender(
        cluster, claim_topic(cluster, directory, name, "rows", partitions=2, configs={}), 1
    )
    for each in rows:
        appender.add(each)
    appender.finish()
    return name


def replace(at: int, place: int, content: object) -> Change:
    def change(rows: list[Row]) -> None:
        values: list[object] = list(rows[at])
        values[place] = content
        rows[at] = tuple(values)  # type: ignore[assignment]

    return change


def missing(rows: list[Row]) -> None:
    del rows[70]


def missing_at_the_end(rows: list[Row]) -> None:
    del rows[99]


def doubled(rows: list[Row]) -> None:
    rows.insert(70, rows[70])


def swapped(rows: list[Row]) -> None:
    rows[70], rows[71] = rows[71], rows[70]


def test_equal_topics_are_equal(cluster: ClusterClient, tmp_path: Path) -> None:
    pair = filled(cluster, tmp_path, ROWS), filled(cluster, tmp_path, ROWS)
    assert compared_topics(cluster, [pair]) == (100, [])


@pytest.mark.parametrize(
    ("change", "differences"),
    [
        (replace(70, 0, b"other"), 1),
        (replace(73, 0, b""), 1),  # it is null
        (replace(70, 1, None), 1),
        (replace(70, 2, 5), 1),
        (replace(70, 3, [("n", None), ("n", b"70")]), 1),
        (missing, 30),
        (missing_at_the_end, 1),
        (doubled, 30),
        (swapped, 2),
    ],
)
def test_each_planted_difference_is_found(
    cluster: ClusterClient, tmp_path: Path, change: Change, differences: int
) -> None:
    changed = list(ROWS)
    change(changed)
    assert changed != ROWS
    pair = filled(cluster, tmp_path, ROWS), filled(cluster, tmp_path, changed)
    compared, found = compared_topics(cluster, [pair])
    assert (compared, len(found)) == (max(100, len(changed)), differences), found[:3]


def test_topics_are_judged_by_their_seed(cluster: ClusterClient, tmp_path: Path) -> None:
    shape = Shape(seed=9, events=2000)
    address = str(cluster.any())
    make_events(EventSettings(address, tmp_path, shape, partitions=2), ProgressReporter("events", quiet=True))
    assert not_of_the_seed(cluster, shape, 2) == []
    assert len(not_of_the_seed(cluster, Shape(seed=10, events=2000), 2)) == 6
    assert not_of_the_seed(cluster, Shape(seed=9, events=1999), 2) != []
