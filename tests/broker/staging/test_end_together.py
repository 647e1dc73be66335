"""Ends of several producers and a batch beside them in one frame: `Appender.ready` and `end_together`."""

from __future__ import annotations

import pytest

from broker.refused import Refused
from protocol.errors import ErrorCode
from protocol.staged_messages import staged_producer_id
from storage.group import Backlogged, BatchTooLarge
from storage.types import NotLeader, StorageFull
from tests.broker.test_append import (
    ABORT,
    COMMIT,
    ID,
    LIMITS,
    Transactional,
    batch,
    both,
    of_transaction,
)

__all__ = ["both"]


async def test_several_producers_end_together_behind_the_batch_that_says_so(both: Transactional) -> None:
    stage = staged_producer_id("query", 1)
    both.append(both.one, 0, verified=True)
    data = bytes(of_transaction(0, producer_id=stage))
    both.appender.append(both.two, data, LIMITS, 12, transactional_id=ID, verified=True)
    await both.group.committed()
    index = both.group.log.last_index
    beside = both.appender.ready((both.two, bytes(batch(b"told")), LIMITS), 12)
    other = COMMIT._replace(producer_id=stage, producer_epoch=1, version=2)
    appended = both.appender.end_together([(COMMIT, [both.one]), (other, [both.two])], beside)
    assert appended is not None and appended.base_offset == 1
    await both.group.committed()
    (frame,) = both.group.log.frames_cold(index + 1, 1 << 20)
    assert [(e.partition, e.base_offset) for e in frame.directory] == [(2, 1), (1, 1), (2, 2)]
    assert both.appender.end_together([(other, [both.two])]) is None  # it has ended
    late = bytes(of_transaction(1, producer_id=stage))
    with pytest.raises(Refused) as refused:
        both.appender.append(both.two, late, LIMITS, 12, transactional_id=ID, verified=True)
    assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_what_goes_with_markers_has_no_producer(both: Transactional) -> None:
    plain = bytes(batch(producer_id=5, producer_epoch=0, base_sequence=0))
    for _ in range(2):  # new, and sent again
        with pytest.raises(Refused) as refused:
            both.appender.ready((both.one, plain, LIMITS), 12)
        assert refused.value.error is ErrorCode.INVALID_RECORD
        both.appender.append(both.one, plain, LIMITS, 12)


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (StorageFull("full"), ErrorCode.KAFKA_STORAGE_ERROR),
        (BatchTooLarge("large"), ErrorCode.MESSAGE_TOO_LARGE),
        (NotLeader("moved"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (Backlogged("busy"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_ends_that_the_log_does_not_take_are_refused(
    both: Transactional, monkeypatch: pytest.MonkeyPatch, failure: Exception, error: ErrorCode
) -> None:
    both.append(both.one, 0, verified=True)

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(both.group, "append_together", fail)
    with pytest.raises(Refused) as refused:
        both.appender.end_together([(ABORT, [both.one])])
    assert refused.value.error is error
    monkeypatch.undo()
    assert both.appender.end_together([(ABORT, [both.one])]) is None
    assert both.one.next_offset == 2
