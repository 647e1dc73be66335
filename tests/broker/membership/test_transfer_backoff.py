"""Leadership moves seldom, and only to who has been ready for a while."""

from __future__ import annotations

from lockstep.broker.membership.transfer_backoff import MIN_INTERVAL_MS, STEADY_MS, TransferBackoff


def test_the_same_candidate_has_to_be_ready_for_a_while() -> None:
    pace = TransferBackoff()
    assert not pace.is_steady(1, 100)
    assert not pace.is_steady(1, 99 + STEADY_MS)
    assert pace.is_steady(1, 100 + STEADY_MS)


def test_a_break_or_another_candidate_starts_it_again() -> None:
    pace = TransferBackoff()
    pace.is_steady(1, 0)
    assert not pace.is_steady(None, STEADY_MS)
    assert not pace.is_steady(1, STEADY_MS + 1)
    assert not pace.is_steady(2, 2 * STEADY_MS + 1)
    assert not pace.is_steady(None, 9 * STEADY_MS)


def test_nobody_is_never_steady() -> None:
    pace = TransferBackoff()
    assert not pace.is_steady(None, 0)
    assert not pace.is_steady(None, STEADY_MS)


def test_there_is_a_rest_between_two_hand_overs() -> None:
    pace = TransferBackoff()
    assert pace.is_over(0)
    pace.is_steady(1, 0)
    pace.on_transfer(STEADY_MS)
    assert not pace.is_over(STEADY_MS + MIN_INTERVAL_MS - 1)
    assert pace.is_over(STEADY_MS + MIN_INTERVAL_MS)
    assert not pace.is_steady(1, STEADY_MS + 1)  # counted anew: who failed to take over was not that ready
