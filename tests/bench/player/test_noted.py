"""What a target has noted: both delays, and that nothing is lost, doubled or out of order."""

from __future__ import annotations

import pytest

from bench.load.wire import WrongAnswer
from bench.player.noted import Noted, WrongDelivery, delays, expected_parts
from bench.player.workload import NEVER, Shape, split, transaction

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
    with pytest.raises(WrongAnswer):
        delays([_noted(0)], 5 * S, 6 * S)


@pytest.mark.parametrize("numbers", [(0, 2), (0, 1, 1, 2), (1, 0, 2), (0, 1, 2, 3), ()])
def test_a_target_that_lost_doubled_or_reordered_something_is_found(numbers: tuple[int, ...]) -> None:
    _noted(0, 1, 2).check(0, Shape(1, 1), 3)
    with pytest.raises(WrongDelivery):
        _noted(*numbers).check(0, Shape(1, 1), 3)


def test_what_is_waited_for_is_what_is_checked() -> None:
    shape = Shape(20, 3)
    wanted = [expected_parts(target, shape, 50) for target in range(20)]
    assert sum(wanted) == 150
    assert wanted[3] == sum(3 in split(transaction(number, 0, 3), 20, 0) for number in range(50))
