"""Transactions of key-values: who gets what, and the times that travel with them."""

from __future__ import annotations

import pytest

from bench.load.wire import UnexpectedResponse
from bench.player.sessions import BACKLOGS, DELAYS, KAFKA, LOCKSTEP, ONE, PARTS, SUSTAINED, plan_sessions
from bench.player.workload import (
    HEAD_BYTES,
    KEY_VALUE_BYTES,
    NEVER,
    Noted,
    Shape,
    SplitByKey,
    WrongDelivery,
    delays,
    expected_parts,
    head_of,
    split,
    target_names,
    transaction,
)
from lockstep.protocol.records.record import Record
from tests.support.cases import each_case


@each_case(("targets", "keys"), [(20, 1), (20, 10), (2, 10), (15, 10), (5, 5)])
def test_parts_are_the_whole_transaction_once_and_everybody_gets_equally_much(
    targets: int, keys: int
) -> None:
    shape, received = Shape(targets, keys), [0] * targets
    for number in range(targets * keys):
        whole = transaction(number, 7, keys)
        assert len(whole) == HEAD_BYTES + keys * KEY_VALUE_BYTES
        assert head_of(whole) == (number, 7, NEVER)
        parts = split(whole, targets, 9)
        assert sorted(parts) == sorted(shape.targets_of(number)) and len(parts) == min(keys, targets)
        assert all(head_of(part) == (number, 7, 9) for part in parts.values())
        bodies = [part[HEAD_BYTES:] for part in parts.values()]
        cut = [
            body[at : at + KEY_VALUE_BYTES] for body in bodies for at in range(0, len(body), KEY_VALUE_BYTES)
        ]
        assert b"".join(sorted(cut)) == whole[HEAD_BYTES:]
        for target, part in parts.items():
            received[target] += (len(part) - HEAD_BYTES) // KEY_VALUE_BYTES
    assert received == [keys * keys] * targets


def test_the_player_splits_by_name_and_records_its_start() -> None:
    choice = SplitByKey(target_names(3))
    choice.dispatched_ns = 11
    parts = choice(Record(0, 0, None, transaction(1, 5, 2), []))
    assert list(parts) == ["target-2", "target-0"]
    assert head_of(parts["target-0"] or b"") == (1, 5, 11)


S = 1_000_000_000


def _noted(*numbers: int, dispatched_ns: int = 2 * S) -> Noted:
    noted = Noted()
    for number in numbers:
        part = split(transaction(number, (number + 1) * S, 1), 1, dispatched_ns)[0]
        noted.note(part, (number + 1) * S + 4_000_000)
    return noted


def test_delays_are_of_what_was_sent_in_the_window() -> None:
    found = delays([_noted(0, 1, 2), _noted(1)], 2 * S, 3 * S)
    assert (found["samples"], found["apply_mean_ms"], found["player_p99_ms"]) == (2, 4.0, 4.0)
    undispatched = delays([_noted(0, dispatched_ns=NEVER)], 0, 2 * S)
    assert "player_mean_ms" not in undispatched and undispatched["apply_p50_ms"] == 4.0
    with pytest.raises(UnexpectedResponse):
        delays([_noted(0)], 5 * S, 6 * S)


@each_case("numbers", [(0, 2), (0, 1, 1, 2), (1, 0, 2), (0, 1, 2, 3), ()])
def test_a_target_that_lost_doubled_or_reordered_something_is_found(numbers: tuple[int, ...]) -> None:
    _noted(0, 1, 2).check(0, Shape(1, 1), 3)
    with pytest.raises(WrongDelivery):
        _noted(*numbers).check(0, Shape(1, 1), 3)


def test_what_is_waited_for_is_what_is_checked() -> None:
    shape = Shape(20, 3)
    wanted = [expected_parts(target, shape, 50) for target in range(20)]
    assert sum(wanted) == 150
    assert wanted[3] == sum(3 in split(transaction(number, 0, 3), 20, 0) for number in range(50))


def test_sessions_alternate_and_what_is_measured_once_is_in_the_first() -> None:
    plan = plan_sessions(frozenset(PARTS), 2)
    assert [each.kind for each in plan] == [LOCKSTEP, KAFKA, KAFKA, LOCKSTEP, ONE]
    assert [SUSTAINED in each.parts for each in plan] == [True, False, False, False, False]
    assert [each.first for each in plan if each.kind == KAFKA] == [True, False]
    assert [each.kind for each in plan_sessions(frozenset({BACKLOGS}), 2)] == [ONE]
    assert [each.kind for each in plan_sessions(frozenset({SUSTAINED}), 2)] == [LOCKSTEP]
    assert KAFKA in {each.kind for each in plan_sessions(frozenset({DELAYS}), 1)}
