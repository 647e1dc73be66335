"""One topic of a cluster, followed while its leaders move and its brokers come and go.

Owns: the topic's newest metadata. Invariants: the topic id stays the same: a topic that was created again
under this name is another topic. Only read requests are retried here; for other requests the caller decides.
`problem` reports a request that has had no response for long. Does not: close its client; know what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lockstep.kafka_client.client import LATEST, Client, FetchedPartition, TopicMetadata
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, ClientError, ConnectionFailed
from lockstep.kafka_client.retry_policy import RetryPolicy
from lockstep.protocol.cluster_view import RETRIABLE_ERRORS
from lockstep.protocol.errors import ErrorCode

T = TypeVar("T")

SILENT_AFTER_S: Final = 5.0
"""A request without a response for this time is a problem: leaders move in less time."""


class TopicDeleted(ClientError):
    """The topic was deleted, or created again under its name."""


class FollowedTopic:
    """See the module.

    Args:
        client: a client of its own where a read may wait long, since a connection has its responses in order.
        deleted_after_s: brokers must report for so long that there is no such topic, before it counts as
            deleted: a broker that has just started may not know it yet.
    """

    __slots__ = ("_deleted_after_s", "_silent_since", "_unknown_since", "_why_silent", "client", "topic")

    def __init__(self, client: Client, topic: TopicMetadata, deleted_after_s: float = float("inf")) -> None:
        self.client = client
        self.topic = topic
        self._deleted_after_s = deleted_after_s
        self._unknown_since: float | None = None
        self._silent_since: float | None = None
        """The time since which requests have failed."""
        self._why_silent = ""

    def problem(self) -> str:
        """Why the present request has had no response for `SILENT_AFTER_S`, in words; empty without a
        problem.

        For a status page; the request itself just waits.
        """
        if self._silent_since is None:
            return ""
        silent_s = asyncio.get_running_loop().time() - self._silent_since
        if silent_s < SILENT_AFTER_S:
            return ""
        return f"no success for {silent_s:.0f} s: {self._why_silent}"

    async def leader(self, partition: int) -> BrokerConnection:
        """The leader of a partition. Raises ClientError."""
        return await self.client.leader_of(self.topic, partition)

    async def refresh(self) -> None:
        """Look up the current leaders, as far as any broker knows them. Raises TopicDeleted, and ClientError
        once closed."""
        if self.client.is_closed:
            raise ClientError("the client is closed: open a new one")
        try:
            (found,) = await self.client.topics([self.topic.name])
        except BrokerError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._not_found()
            return
        except ClientError:
            return  # the next request gets the error
        self._unknown_since = None
        if found.topic_id != self.topic.topic_id:
            raise TopicDeleted(
                f"topic {self.topic.name} was deleted and re-created meanwhile; start again to use the new "
                "topic"
            )
        self.topic = found

    def _not_found(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._unknown_since is None:
            self._unknown_since = now
        if now - self._unknown_since >= self._deleted_after_s:
            raise TopicDeleted(f"topic {self.topic.name} was deleted meanwhile")

    async def retry_while(self, attempt: Callable[[], Awaitable[T]], timeout_s: float = float("inf")) -> T:
        """Returns the response to a read request, which is repeated until there is one, or until `timeout_s`
        is over.

        Raises TopicDeleted, a ClientError that is not retriable, and the last error at the timeout.
        """
        loop = asyncio.get_running_loop()
        tries = RetryPolicy(loop.time() + timeout_s, self.client, SILENT_AFTER_S)
        try:
            while True:
                try:
                    return await attempt()
                except (BrokerError, ConnectionFailed) as error:
                    if isinstance(error, BrokerError) and error.code not in RETRIABLE_ERRORS:
                        raise
                    if self._silent_since is None:
                        self._silent_since = loop.time()
                    self._why_silent = str(error)
                    if not await tries.wait_before_retry():
                        raise
                await self.refresh()
        finally:  # responded to, or cancelled
            self._silent_since = None

    async def fetch_committed(
        self, partition: int, position: int, wait_s: float, max_bytes: int
    ) -> FetchedPartition:
        """Fetch from a position on, below the last stable offset; waits up to `wait_s` for records.

        Raises TopicDeleted; BrokerError: OFFSET_OUT_OF_RANGE, and what else does not pass.
        """

        async def attempt() -> FetchedPartition:
            (found,) = await self.client.fetch(
                self.topic,
                {partition: position},
                max_wait_ms=int(wait_s * 1000),
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
                committed=True,
            )
            return found

        return await self.retry_while(attempt)

    async def offset(self, partition: int, timestamp: int = LATEST) -> int:
        """Same as `Client.offsets` with `committed`. Raises TopicDeleted, and BrokerError for what does not
        pass."""

        async def attempt() -> int:
            found = await self.client.offsets(self.topic, [partition], timestamp, committed=True)
            return found[partition]

        return await self.retry_while(attempt)
