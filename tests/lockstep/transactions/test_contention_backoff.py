"""How long a client waits before something new."""

from __future__ import annotations

from lockstep.transactions.contention_backoff import MAX_PAUSE_S, MIN_REJECTIONS, ContentionBackoff


def test_a_client_without_rejections_does_not_wait() -> None:
    way = ContentionBackoff()
    assert way.pause_s(1.0) == 0.0
    for _ in range(100):
        way.record(1, 5.0)
    assert way.pause_s(1.0) == 0.0


def test_a_rejected_client_waits_up_to_the_time_of_its_rejections() -> None:
    way = ContentionBackoff()
    for _ in range(200):
        way.record(5, 0.05)
    assert 0.039 < way.pause_s(1.0) < 0.041 and way.pause_s(0.0) == 0.0
    assert way.pause_s(0.5) == way.pause_s(1.0) / 2
    for _ in range(200):
        way.record(1, 0.01)
    assert way.pause_s(1.0) == 0.0, "what was is forgotten"


def test_a_few_refusals_are_nothing_and_nobody_waits_long() -> None:
    way = ContentionBackoff()
    way.record(3, 1.0)
    assert MIN_REJECTIONS > 2 * 0.1 and way.pause_s(1.0) == 0.0
    for _ in range(100):
        way.record(50, 500.0)
    assert way.pause_s(1.0) == MAX_PAUSE_S
