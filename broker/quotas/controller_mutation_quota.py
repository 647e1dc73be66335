"""The controller mutation quota in one request: partitions that it creates or deletes (KIP-599).

Pure. A request of a version whose clients know THROTTLING_QUOTA_EXCEEDED is rejected from the first change
on that finds a debt; of an older one everything is accepted and counted. Both get the time to wait.
"""

from __future__ import annotations

from collections.abc import Callable

from lockstep.broker.quotas.token_bucket import TokenBucket
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode


class ControllerMutationQuota:
    """See the module. Args: bucket: None where the client has no such quota."""

    __slots__ = ("_bucket", "_clock_ms", "_is_strict", "_until_ms")

    def __init__(self, bucket: TokenBucket | None, is_strict: bool, clock_ms: Callable[[], int]) -> None:
        self._bucket, self._is_strict, self._clock_ms = bucket, is_strict, clock_ms
        self._until_ms: int | None = None
        """The end of the wait."""

    def record(self, partitions: int) -> None:
        """Counts created or deleted partitions. Raises RequestError."""
        bucket = self._bucket
        if bucket is None:
            return
        now_ms = self._clock_ms()
        if self._is_strict:
            wait_ms = bucket.throttle_ms(now_ms)
            if not wait_ms:
                bucket.record(partitions, now_ms)
                return
        else:
            bucket.record(partitions, now_ms)
            wait_ms = bucket.throttle_ms(now_ms)
        if wait_ms:
            self._until_ms = now_ms + wait_ms
        if wait_ms and self._is_strict:
            raise RequestError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "")  # Kafka has no text for it, either

    def throttle_ms(self) -> int:
        """The time to wait, for the response."""
        return 0 if self._until_ms is None else max(0, self._until_ms - self._clock_ms())
