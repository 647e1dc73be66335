"""Partitions created and deleted in one request: rejected on a debt, or counted and made to wait."""

from __future__ import annotations

import pytest

from lockstep.broker.quotas.controller_mutation_quota import ControllerMutationQuota
from lockstep.broker.quotas.quota_rate import QuotaWindow
from lockstep.broker.quotas.token_bucket import TokenBucket
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode


class Request:
    """A request at a time that a test moves; eleven partitions may come at once, one in a second."""

    def __init__(self, *, is_strict: bool, has_quota: bool = True) -> None:
        self.now_ms = 0
        bucket = TokenBucket(1, QuotaWindow(), 0) if has_quota else None
        self.quota = ControllerMutationQuota(bucket, is_strict, lambda: self.now_ms)


def test_without_a_quota_nothing_is_counted() -> None:
    request = Request(is_strict=True, has_quota=False)
    request.quota.record(1_000_000)
    assert request.quota.throttle_ms() == 0


def test_a_strict_request_is_rejected_from_the_first_debt_on() -> None:
    request = Request(is_strict=True)
    request.quota.record(11)
    request.quota.record(3)  # accepted: there was no debt before it
    for _ in range(2):
        with pytest.raises(RequestError) as rejected:
            request.quota.record(1)
        assert rejected.value.error == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert request.quota.throttle_ms() == 3_000
    request.now_ms = 1_000
    assert request.quota.throttle_ms() == 2_000
    request.now_ms = 9_000
    assert request.quota.throttle_ms() == 0


def test_a_request_of_an_older_version_is_accepted_and_waits() -> None:
    request = Request(is_strict=False)
    request.quota.record(11)
    assert request.quota.throttle_ms() == 0
    request.quota.record(5)
    request.quota.record(1)
    assert request.quota.throttle_ms() == 6_000
