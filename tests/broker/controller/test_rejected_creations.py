"""Topics that may not be auto-created, because their creation was refused lately."""

from __future__ import annotations

import logging

import pytest

from lockstep.broker.controller.rejected_creations import (
    IGNORED_ERRORS,
    MAX_REJECTED_CREATIONS,
    TTL_SECONDS,
    RejectedCreations,
)
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from tests.support.cases import each_case

REFUSED = RequestError(ErrorCode.INVALID_CONFIG, "max.message.bytes is too large")


def is_held(creations: RejectedCreations, name: str) -> bool:
    try:
        creations.check(name)
    except RequestError as rejected:
        assert rejected.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert name in rejected.message and "rejected (" in rejected.message
        return True
    return False


def test_a_rejection_is_kept_for_a_while_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.getLogger("lockstep").propagate = True
    time = [100.0]
    creations = RejectedCreations(lambda: time[0])
    assert not is_held(creations, "t")
    creations.record("t", REFUSED)
    time[0] += TTL_SECONDS - 1
    assert is_held(creations, "t")
    creations.record("t", REFUSED)
    time[0] += TTL_SECONDS - 1
    assert is_held(creations, "t")
    assert [each.getMessage() for each in caplog.records] == [
        "topic t: its creation with configurations was rejected (max.message.bytes is too large): for 15 "
        "minutes, or until it is created, it is not auto-created"
    ]
    time[0] += 1
    assert not is_held(creations, "t")
    creations.record("t", REFUSED)
    assert len(caplog.records) == 2


def test_a_creation_that_succeeds_ends_the_wait() -> None:
    creations = RejectedCreations(lambda: 0.0)
    creations.record("t", REFUSED)
    creations.forget("t")
    creations.forget("other")
    assert not is_held(creations, "t")


@each_case("error", sorted(IGNORED_ERRORS))
def test_a_refusal_for_another_reason_holds_nothing(error: ErrorCode) -> None:
    creations = RejectedCreations(lambda: 0.0)
    creations.record("t", RequestError(error, "reason"))
    assert not is_held(creations, "t")


@each_case("name", ["a b", "x" * 250, "", CONSUMER_OFFSETS])
def test_neither_a_bad_name_nor_one_of_the_clusters_own_topics_is_held(name: str) -> None:
    creations = RejectedCreations(lambda: 0.0)
    creations.record(name, REFUSED)
    assert not is_held(creations, name)


def test_the_oldest_is_forgotten_first() -> None:
    creations = RejectedCreations(lambda: 0.0)
    for number in range(MAX_REJECTED_CREATIONS):
        creations.record(f"t{number}", REFUSED)
    creations.record("t0", REFUSED)
    creations.record("one.more", REFUSED)
    assert is_held(creations, "t0")
    assert not is_held(creations, "t1")
    assert is_held(creations, "t2")
