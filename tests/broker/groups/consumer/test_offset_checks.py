"""Which epochs may commit and fetch offsets (row A8 of what was observed on Apache Kafka)."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import (
    ConsumerGroupMember,
    CurrentAssignment,
    MemberState,
    current_record,
    member_record,
)
from lockstep.broker.groups.consumer.offset_checks import commit_error, fetch_error
from lockstep.protocol.errors import ErrorCode

E = ErrorCode
T = b"t" * 16
KEPT, NEW, LEAVING, GIVEN_UP = (T, 0), (T, 1), (T, 2), (T, 3)


@pytest.fixture
def group() -> ConsumerGroup:
    """Member m, at epoch 5: one partition since epoch 3, one since 5, one that it has to give up."""
    found = ConsumerGroup("g")
    current = CurrentAssignment(5, 4, MemberState.UNREVOKED_PARTITIONS, {T: {0: 3, 1: 5}}, {T: {2: 3}})
    for kind, (key, value) in (
        (5, member_record("g", ConsumerGroupMember("m"))),
        (8, current_record("g", "m", current)),
    ):
        found.apply(kind, key, "m", value)
    return found


@pytest.mark.parametrize(
    ("epoch", "partitions", "error"),
    [
        (5, [KEPT, NEW, GIVEN_UP], E.NONE),
        (4, [KEPT, LEAVING], E.NONE),
        (3, [KEPT], E.NONE),
        (2, [KEPT], E.STALE_MEMBER_EPOCH),
        (4, [NEW], E.STALE_MEMBER_EPOCH),
        (4, [GIVEN_UP], E.STALE_MEMBER_EPOCH),
        (4, [KEPT, NEW], E.STALE_MEMBER_EPOCH),
        (6, [KEPT], E.STALE_MEMBER_EPOCH),
        (-1, [KEPT], E.STALE_MEMBER_EPOCH),
    ],
)
def test_row_a8_a_commit_by_the_epochs_of_its_partitions(
    group: ConsumerGroup, epoch: int, partitions: list[Any], error: ErrorCode
) -> None:
    assert commit_error(group, "m", None, epoch, partitions, 9, transactional=False) is error
    within = E.ILLEGAL_GENERATION if error is E.STALE_MEMBER_EPOCH else error
    assert commit_error(group, "m", None, epoch, partitions, 5, transactional=True) is within


def test_row_a8_who_may_commit(group: ConsumerGroup) -> None:
    assert commit_error(group, "", None, -1, [KEPT], 9, transactional=False) is E.UNKNOWN_MEMBER_ID
    assert commit_error(group, "", None, -1, [KEPT], 5, transactional=True) is E.NONE
    assert commit_error(group, "x", None, 5, [KEPT], 9, transactional=False) is E.UNKNOWN_MEMBER_ID
    assert commit_error(group, "m", None, 5, [KEPT], 8, transactional=False) is E.UNSUPPORTED_VERSION
    empty = ConsumerGroup("g")
    assert commit_error(empty, "", None, -1, [KEPT], 9, transactional=False) is E.NONE
    assert commit_error(empty, "m", None, 5, [KEPT], 9, transactional=False) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        (None, -1, E.NONE),
        (None, 2, E.UNKNOWN_SERVER_ERROR),
        ("m", 5, E.NONE),
        ("m", 4, E.STALE_MEMBER_EPOCH),
        ("m", 6, E.STALE_MEMBER_EPOCH),
        ("x", 5, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_row_a8_and_14_a_fetch_is_strict(
    group: ConsumerGroup, member_id: str | None, epoch: int, error: ErrorCode
) -> None:
    assert fetch_error(group, member_id, epoch) is error
    assert fetch_error(None, member_id, epoch) is E.NONE
