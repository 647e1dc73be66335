"""One member's steps towards the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lockstep.broker.groups.consumer.consumer_group_records import CurrentAssignment, MemberState
from lockstep.broker.groups.consumer.current_assignment_builder import next_assignment
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

T, U = b"t" * 16, b"u" * 16
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def has(*partitions: int, epoch: int = 1) -> dict[bytes, dict[int, int]]:
    return {T: dict.fromkeys(partitions, epoch)} if partitions else {}


def step(
    current: CurrentAssignment,
    epoch: int,
    target: Mapping[bytes, tuple[int, ...]],
    owned: Mapping[bytes, list[int]] | None = None,
    taken: tuple[int, ...] = (),
    subscribed: tuple[bytes, ...] = (T,),
) -> CurrentAssignment:
    return next_assignment(
        current, epoch, target, subscribed.__contains__, owned, lambda topic_id, index: index in taken
    )


def test_a_new_member_gets_what_is_free_and_later_what_is_released() -> None:
    first = step(CurrentAssignment(), 2, {T: (0, 1)}, {}, taken=(1,))
    assert first == CurrentAssignment(2, 0, UNRELEASED, has(0, epoch=2))
    assert step(first, 2, {T: (0, 1)}, taken=(1,)) == CurrentAssignment(2, 2, UNRELEASED, has(0, epoch=2))
    second = step(first, 2, {T: (0, 1)})
    assert second == CurrentAssignment(2, 2, STABLE, has(0, 1, epoch=2))
    assert step(second, 2, {T: (0, 1)}) is second


def test_a_member_gives_up_before_its_epoch_rises() -> None:
    current = CurrentAssignment(1, 0, STABLE, has(0, 1))
    revoking = step(current, 2, {T: (0, 2)}, taken=(0, 1))
    assert revoking == CurrentAssignment(1, 1, UNREVOKED, has(0), has(1))
    assert step(revoking, 2, {T: (0, 2)}, {T: [0, 1]}) is revoking
    done = step(revoking, 2, {T: (0, 2)}, {T: [0]}, taken=(0, 1))
    assert done == CurrentAssignment(2, 1, STABLE, {T: {0: 1, 2: 2}})


def test_what_is_to_be_given_up_is_given_back_where_the_target_has_it_again() -> None:
    revoking = CurrentAssignment(1, 1, UNREVOKED, has(0), has(1))
    assert step(revoking, 3, {T: (0, 1)}, {T: [0]}, taken=(0, 1)) == CurrentAssignment(
        3, 1, STABLE, {T: {0: 1, 1: 3}}
    )


def test_a_target_that_changes_while_a_member_waits() -> None:
    waiting = CurrentAssignment(2, 1, UNRELEASED, has(0, epoch=1))
    assert step(waiting, 3, {T: (2,)}) == CurrentAssignment(2, 2, UNREVOKED, {}, has(0, epoch=1))
    assert step(waiting, 3, {T: (2,)}, {}) == CurrentAssignment(3, 2, STABLE, has(2, epoch=3))


def test_a_topic_that_is_not_subscribed_is_taken_away_before_a_new_epoch() -> None:
    current = CurrentAssignment(1, 0, STABLE, {**has(0), U: {0: 1}})
    assert step(current, 1, {T: (0,), U: (0,)}) == CurrentAssignment(1, 1, UNREVOKED, has(0), {U: {0: 1}})
    assert step(current, 1, {T: (0,), U: (0,)}, {T: [0]}) == CurrentAssignment(1, 1, STABLE, has(0))
    assert step(current, 2, {T: (0,), U: (0,)}, {T: [0]}) == CurrentAssignment(2, 1, STABLE, has(0))


@pytest.mark.parametrize("owned", [None, {T: [0]}])
def test_a_member_in_an_unknown_state_is_fenced_until_it_has_nothing(owned: Any) -> None:
    current = CurrentAssignment(4, 3, MemberState.UNKNOWN, has(0))
    with pytest.raises(RequestError, match="unknown state") as raised:
        step(current, 5, {T: (0,)}, owned)
    assert raised.value.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert step(current, 5, {T: (0,)}, {}) == CurrentAssignment(5, 4, STABLE, has(0))
