"""Which batch of a producer that is not known may be the first: none that was sent behind one refused."""

from __future__ import annotations

import pytest

from lockstep.broker.produce.append_result import AppendResult
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.types import Backlogged
from tests.broker.appends import ID, LIMITS, Transactional, idempotent, of_transaction


async def test_an_unknown_producer_begins_with_the_lowest_sequence_it_has_tried(both: Transactional) -> None:
    """The first batch may be on its way again: what was sent behind it must not begin in its place."""
    both.guard(both.one, 0)
    with pytest.raises(RequestError, match="5 arrived, but the rejected 0 must be appended first") as refused:
        both.append(both.one, 5, verified=True)
    assert refused.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert both.append(both.two, 5, verified=True) == 0, "elsewhere it was not tried"
    assert both.append(both.one, 0, verified=True) == 0
    assert both.append(both.one, 1) == 1


@pytest.mark.parametrize("transactional", [True, False])
async def test_no_batch_begins_in_the_place_of_one_that_had_no_room(
    both: Transactional, monkeypatch: pytest.MonkeyPatch, transactional: bool
) -> None:
    """There may be room for a smaller one. A staged batch is verified from its beginning."""

    def append(sequence: int) -> int:
        data = of_transaction(sequence, transactional=transactional)
        result = both.appender.append_transactional(both.one, data, LIMITS, 9, ID, verified=True)
        assert isinstance(result, AppendResult)
        return result.base_offset

    def refuse(sequence: int, error: ErrorCode) -> None:
        with pytest.raises(RequestError) as refused:
            append(sequence)
        assert refused.value.error is error

    def full(*_: object) -> int:
        raise Backlogged("busy")

    with monkeypatch.context() as busy:
        busy.setattr(both.group, "append", full)
        refuse(3, ErrorCode.REQUEST_TIMED_OUT)
    for _ in range(2):
        refuse(4, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert [append(3), append(4), append(3)] == [0, 1, 0]


async def test_no_batch_begins_in_the_place_of_one_that_went_with_others(
    both: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, of batches that are appended together: each of them was tried."""

    def full(*_: object, **__: object) -> list[int]:
        raise Backlogged("busy")

    with monkeypatch.context() as busy:
        busy.setattr(both.group, "append_together", full)
        both.refuse_together(ErrorCode.REQUEST_TIMED_OUT, 0, idempotent(3), idempotent(5))
    for partition, sequence in ((both.one, 4), (both.two, 6)):
        with pytest.raises(RequestError) as refused:
            both.appender.append(partition, idempotent(sequence), LIMITS, 9)
        assert refused.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert both.together(idempotent(3), idempotent(5)) == [0, 0]
