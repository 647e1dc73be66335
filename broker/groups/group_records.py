"""A group's records in `__consumer_offsets`, and their content as objects.

Owns: `CommittedOffset`, `GroupMetadata`, and the way to and from a record's key and value. Invariants: what
is written is byte for byte what Kafka 4.3.1 writes (offsets in version 4, or 1 where the client set how long
they are kept; metadata in version 3); whatever Kafka ever wrote is read.
Source: Kafka's GroupCoordinatorRecordHelpers and OffsetAndMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from lockstep.protocol.compiler import decode
from lockstep.protocol.coordinator_records import (
    GROUP_METADATA,
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    key_bytes,
    value_bytes,
)
from lockstep.protocol.coordinator_records import MemberMetadata as MemberRecord
from lockstep.protocol.primitives import ZERO_UUID, MalformedMessage
from lockstep.protocol.records.batch import BATCH_HEADER_BYTES, LENGTH_PREFIX_BYTES

Record = tuple[bytes, bytes | None]
"""Key and value; without a value what the key names is gone."""

NEVER: Final = -1
OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_WITH_EXPIRATION: Final = 1
GROUP_VALUE_VERSION: Final = 3
LATEST_VALUE_VERSION: Final = 4
MAX_CACHED_KEYS: Final = 10_000
"""Keys made and read lately; a group commits the same partitions again and again."""
MAX_CACHED_NAMES: Final = 10_000
MAX_CACHED_LENGTH: Final = 1_024
"""Bytes of such a key: 10,000 groups with ids of 32 KB are no reason to keep 600 MB."""
MAX_COMMIT_BYTES: Final = 16 << 20
"""Of one request's offsets in the log: 50,000 partitions with names of 200 characters. Kafka's bound is one
batch, a megabyte by default."""
FEW_OFFSETS: Final = 1_000
"""So many never come to as much."""
OFFSET_BYTES: Final = 50
"""An offset's record without group, topic and metadata."""
_PLAIN_OFFSET: Final = Struct(">hqicq3s16s")
_EMPTY: Final = b"\x01"
_ID_TAG: Final = b"\x01\x00\x10"
"""An offset as nearly every one is: version 4, no metadata, one tagged field. The message tables encode the
same in five times the time, once per commit and once more when it is replayed."""
_PLAIN_SIZE: Final = _PLAIN_OFFSET.size << 1
"""Its length as a record encodes it."""
_LEAST_VALUE_AT: Final = BATCH_HEADER_BYTES + 12
_MOST_VALUE_AT: Final = 1_200
"""Lengths take at most two bytes, and no long names are remembered."""
_ONE: Final = b"\0\0\0\1"
OFFSET_KINDS: Final = (OFFSET_COMMIT, LEGACY_OFFSET_COMMIT)


def is_too_long(metadata: str | None, longest: int) -> bool:
    """Returns whether an offset's metadata is longer than allowed. Kafka counts as Java does, in UTF-16."""
    if not metadata or len(metadata) * 2 <= longest:
        return False
    return (len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le")) // 2) > longest


def are_too_large(group_id: str, count: int, offsets: Iterable[tuple[str, str | None]]) -> bool:
    """Returns whether so many offsets, with topic and metadata of each, are more than one request may
    have."""
    return count > FEW_OFFSETS and commit_bytes(group_id, offsets) > MAX_COMMIT_BYTES


def commit_bytes(group_id: str, offsets: Iterable[tuple[str, str | None]]) -> int:
    """Estimates the bytes of these offsets (topic and metadata of each) in the log."""
    each_bytes = len(group_id) + OFFSET_BYTES
    return sum([each_bytes + len(name) + len(metadata or "") for name, metadata in offsets])


class UnknownGroupRecord(Exception):
    """A key or a value of a kind or version that is not known here: to be passed over."""


class CommittedOffset(NamedTuple):
    """A group's committed offset in one partition. A tuple: a checkpoint turns 100,000 of them into
    columns."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_time_ms: int = 0
    expire_time_ms: int = NEVER
    """Set by clients up to OffsetCommit 4; otherwise the broker's retention counts."""
    topic_id: bytes = ZERO_UUID
    """Distinguishes a topic from an earlier one of its name; zero where the record has none."""


@dataclass(slots=True, frozen=True)
class RecordedMember:
    """One member of a generation, as committed."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True, frozen=True)
class GroupMetadata:
    """One generation of a group, as committed."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_time_ms: int
    members: tuple[RecordedMember, ...]


# --- to records -------------------------------------------------------------------------------------------


def offset_record(group_id: str, topic: str, index: int, committed: CommittedOffset | None) -> Record:
    """A group's offset in a partition; None: there is none any more."""
    make = _cached_offset_key if len(group_id) <= MAX_CACHED_LENGTH else _make_offset_key
    key = make(group_id, topic, index)
    if committed is None:
        return key, None
    offset, leader_epoch, metadata, commit_time_ms, expire_time_ms, topic_id = committed
    if not metadata and expire_time_ms == NEVER and topic_id != ZERO_UUID:
        return key, _PLAIN_OFFSET.pack(
            OFFSET_VALUE_VERSION, offset, leader_epoch, _EMPTY, commit_time_ms, _ID_TAG, topic_id
        )
    value = OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_time_ms,
        expire_timestamp=expire_time_ms,
        topic_id=topic_id,
    )
    forever = expire_time_ms == NEVER
    return key, value_bytes(value, OFFSET_VALUE_VERSION if forever else OFFSET_VALUE_WITH_EXPIRATION)


def _make_offset_key(group_id: str, topic: str, index: int) -> bytes:
    return key_bytes(OffsetCommitKey(group=group_id, topic=topic, partition=index))


_cached_offset_key = lru_cache(MAX_CACHED_KEYS)(_make_offset_key)


def group_record(group_id: str, metadata: GroupMetadata | None) -> Record:
    """A group's generation; None: the group is gone."""
    key = key_bytes(GroupMetadataKey(group=group_id))
    if metadata is None:
        return key, None
    value = GroupMetadataValue(
        protocol_type=metadata.protocol_type,
        generation=metadata.generation,
        protocol=metadata.protocol,
        leader=metadata.leader,
        current_state_timestamp=metadata.state_time_ms,
        members=[
            MemberRecord(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in metadata.members
        ],
    )
    return key, value_bytes(value, GROUP_VALUE_VERSION)


# --- from records -----------------------------------------------------------------------------------------


def kind_of(key: bytes | None) -> int:
    """One of OFFSET_KINDS, GROUP_METADATA, or a kind not known here. Raises MalformedMessage."""
    if key is None or len(key) < 2:
        raise MalformedMessage("a record without a key")
    return int.from_bytes(key[:2], "big")


def offset_key(key: bytes) -> OffsetCommitKey:
    """Shared with other callers: not to be changed. Raises MalformedMessage."""
    return _cached_read(key) if len(key) <= MAX_CACHED_LENGTH else _read_offset_key(key)


def _read_offset_key(key: bytes) -> OffsetCommitKey:
    return decode(OffsetCommitKey, 0, key, 2)


_cached_read = lru_cache(MAX_CACHED_KEYS)(_read_offset_key)


def group_key(key: bytes) -> str:
    """The group's id. Raises MalformedMessage."""
    return decode(GroupMetadataKey, 0, key, 2).group


def committed_offset(value: bytes) -> CommittedOffset:
    """Raises MalformedMessage, UnknownGroupRecord."""
    if len(value) == _PLAIN_OFFSET.size:
        version, offset, leader_epoch, empty, commit_time_ms, tag, topic_id = _PLAIN_OFFSET.unpack(value)
        if (version, empty, tag) == (OFFSET_VALUE_VERSION, _EMPTY, _ID_TAG):
            return CommittedOffset(offset, leader_epoch, "", commit_time_ms, NEVER, topic_id)
    read = decode(OffsetCommitValue, _version(value), value, 2)
    return CommittedOffset(
        read.offset,
        read.leader_epoch,
        read.metadata,
        read.commit_timestamp,
        read.expire_timestamp,
        read.topic_id,
    )


def plain_commit(batch: bytes) -> tuple[str, str, int, CommittedOffset] | None:
    """Group, topic, partition and offset of a batch of one record that is a commit as nearly every one is.

    None for any other batch, and for one that is not sound. A restart reads hundreds of thousands of these;
    the longer way (`key_values`, `offset_key`, `committed_offset`) takes three times as long.
    """
    size = len(batch)
    value_at = size - _PLAIN_OFFSET.size - 1
    if not _LEAST_VALUE_AT <= value_at < _MOST_VALUE_AT or batch[value_at - 1] != _PLAIN_SIZE or batch[-1]:
        return None
    if batch[16:17] != b"\2" or batch[21:23] != b"\0\0" or batch[23] > 0x7F or batch[57:61] != _ONE:
        return None
    length, at = batch[BATCH_HEADER_BYTES], BATCH_HEADER_BYTES + 1
    if length > 0x7F:
        length, at = length & 0x7F | batch[at] << 7, at + 1
    if length != (size - at) << 1 or batch[at : at + 3] != b"\0\0\0":
        return None
    key_size, at = batch[at + 3], at + 4
    if key_size > 0x7F:
        key_size, at = key_size & 0x7F | batch[at] << 7, at + 1
    if (
        key_size != (value_at - 1 - at) << 1
        or int.from_bytes(batch[8:12], "big") != size - LENGTH_PREFIX_BYTES
    ):
        return None
    version, offset, leader_epoch, empty, commit_time_ms, tag, topic_id = _PLAIN_OFFSET.unpack_from(
        batch, value_at
    )
    names = _cached_names(batch[at : value_at - 5])
    if names is None or (version, empty, tag) != (OFFSET_VALUE_VERSION, _EMPTY, _ID_TAG):
        return None
    partition = int.from_bytes(batch[value_at - 5 : value_at - 1], "big", signed=True)
    committed = CommittedOffset(offset, leader_epoch, "", commit_time_ms, NEVER, topic_id)
    return *names, partition, committed


def _names(prefix: bytes) -> tuple[str, str] | None:
    """Group and topic of a key without its partition."""
    try:
        if kind_of(prefix) not in OFFSET_KINDS:
            return None
        read = _read_offset_key(prefix + bytes(4))
    except MalformedMessage:
        return None
    return read.group, read.topic


_cached_names = lru_cache(MAX_CACHED_NAMES)(_names)


def group_metadata(value: bytes) -> GroupMetadata:
    """Raises MalformedMessage, UnknownGroupRecord."""
    read = decode(GroupMetadataValue, _version(value), value, 2)
    members = tuple(
        RecordedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            # Version 0 knew one timeout for both. Source: Kafka's GroupMetadataManager.replay.
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            member.session_timeout,
            bytes(member.subscription),
            bytes(member.assignment),
        )
        for member in read.members
    )
    return GroupMetadata(
        read.protocol_type,
        read.generation,
        read.protocol,
        read.leader,
        read.current_state_timestamp,
        members,
    )


def _version(value: bytes) -> int:
    if len(value) < 2:
        raise MalformedMessage("a value without a version")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= LATEST_VALUE_VERSION:
        raise UnknownGroupRecord(f"a value of version {version}; known up to {LATEST_VALUE_VERSION}")
    return version


__all__ = [
    "GROUP_METADATA",
    "OFFSET_KINDS",
    "CommittedOffset",
    "GroupMetadata",
    "Record",
    "RecordedMember",
    "UnknownGroupRecord",
    "are_too_large",
    "commit_bytes",
    "committed_offset",
    "group_key",
    "group_metadata",
    "group_record",
    "is_too_long",
    "kind_of",
    "offset_key",
    "offset_record",
    "plain_commit",
]
