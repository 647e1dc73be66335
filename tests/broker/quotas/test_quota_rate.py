"""Rates over a window, against the figures of Kafka's formulas."""

from __future__ import annotations

from lockstep.broker.quotas.quota_rate import MAX_THROTTLE_MS, QuotaRate, QuotaWindow
from tests.support.cases import each_case

WINDOW = QuotaWindow()


def rate(limit: float = 1000, window: QuotaWindow = WINDOW, longest: int = MAX_THROTTLE_MS) -> QuotaRate:
    return QuotaRate(limit, window, longest)


@each_case(
    ("used", "throttle_ms"),
    [
        (10_000, 0),  # the ten samples before this one count as empty
        (10_001, 1),  # (1000.1 - 1000) / 1000 * 10 s
        (20_000, 10_000),
        (50_000, 40_000),  # as a real Kafka reports it
    ],
)
def test_the_first_use_waits_until_the_rate_over_ten_seconds_is_the_limit(
    used: float, throttle_ms: int
) -> None:
    assert rate().charge(used, 5_000) == throttle_ms


def test_the_wait_counts_from_now_and_shrinks_with_time() -> None:
    counted = rate()
    assert counted.charge(20_000, 0) == 10_000
    assert counted.throttle_ms(500) == 9_500  # 20000 / 10.5 s is the rate, 10.5 s the window
    assert counted.throttle_ms(9_999) == 9_001  # the sample counts as a whole until it has left the window
    assert counted.throttle_ms(11_000) == 0  # the sample has left the window


def test_samples_leave_the_window_one_by_one() -> None:
    counted = rate()
    for second in range(11):
        assert counted.charge(900, second * 1000) == 0
    # Eleven samples, 9900 bytes in 10 s; 2100 more make it 12000.
    assert counted.charge(2_100, 10_000) == 2_000
    # A second later the first sample has left the window with as much as comes in.
    assert counted.charge(900, 11_000) == 2_000
    assert counted.throttle_ms(30_000) == 0


def test_what_is_taken_back_did_not_count() -> None:
    counted = rate()
    counted.record(9_000, 0)
    assert counted.charge(5_000, 100) > 0
    counted.record(-5_000, 100)
    assert counted.charge(1_000, 100) == 0


def test_a_bounded_rate_waits_for_no_more() -> None:
    assert rate(1, longest=1_000).charge(1_000_000, 0) == 1_000
    assert rate(0.000_001).charge(1_000_000, 0) == MAX_THROTTLE_MS


def test_a_raised_limit_takes_effect_on_what_was_counted() -> None:
    counted = rate()
    assert counted.charge(50_000, 0) == 40_000
    counted.limit = 5_000
    assert counted.throttle_ms(0) == 0


def test_other_windows_hold_other_bursts() -> None:
    counted = rate(100, QuotaWindow(3, 2_000))
    assert counted.burst == 400
    assert counted.charge(400, 0) == 0 and counted.charge(100, 0) == 1_000
    assert rate(100, QuotaWindow(1, 1_000)).charge(10, 0) == 0  # no time has passed yet: no rate


def test_a_rate_is_idle_once_nothing_counts() -> None:
    counted = rate()
    assert counted.is_idle(0)
    counted.record(1, 0)
    assert not counted.is_idle(10_999) and counted.is_idle(11_000)


def test_the_smallest_limits_wait_for_the_longest() -> None:
    """Their quotient is infinite, which is no number of milliseconds."""
    assert QuotaRate(1e-320, QuotaWindow()).charge(1.0, 0) == MAX_THROTTLE_MS
    assert QuotaRate(1e-320, QuotaWindow(), 1_000).charge(1.0, 0) == 1_000


def test_the_samples_of_a_window_are_used_again() -> None:
    counted = rate(10, QuotaWindow(2, 1_000))
    assert counted.charge(20, 0) == 1_000  # 20/s of 10/s, over the one sample before this one
    for second in range(1, 7):  # three samples are kept, of which the oldest has just left the window
        assert counted.charge(20, second * 1_000) == 3_000, second
