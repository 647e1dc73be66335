"""Names and partitions of topics that are not visible yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.broker.controller.topic_reservations import TopicReservations
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode


def reservations(existing: int = 3, limit: int = 5) -> TopicReservations:
    cluster: Any = SimpleNamespace(
        partition_count=existing, settings=SimpleNamespace(lockstep_max_partitions=limit)
    )
    return TopicReservations(cluster)


def test_a_name_in_use_and_one_that_collides_with_it_are_rejected() -> None:
    topics = reservations()
    topics.reserve_name("a.b")
    for name, code in (
        ("a.b", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("a_b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__share_group_state", ErrorCode.INVALID_REQUEST),
    ):
        with pytest.raises(RequestError) as rejected:
            topics.check_name(name)
        assert rejected.value.error == code, name
    topics.release_name("a_b")  # which never was in use
    with pytest.raises(RequestError):
        topics.check_name("a.b")
    topics.release_name("a.b")
    topics.check_name("a_b")


def test_a_new_controller_forgets_names_that_are_gone() -> None:
    topics = reservations()
    topics.reserve_name("old")
    topics.replace_names(["new"])
    topics.check_name("old")
    with pytest.raises(RequestError):
        topics.check_name("new")


def test_reserved_partitions_count_until_they_exist_or_never_will() -> None:
    topics = reservations(existing=3, limit=5)
    topics.check_partitions(2)
    topics.reserve_partitions(1)
    topics.check_partitions(1)
    with pytest.raises(RequestError, match=r"6 partitions .* lockstep.max.partitions is 5"):
        topics.check_partitions(2)
    topics.release_partitions(1)
    topics.check_partitions(2)
