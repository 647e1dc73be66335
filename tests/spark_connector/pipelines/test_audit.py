"""What an audit refuses before it asks Spark anything: to say "no difference" where nothing is compared."""

from __future__ import annotations

import argparse
import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spark_connector.connection import ClusterClient
from spark_connector.pipelines import __main__ as command
from spark_connector.pipelines import audit, routes
from spark_connector.pipelines.audit import AuditSettings
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.progress import ProgressReporter
from tests.spark_connector.conftest import NewTopic

FILE = 'player = "p"\ntopic = "{topic}"\n{more}\n[route]\nby = "all"\n[targets.a]\naddress = "h:1"\n'


def route_config(directory: Path, topic: str, more: str = "") -> Path:
    path = directory / "player.toml"
    path.write_text(FILE.format(topic=topic, more=more))
    return path


class Compared(Exception):
    """It came as far as the log."""


def audited(
    monkeypatch: pytest.MonkeyPatch, cluster: ClusterClient, path: Path, bootstrap: str, marks: dict[str, int]
) -> None:
    """An audit of one store with such marks, up to where Spark is needed."""
    empty = SimpleNamespace(num_rows=0)
    found = SimpleNamespace(marks=marks, applied=empty, values=empty)
    monkeypatch.setattr("spark_connector.pipelines.shard_stores.read_snapshot", lambda *_: found)

    def compared(*_: object) -> None:
        raise Compared

    monkeypatch.setattr(audit, "_expected_records", compared)
    settings = AuditSettings(bootstrap, routes.read(path), {"a": "sqlite:///x"})
    audit.run(cast(Any, None), settings, ProgressReporter("audit", quiet=True))


def test_marks_of_other_logs_are_refused(
    monkeypatch: pytest.MonkeyPatch, cluster: ClusterClient, new_topic: NewTopic, running: Any, tmp_path: Path
) -> None:
    topic = new_topic()
    where = running.bootstrap_servers
    topic_id = base64.urlsafe_b64encode(cluster.topic(topic).topic_id)[:22].decode()
    ours, other = f"{cluster.cluster_id}/{topic_id}/0", f"{cluster.cluster_id}/{'A' * 22}/0"
    path = route_config(tmp_path, topic)
    with pytest.raises(PipelineFailed) as refused:
        audited(monkeypatch, cluster, path, where, {other: 5})
    text = str(refused.value)
    assert text.startswith(f"--store a: none of its marks is of topic {topic}, whose id is {topic_id}")
    assert other in text
    for marks in ({}, {ours: 5}, {other: 5, ours: 5}):
        with pytest.raises(Compared):
            audited(monkeypatch, cluster, path, where, marks)
    path = route_config(tmp_path, topic, "partitions = [1]")
    with pytest.raises(PipelineFailed, match="none of its marks"):
        audited(monkeypatch, cluster, path, where, {ours: 5})


def test_another_order_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailed, match="order: marks in the order of a log group have no offsets"):
        routes.read(route_config(tmp_path, "t", 'order = "log group"'))
    assert routes.read(route_config(tmp_path, "t", 'order = "partition"')).topic == "t"


@pytest.mark.parametrize(
    ("words", "more", "environment", "wanted"),
    [
        ([], "", None, "localhost:9092"),
        ([], "", "env:1", "env:1"),
        ([], 'bootstrap = "file:2"', "env:1", "file:2"),
        (["-b", "said:3"], 'bootstrap = "file:2"', "env:1", "said:3"),
    ],
)
def test_which_brokers_get_the_requests(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    more: str,
    environment: str | None,
    wanted: str,
) -> None:
    if environment is None:
        monkeypatch.delenv("LOCKSTEP_BOOTSTRAP", raising=False)
    else:
        monkeypatch.setenv("LOCKSTEP_BOOTSTRAP", environment)
    line = ["audit", "--player", str(route_config(tmp_path, "t", more)), "--store", "a=sqlite:///x", *words]
    options: argparse.Namespace = command.parser().parse_args(line)
    assert audit.from_arguments(options).bootstrap == wanted
    other = command.parser().parse_args(["state", "--topic", "t"])
    assert other.bootstrap == (environment or "localhost:9092")
