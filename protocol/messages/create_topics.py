"""CreateTopics (19).

Versions: 2 throttle time; 3 throttling is the client's duty (KIP-219); 4 -1 means the broker's default
number of partitions and replicas (KIP-464); 5 flexible, the response lists partitions, replicas and
configuration (KIP-525); 6 THROTTLING_QUOTA_EXCEEDED (KIP-599); 7 the new topic's id (KIP-516).

`configs` of a result may be null on the wire, but Java clients read it without looking: return a list.
"""

from __future__ import annotations

from lockstep.protocol.fields import Struct, array, boolean, int8, int16, int32, message, string, struct, uuid


@struct()
class CreatableReplicaAssignment(Struct):
    """The brokers of one partition, chosen by hand."""

    partition_index: int = int32()
    broker_ids: list[int] = array(int32)


@struct()
class CreatableTopicConfig(Struct):
    """One configuration of a new topic."""

    name: str = string()
    value: str | None = string(nullable="0+")


@struct()
class CreatableTopic(Struct):
    """One topic to create."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@message(api_key=19, versions="2-7", flexible="5+", kind="request")
class CreateTopicsRequest(Struct):
    """Topics to create, or only to check."""

    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean(versions="1+")


@struct()
class CreatableTopicConfigs(Struct):
    """One configuration of a topic just created."""

    name: str = string(versions="5+")
    value: str | None = string(versions="5+", nullable="5+")
    read_only: bool = boolean(versions="5+")
    config_source: int = int8(default=-1, versions="5+", ignorable=True)
    is_sensitive: bool = boolean(versions="5+")


@struct()
class CreatableTopicResult(Struct):
    """The result for one topic."""

    name: str = string()
    topic_id: bytes = uuid(versions="7+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(versions="1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = int16(versions="5+", tagged="5+", tag=0, ignorable=True)
    num_partitions: int = int32(default=-1, versions="5+", ignorable=True)
    replication_factor: int = int16(default=-1, versions="5+", ignorable=True)
    configs: list[CreatableTopicConfigs] | None = array(
        CreatableTopicConfigs, versions="5+", nullable="5+", ignorable=True
    )


@message(api_key=19, versions="2-7", flexible="5+", kind="response")
class CreateTopicsResponse(Struct):
    """A result for each requested topic."""

    throttle_time_ms: int = int32(versions="2+", ignorable=True)
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
