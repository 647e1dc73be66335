"""The claim of a pipeline that writes: the topic that it fills and its producer id, kept across crashes.

Owns: one small file for each topic in the pipeline's checkpoint directory, made once and never changed; the
creation of a missing topic. Invariants: the file is complete and flushed before the first record is
sent; of two drivers that make it at once one wins, and both use its file. A topic with records of another
writer, or one that was deleted and re-created, is rejected.

Does not: know the progress of a pipeline. That is the topic's own end: see `partition_appender`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from spark_connector.connection import BrokerError, ClusterClient
from spark_connector.pipelines.failures import PipelineFailed
from spark_connector.pipelines.topic_queries import NEW_TOPIC_ERRORS, config_of, high_watermarks

UNLIMITED_RETENTION: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""The configuration of topics made here: events have their own times, which may be long ago."""
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
_NAME_ANOTHER: Final = "name another topic (events: --prefix, replay: --into)"


@dataclass(frozen=True)
class TopicClaim:
    """A topic that one pipeline fills from its first offset on; safe to send to executors."""

    topic: str
    topic_id: str
    """Its 16 bytes in hexadecimal digits."""
    producer_id: int
    partitions: int
    contents: str
    """The description of its rows: rows of another description must not follow."""


def claim_topic(
    cluster: ClusterClient,
    directory: Path,
    topic: str,
    contents: str,
    *,
    partitions: int,
    configs: Mapping[str, str],
    replication: int = -1,
    canonical_contents: Callable[[str], str] = str,
) -> TopicClaim:
    """Reads the claim on `topic` from `directory`; else claims the topic, which is created where it is
    missing.

    `canonical_contents` converts contents that an older run has written to the form of `contents`.
    Raises PipelineFailed where the topic is not empty, or another than it was, or has fewer than `partitions`
    partitions, or stamps records with its own times; BrokerError, ClientError.
    """
    path = directory / f"{topic}.claim.json"
    found = _read(path)
    is_new = found is None
    _create(
        cluster, topic, partitions, {**UNLIMITED_RETENTION, **configs}, replication, must_be_there=not is_new
    )
    metadata = cluster.retry(lambda: cluster.topics([topic])[0], retriable=NEW_TOPIC_ERRORS)
    topic_id = metadata.topic_id.hex()
    if len(metadata.partitions) < partitions:
        raise PipelineFailed(
            f"topic {topic} has {len(metadata.partitions)} partitions, "
            f"{partitions} are needed: {_NAME_ANOTHER}"
        )
    if found is None:
        _check_empty(cluster, topic, path)
        if config_of(cluster, topic, _TIMESTAMP_TYPE) == "LogAppendTime":
            raise PipelineFailed(
                f"topic {topic} has {_TIMESTAMP_TYPE}=LogAppendTime and would lose the records' own times: "
                "set CreateTime"
            )
        found = _write_new(
            path, TopicClaim(topic, topic_id, _producer_id(cluster), len(metadata.partitions), contents)
        )
    found = replace(found, contents=canonical_contents(found.contents))
    if found.contents != contents:
        raise PipelineFailed(
            f"{path}: topic {topic} is being filled with {found.contents}, not with {contents}: "
            f"{_NAME_ANOTHER} and another --checkpoint"
        )
    if found.topic_id != topic_id:
        raise PipelineFailed(
            f"topic {topic} was deleted and re-created since {path} was written: "
            "remove that file to begin again"
        )
    return found


def _check_empty(cluster: ClusterClient, topic: str, path: Path) -> None:
    for partition, end in high_watermarks(cluster, topic).items():
        if end:
            raise PipelineFailed(
                f"topic {topic}, partition {partition} has {end} records, and {path} is not there: "
                "name an empty topic, or the --checkpoint of the run that wrote them"
            )


def _read(path: Path) -> TopicClaim | None:
    try:
        return TopicClaim(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise PipelineFailed(f"{path} cannot be read: {error}") from None


def _write_new(path: Path, new_claim: TopicClaim) -> TopicClaim:
    """Writes `new_claim`; returns it, or the claim that another process has written in the meantime."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(descriptor, "w") as file:
        json.dump(asdict(new_claim), file)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(temporary)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    found = _read(path)
    assert found is not None
    return found


def _producer_id(cluster: ClusterClient) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    def attempt() -> int:
        response = cluster.any().call(request, InitProducerIdResponse)
        if response.error_code:
            raise BrokerError(response.error_code, "a producer id")
        return int(response.producer_id)

    return cluster.retry(attempt)


def _create(
    cluster: ClusterClient,
    topic: str,
    partitions: int,
    configs: Mapping[str, str],
    replication: int,
    *,
    must_be_there: bool,
) -> None:
    """Creates the topic unless it exists."""
    try:
        cluster.topics([topic])
        return
    except BrokerError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    if must_be_there:
        raise PipelineFailed(
            f"topic {topic} is gone, which this checkpoint has claimed: name a new --checkpoint"
        )
    new_topic = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )

    def attempt() -> None:
        request = CreateTopicsRequest(topics=[new_topic], timeout_ms=int(cluster.timeout_s * 1000))
        response = cluster.any().call(request, CreateTopicsResponse)  # it finds the controller
        for each in response.topics:
            if each.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(each.error_code, f"topic {topic}", each.error_message)

    cluster.retry(attempt, retriable=(ErrorCode.NOT_CONTROLLER,))
