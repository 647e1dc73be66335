"""What a pipeline that writes must remember across its own death: which topic it fills, under which
producer id.

Owns: one small file for each topic in the pipeline's checkpoint directory, made once and never changed; the
making of a topic that is not there. Invariants: the file is there, whole and flushed, before the first record
is sent; of two drivers that make it at once one wins, and both go by what it wrote. A topic that holds
records of somebody else, or was deleted and made anew, is refused.

Does not: say how far a pipeline has come. That is the topic's own end: see `appending`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from spark_connector.connection import BrokerError, Cluster
from spark_connector.pipelines.asking import config_of, ends_of
from spark_connector.pipelines.failures import PipelineFailed

KEEPS_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Of topics made here: events have times of their own, which may be long ago."""
_STAMPED: Final = "message.timestamp.type"
_NOT_YET: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


_NAME_ANOTHER: Final = "name another topic (events: --prefix, replay: --into)"


@dataclass(frozen=True)
class Claim:
    """A topic that one pipeline fills from its first offset on; safe to send to executors."""

    topic: str
    topic_id: str
    """Its 16 bytes in hexadecimal digits."""
    producer_id: int
    partitions: int
    contents: str
    """What it is filled with, in words: rows of something else must not follow."""


def claim(
    cluster: Cluster,
    directory: Path,
    topic: str,
    contents: str,
    *,
    partitions: int,
    configs: Mapping[str, str],
    replication: int = -1,
    reworded: Callable[[str], str] = str,
) -> Claim:
    """The claim on `topic` that `directory` has; else the topic, made where it is missing, is claimed.

    `reworded` turns contents that an older run has written into the words of `contents`.
    Raises PipelineFailed where the topic is not empty, or another than it was, or has fewer than `partitions`
    partitions, or gives records its own times; BrokerError, ClientError.
    """
    path = directory / f"{topic}.claim.json"
    found = _read(path)
    is_new = found is None
    _create(cluster, topic, partitions, {**KEEPS_ALL, **configs}, replication, must_be_there=not is_new)
    known = cluster.retried(lambda: cluster.topics([topic])[0], also=_NOT_YET)
    topic_id = known.topic_id.hex()
    if len(known.partitions) < partitions:
        raise PipelineFailed(
            f"topic {topic} has {len(known.partitions)} partitions, {partitions} are needed: {_NAME_ANOTHER}"
        )
    if found is None:
        _check_empty(cluster, topic, path)
        if config_of(cluster, topic, _STAMPED) == "LogAppendTime":
            raise PipelineFailed(
                f"topic {topic} has {_STAMPED}=LogAppendTime and would lose the records' own times: "
                "set CreateTime"
            )
        found = _made(path, Claim(topic, topic_id, _producer_id(cluster), len(known.partitions), contents))
    found = replace(found, contents=reworded(found.contents))
    if found.contents != contents:
        raise PipelineFailed(
            f"{path}: topic {topic} is being filled with {found.contents}, not with {contents}: "
            f"{_NAME_ANOTHER} and another --checkpoint"
        )
    if found.topic_id != topic_id:
        raise PipelineFailed(
            f"topic {topic} was deleted and made anew since {path} was written: "
            "remove that file to begin again"
        )
    return found


def _check_empty(cluster: Cluster, topic: str, path: Path) -> None:
    for partition, end in ends_of(cluster, topic).items():
        if end:
            raise PipelineFailed(
                f"topic {topic}, partition {partition} has {end} records, and {path} is not there: "
                "name an empty topic, or the --checkpoint of the run that wrote them"
            )


def _read(path: Path) -> Claim | None:
    try:
        return Claim(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise PipelineFailed(f"{path} cannot be read: {error}") from None


def _made(path: Path, wanted: Claim) -> Claim:
    """`wanted`, or what somebody else has claimed in the meantime."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    with open(descriptor, "w") as file:
        json.dump(asdict(wanted), file)
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


def _producer_id(cluster: Cluster) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

    def ask() -> int:
        answer = cluster.any().call(request, InitProducerIdResponse)
        if answer.error_code:
            raise BrokerError(answer.error_code, "a producer id")
        return int(answer.producer_id)

    return cluster.retried(ask)


def _create(
    cluster: Cluster,
    topic: str,
    partitions: int,
    configs: Mapping[str, str],
    replication: int,
    *,
    must_be_there: bool,
) -> None:
    """Make the topic unless it is there."""
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
    wanted = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )

    def ask() -> None:
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(cluster.timeout_s * 1000))
        answer = cluster.any().call(request, CreateTopicsResponse)  # it finds the controller
        for each in answer.topics:
            if each.error_code not in (0, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise BrokerError(each.error_code, f"topic {topic}", each.error_message)

    cluster.retried(ask, also=(ErrorCode.NOT_CONTROLLER,))
