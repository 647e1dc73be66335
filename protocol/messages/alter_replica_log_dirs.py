"""AlterReplicaLogDirs (34): replicas are moved between the log directories of their broker (KIP-113).

Versions: 1 throttling is the client's duty (KIP-219); 2 flexible.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, int16, int32, message, string, struct


@struct()
class AlterReplicaLogDirTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[int] = array(int32)


@struct()
class AlterReplicaLogDir(Struct):
    """One directory."""

    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@message(api_key=34, versions="1-2", flexible="2+", kind="request")
class AlterReplicaLogDirsRequest(Struct):
    """Replicas by the directory that they are to move to."""

    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@struct()
class AlterReplicaLogDirPartitionResult(Struct):
    """The result for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


@struct()
class AlterReplicaLogDirTopicResult(Struct):
    """The partitions of one topic."""

    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@message(api_key=34, versions="1-2", flexible="2+", kind="response")
class AlterReplicaLogDirsResponse(Struct):
    """A result for each partition."""

    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
