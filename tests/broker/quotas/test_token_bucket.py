"""Tokens that come back, against the figures of Kafka's formulas."""

from __future__ import annotations

from lockstep.broker.quotas.quota_rate import MAX_THROTTLE_MS, QuotaWindow
from lockstep.broker.quotas.token_bucket import TokenBucket

WINDOW = QuotaWindow()


def test_a_bucket_of_tokens_is_full_at_first_and_refills() -> None:
    bucket = TokenBucket(5, QuotaWindow(100, 1_000), 0)  # the example of Kafka's TokenBucket
    assert bucket.tokens(0) == 500
    bucket.record(560, 0)
    assert (bucket.tokens(0), bucket.throttle_ms(0)) == (-60, 12_000)
    assert bucket.throttle_ms(11_000) == 1_000 and bucket.throttle_ms(12_000) == 0
    assert not bucket.is_idle(12_000) and bucket.is_idle(112_000)
    assert bucket.tokens(1_000_000) == 500


def test_a_bucket_gives_fractions_and_bounds_the_wait() -> None:
    bucket = TokenBucket(0.5, WINDOW, 0)
    bucket.record(6, 0)
    assert (bucket.tokens(0), bucket.throttle_ms(0)) == (-0.5, 1_000)
    slow = TokenBucket(1e-9, WINDOW, 0)
    slow.record(1, 0)
    assert slow.throttle_ms(0) == MAX_THROTTLE_MS


def test_the_smallest_limit_waits_for_the_longest() -> None:
    """Its quotient is infinite, which is no number of milliseconds."""
    bucket = TokenBucket(5e-324, QuotaWindow(), 0)
    bucket.record(1.0, 0)
    assert bucket.throttle_ms(0) == MAX_THROTTLE_MS
