"""Staged appends on the wire: batches of many writers that one commit makes visible.

Owns: the private API `LockstepStaged` (listed in no ApiVersions; brokers that have it advertise the feature
`lockstep.staged`), and the names that brokers and clients share: the mark of a Produce request whose batches
are staged, and the query in a staged producer id.
Invariants: a staged producer id is above every id that Kafka's InitProducerId hands out; two queries share
the owner part of their ids with a chance of one in 2^29, which can delay one of them, never mix them up.
Does not: know the broker's side (docs/staged.md, `broker/staging/`).
"""

from __future__ import annotations

import hashlib
from typing import Final

from lockstep.protocol.fields import (
    Struct,
    array,
    boolean,
    byte_string,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
)
from lockstep.protocol.primitives import Buffer

STAGED_API_KEY: Final = 20001
STAGED_FEATURE: Final = "lockstep.staged"
STAGED_ID_PREFIX: Final = "lockstep-staged/"
"""The prefix of the transactional id in a Produce request of staged batches; the query's id follows."""
MAX_QUERY_CHARACTERS: Final = 200
"""Characters of a query's id."""
STAGED_PRODUCER_EPOCH: Final = 0
"""The producer epoch of staged batches; the marker that ends them has a higher one, so that no batch follows
it."""

_STAGED: Final = 1 << 62
_OWNER_SHIFT: Final = 33
_OWNERS: Final = 1 << 29
_NUMBERS: Final = 1 << _OWNER_SHIFT


def staged_transactional_id(query: str) -> str:
    """The transactional id of a Produce request of this query's staged batches."""
    return STAGED_ID_PREFIX + query


def staged_query(transactional_id: str) -> str | None:
    """The query that a Produce request's transactional id names; None where it is Kafka's own."""
    if transactional_id.startswith(STAGED_ID_PREFIX):
        return transactional_id[len(STAGED_ID_PREFIX) :]
    return None


def staged_producer_id(query: str, number: int) -> int:
    """An id for staged batches of this query. Args: number: one that no other producer of the cluster has."""
    return _STAGED | _owner(query) << _OWNER_SHIFT | number % _NUMBERS


def is_staged(producer_id: int) -> bool:
    """Returns whether batches of this producer are staged, by any query."""
    return producer_id >= _STAGED


def is_staged_by(producer_id: int, query: str) -> bool:
    """Returns whether batches of this producer are staged by this query."""
    return producer_id >> _OWNER_SHIFT == (_STAGED >> _OWNER_SHIFT | _owner(query))


def owner_of(producer_id: int) -> int:
    """The owner part, which the staged producer ids of one query share."""
    return producer_id >> _OWNER_SHIFT


def _owner(query: str) -> int:
    return int.from_bytes(hashlib.sha256(query.encode()).digest()[:4], "big") % _OWNERS


@struct()
class StagedTopic(Struct):
    """Partitions of a topic into which a stage wrote."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


@struct()
class Stage(Struct):
    """The partitions that one writer staged batches in."""

    producer_id: int = int64()
    topics: list[StagedTopic] = array(StagedTopic)


@struct()
class StagedRecord(Struct):
    """A batch that is appended with the end of the stages, if its locks allow it."""

    topic: str = string()
    partition_index: int = int32()
    records: Buffer = byte_string()


@struct()
class TopicLogGroups(Struct):
    """The log groups of a topic's partitions; none for an unknown topic."""

    name: str = string()
    group_ids: list[int] = array(int32)
    """Each log group once, in order."""


@message(api_key=20001, versions="0", flexible="0+", kind="request")
class LockstepStagedRequest(Struct):
    """A request for a staged producer id or, with stages, for the end of all of them at once."""

    query: str = string()
    topics: list[str] = array(string)
    """The topics whose log groups are requested, beside the id."""
    stages: list[Stage] = array(Stage)
    is_commit: bool = boolean()
    record: list[StagedRecord] = array(StagedRecord)
    """Exactly one with a commit, none otherwise."""
    abandoned: list[str] = array(string)
    """Topics in whose log groups everything that the query has open is to be aborted."""


@message(api_key=20001, versions="0", flexible="0+", kind="response")
class LockstepStagedResponse(Struct):
    """The result, or the error."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    producer_id: int = int64(default=-1)
    base_offset: int = int64(default=-1)
    """The offset of the record."""
    topics: list[TopicLogGroups] = array(TopicLogGroups)
