"""Topics that may not be auto-created, because their creation with configurations was rejected lately.

Owns: their names. A tool that copies topics, as MirrorMaker 2, creates one with its configurations, is
rejected, and continues; its producer then sends Metadata, and an auto-created topic would have the brokers'
defaults: records that were to be compacted, or kept for ever, would be deleted after a week. Invariants: only
a rejected CreateTopics request with configurations counts, since any other one requests the same defaults as
auto-creation; at most MAX_REJECTED_CREATIONS names are kept, the oldest is evicted. A successful creation
removes the name. Soft state of this process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from lockstep.broker.metadata.topic_names import check_name
from lockstep.broker.metadata.topic_validation import FIXED_IDS
from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode

log = logging.getLogger("lockstep.topics")

MAX_REJECTED_CREATIONS: Final = 1_000
"""LIMIT. Names of at most 249 characters each."""
TTL_SECONDS: Final = 900.0
"""Longer than the ten minutes after which MirrorMaker 2 tries to create its topics again
(refresh.topics.interval.seconds), so that each rejection is renewed before it expires."""
IGNORED_ERRORS: Final = frozenset(
    {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NOT_CONTROLLER}
)
"""Errors that are not recorded: auto-creation would be rejected, too, or the client retries on another
node."""


class RejectedCreations:
    """See the module. Args: monotonic: a clock, in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._rejected: dict[str, tuple[float, str]] = {}
        """Name -> (when its creation was rejected, the error message), oldest first."""

    def record(self, name: str, rejection: RequestError) -> None:
        """Records a topic whose creation with configurations was rejected."""
        if rejection.error in IGNORED_ERRORS or name in FIXED_IDS:
            return
        try:
            check_name(name)
        except RequestError:
            return
        if self._reason(name) is None:
            log.warning(
                "topic %s: its creation with configurations was rejected (%s): for %d minutes, or until "
                "it is created, it is not auto-created",
                name,
                rejection.message,
                TTL_SECONDS / 60,
            )
        self._rejected.pop(name, None)
        self._rejected[name] = self._monotonic(), rejection.message
        if len(self._rejected) > MAX_REJECTED_CREATIONS:
            del self._rejected[next(iter(self._rejected))]

    def forget(self, name: str) -> None:
        """Remove a topic that was created."""
        self._rejected.pop(name, None)

    def check(self, name: str) -> None:
        """Raises RequestError, with UNKNOWN_TOPIC_OR_PARTITION, for a topic that may not be auto-created now.

        A broker without auto-creation gives the same response: clients retry until their own timeout, and
        their error then names the topic.
        """
        reason = self._reason(name)
        if reason is not None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"Topic '{name}' is not auto-created: its creation was rejected ({reason})",
            )

    def _reason(self, name: str) -> str | None:
        rejected_at, reason = self._rejected.get(name, (0.0, None))
        if reason is not None and self._monotonic() - rejected_at >= TTL_SECONDS:
            del self._rejected[name]
            return None
        return reason
