"""The records of `__consumer_offsets`: keys and values as Kafka's group coordinator writes them.

A key begins with its kind (two bytes: 0 and 1 offset commits, 2 group metadata), a value with its version;
`key_bytes` and `value_bytes` put them there. Kafka's definitions number the kinds as API keys.

Source: the definitions in Kafka's group-coordinator.
"""

from __future__ import annotations

from typing import Final

from lockstep.protocol.compiler import encode_bytes
from lockstep.protocol.fields import Struct, array, byte_string, int32, int64, message, string, struct, uuid

LEGACY_OFFSET_COMMIT: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2


@message(api_key=OFFSET_COMMIT, versions="0", flexible="none", kind="coordinator-key")
class OffsetCommitKey(Struct):
    """The group and the partition of an offset. Kind 0, which Kafka no longer writes, has the same fields."""

    group: str = string(versions="0")
    topic: str = string(versions="0")
    partition: int = int32(versions="0")


@message(api_key=OFFSET_COMMIT, versions="0-4", flexible="4+", kind="coordinator-value")
class OffsetCommitValue(Struct):
    """A committed offset. Version 1 has its expiry time, 3 adds the leader epoch, 4 (flexible) the topic's
    id."""

    offset: int = int64()
    leader_epoch: int = int32(default=-1, versions="3+", ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(default=-1, versions="1", ignorable=True)
    topic_id: bytes = uuid(versions="4+", tagged="4+", tag=0, ignorable=True)


@message(api_key=GROUP_METADATA, versions="0", flexible="none", kind="coordinator-key")
class GroupMetadataKey(Struct):
    """The group."""

    group: str = string(versions="0")


@struct()
class MemberMetadata(Struct):
    """One member of a generation."""

    member_id: str = string()
    group_instance_id: str | None = string(default=None, versions="3+", nullable="3+", ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(default=-1, versions="1+", ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


@message(api_key=GROUP_METADATA, versions="0-4", flexible="4+", kind="coordinator-value")
class GroupMetadataValue(Struct):
    """A group's generation. Version 1 adds rebalance timeouts, 2 the time, 3 static members, 4 is
    flexible."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64(default=-1, versions="2+", ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


def key_bytes(key: Struct) -> bytes:
    """A key as it is in a record."""
    kind = key.SCHEMA.api_key
    assert kind is not None
    return kind.to_bytes(2, "big") + encode_bytes(key, 0)


def value_bytes(value: Struct, version: int) -> bytes:
    """A value as it is in a record."""
    return version.to_bytes(2, "big") + encode_bytes(value, version)
