"""A claim is made once, and says no to whatever a resumed writer must not go on with."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from uuid import uuid4

import pytest

import lockstep.testing
from lockstep.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from spark_connector.connection import ClusterClient
from spark_connector.pipelines import claims
from spark_connector.pipelines.claims import TopicClaim, claim_topic
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.partition_appender import PartitionAppender
from spark_connector.pipelines.topic_queries import config_of
from tests.spark_connector.conftest import NewTopic
from tests.spark_connector.rows import row


@pytest.fixture
def name() -> str:
    return f"claimed-{uuid4().hex[:12]}"


def made(
    cluster: ClusterClient, directory: Path, name: str, contents: str = "rows", partitions: int = 2
) -> TopicClaim:
    return claim_topic(cluster, directory, name, contents, partitions=partitions, configs={})


def test_it_makes_the_topic_and_is_the_same_the_next_time(
    cluster: ClusterClient, tmp_path: Path, name: str
) -> None:
    first = made(cluster, tmp_path / "new", name)
    assert len(cluster.topic(name).partitions) == 2
    assert config_of(cluster, name, "retention.ms") == "-1"
    assert made(cluster, tmp_path / "new", name) == first
    assert [each.name for each in (tmp_path / "new").iterdir()] == [f"{name}.claim.json"]


def test_of_several_at_once_one_wins(
    running: lockstep.testing.RunningBroker, tmp_path: Path, name: str
) -> None:
    found: list[TopicClaim] = []

    def ask() -> None:
        with ClusterClient(running.bootstrap_servers) as mine:
            found.append(made(mine, tmp_path, name))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 4 and len(set(found)) == 1


def test_a_claim_that_came_first_is_taken(
    cluster: ClusterClient, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(cluster, tmp_path, name)
    known = claims._read
    answers = iter([None])  # it is not there yet when it is looked for
    monkeypatch.setattr(claims, "_read", lambda path: next(answers, known(path)))
    assert made(cluster, tmp_path, name) == first


def test_a_topic_with_records_is_refused(
    cluster: ClusterClient, tmp_path: Path, new_topic: NewTopic, name: str
) -> None:
    claimed = made(cluster, tmp_path, name)
    appender = PartitionAppender(cluster, claimed, 1)
    appender.add(row(0))
    appender.finish()
    assert made(cluster, tmp_path, name) == claimed
    with pytest.raises(PipelineFailed, match=r"partition 1 has 1 records.*--checkpoint"):
        made(cluster, tmp_path / "other", name)


def test_other_contents_are_refused(cluster: ClusterClient, tmp_path: Path, name: str) -> None:
    made(cluster, tmp_path, name)
    with pytest.raises(PipelineFailed, match="filled with rows, not with columns"):
        made(cluster, tmp_path, name, "columns")


def test_too_few_partitions_are_refused(cluster: ClusterClient, tmp_path: Path, new_topic: NewTopic) -> None:
    with pytest.raises(PipelineFailed, match="has 1 partitions, 3 are needed"):
        made(cluster, tmp_path, new_topic(1), partitions=3)


def test_a_topic_that_stamps_its_own_times_is_refused(
    cluster: ClusterClient, tmp_path: Path, name: str
) -> None:
    with pytest.raises(PipelineFailed, match=r"message\.timestamp.type=LogAppendTime"):
        claim_topic(
            cluster,
            tmp_path,
            name,
            "rows",
            partitions=1,
            configs={"message.timestamp.type": "LogAppendTime"},
        )


def test_a_topic_that_is_gone_or_re_created_is_refused(
    cluster: ClusterClient, tmp_path: Path, name: str
) -> None:
    made(cluster, tmp_path, name)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    (result,) = cluster.any().call(request, DeleteTopicsResponse).responses
    assert result.error_code == 0
    cluster.refresh()
    with pytest.raises(PipelineFailed, match="is gone"):
        made(cluster, tmp_path, name)
    made(cluster, tmp_path / "other", name)
    with pytest.raises(PipelineFailed, match="deleted and re-created"):
        made(cluster, tmp_path, name)


@pytest.mark.parametrize("text", ["", "{", json.dumps({"topic": "x"})])
def test_an_invalid_file_is_reported(cluster: ClusterClient, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / f"{name}.claim.json").write_text(text)
    with pytest.raises(PipelineFailed, match="cannot be read"):
        made(cluster, tmp_path, name)
