"""Markers: where they go, when they are refused, and that what is known of them is what a replay tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.broker.produce.marker_batches import (
    TxnMarkerEntry,
    build_marker_batches,
    record_appended_markers,
)
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.control import ControlKind, ControlMarker, parse
from lockstep.storage.partition import PartitionLog
from tests.broker.appends import ABORT, COMMIT, ID, LIMITS, NOW_MS, Transactional, of_transaction

OTHER = TxnMarkerEntry(11, 0, 7, True, 1)
"""Of another producer, whose coordinator has another epoch."""


def told(
    both: Transactional, marker: TxnMarkerEntry, *partitions: PartitionLog
) -> list[tuple[int, ControlMarker]]:
    """The markers that are to be written, with their partitions' numbers."""
    found = build_marker_batches(both.producers, both.group.partitions, partitions, marker, NOW_MS)
    return [(partition.local_id, parse(data)) for (partition, data, _), _ in found]


async def open_both(both: Transactional) -> None:
    """A transaction of COMMIT's producer in the first partition, one of OTHER's in the second."""
    both.append(both.one, 0, verified=True)
    data = of_transaction(0, producer_id=OTHER.producer_id)
    both.appender.append_transactional(both.two, data, LIMITS, 9, ID, verified=True)


async def test_each_partition_gets_one_marker_and_those_that_are_gone_none(both: Transactional) -> None:
    abort, gone = ControlMarker(ControlKind.ABORT, 3), both.two
    assert told(both, ABORT, both.one, both.two, both.one) == [(1, abort), (2, abort)]
    assert told(both, COMMIT, both.one) == [(1, ControlMarker(ControlKind.COMMIT, 3))]
    await both.group.close_partitions([2])
    assert told(both, ABORT, gone) == []


async def test_what_is_noted_ends_the_transaction(both: Transactional) -> None:
    both.append(both.one, 0, verified=True)
    marker = COMMIT._replace(producer_epoch=1, version=2)
    ends = build_marker_batches(both.producers, both.group.partitions, [both.one], marker, NOW_MS)
    record_appended_markers(both.producers, ends, [1, 5], NOW_MS)  # offsets of more than the markers
    assert told(both, marker, both.one) == []
    assert both.producers.has_newest_marker(1, 9)


@pytest.mark.parametrize(
    ("late", "error"),
    [
        (COMMIT._replace(coordinator_epoch=2), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (COMMIT._replace(producer_epoch=-1), ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
async def test_a_marker_that_comes_too_late_is_refused(
    both: Transactional, late: TxnMarkerEntry, error: ErrorCode
) -> None:
    both.append(both.one, 0, verified=True)
    both.appender.end_transactions([both.one], COMMIT)
    with pytest.raises(RequestError) as refused:
        told(both, late, both.one)
    assert refused.value.error is error


async def test_of_markers_that_go_together_each_coordinator_has_its_own_epoch(both: Transactional) -> None:
    await open_both(both)
    both.appender.end_several([(COMMIT, [both.one]), (OTHER, [both.two])])
    both.refuse_end(
        ErrorCode.TRANSACTION_COORDINATOR_FENCED, both.two, marker=OTHER._replace(coordinator_epoch=6)
    )
    both.appender.end_transactions([both.one], COMMIT)  # of epoch 3, which is the newest there


async def test_markers_that_went_together_are_known_as_a_replay_knows_them(tmp_path: Path) -> None:
    before = await Transactional(tmp_path).open()
    await open_both(before)
    before.appender.end_several([(COMMIT, [before.one]), (OTHER, [before.two])])
    after, live = await before.replayed()
    assert after.producers.snapshot(NOW_MS) == live
    await after.group.close()
