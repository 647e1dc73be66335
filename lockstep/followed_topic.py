"""One topic of a cluster, followed while its leaders move and its brokers come and go.

Owns: the topic as the cluster's metadata last said it. Invariants: it is the same topic for as long as this
lives: one that was made anew under its name is another one. Only questions are asked again here; what is not
a question is for the caller, who knows what it means to do it twice. `problem` says that a question has had
no response for long. Does not: close its client; know what is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lockstep.client import LATEST, Client, FetchedPartition, TopicMetadata
from lockstep.connection import BrokerConnection, BrokerError, ClientError, ConnectionFailed
from lockstep.protocol.cluster_view import RETRIABLE_ERRORS
from lockstep.protocol.errors import ErrorCode
from lockstep.retry_policy import RetryPolicy

T = TypeVar("T")

SILENT_AFTER_S: Final = 5.0
"""So long is a response waited for before that is called a problem: leaders move in less."""


class TopicDeleted(ClientError):
    """There is no such topic any more, or one of its name that is another one."""


class FollowedTopic:
    """See the module.

    Args:
        client: its alone where a read may wait long, since a connection answers in order.
        deleted_after_s: so long may brokers say that there is no such topic, before that is believed: one
            that has just been started may not know it yet.
    """

    __slots__ = ("_deleted_after_s", "_silent_since", "_unknown_since", "_why_silent", "client", "topic")

    def __init__(self, client: Client, topic: TopicMetadata, deleted_after_s: float = float("inf")) -> None:
        self.client = client
        self.topic = topic
        self._deleted_after_s = deleted_after_s
        self._unknown_since: float | None = None
        self._silent_since: float | None = None
        """Since when what is asked has failed again and again."""
        self._why_silent = ""

    def problem(self) -> str:
        """Why what is being asked has had no response for `SILENT_AFTER_S`, in words; empty where all is
        well.

        For who looks: whoever asks just waits.
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
            return  # whoever asks next learns it
        self._unknown_since = None
        if found.topic_id != self.topic.topic_id:
            raise TopicDeleted(
                f"topic {self.topic.name} was deleted and created anew meanwhile; start again to use the new "
                "topic"
            )
        self.topic = found

    def _not_found(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._unknown_since is None:
            self._unknown_since = now
        if now - self._unknown_since >= self._deleted_after_s:
            raise TopicDeleted(f"topic {self.topic.name} was deleted meanwhile")

    async def retry_while(self, ask: Callable[[], Awaitable[T]], timeout_s: float = float("inf")) -> T:
        """The answer to a question: it is repeated until there is one, or until `timeout_s` is over.

        Raises TopicDeleted, ClientError for good, and the last error at the timeout.
        """
        loop = asyncio.get_running_loop()
        tries = RetryPolicy(loop.time() + timeout_s, self.client, SILENT_AFTER_S)
        try:
            while True:
                try:
                    return await ask()
                except (BrokerError, ConnectionFailed) as error:
                    if isinstance(error, BrokerError) and error.code not in RETRIABLE_ERRORS:
                        raise
                    if self._silent_since is None:
                        self._silent_since = loop.time()
                    self._why_silent = str(error)
                    if not await tries.again():
                        raise
                await self.refresh()
        finally:  # answered, or asked no more
            self._silent_since = None

    async def fetch_committed(
        self, partition: int, position: int, wait_s: float, max_bytes: int
    ) -> FetchedPartition:
        """Fetch from a position on, below the last stable offset; waits up to `wait_s` for records.

        Raises TopicDeleted; BrokerError: OFFSET_OUT_OF_RANGE, and what else does not pass.
        """

        async def ask() -> FetchedPartition:
            (found,) = await self.client.fetch(
                self.topic,
                {partition: position},
                max_wait_ms=int(wait_s * 1000),
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
                committed=True,
            )
            return found

        return await self.retry_while(ask)

    async def offset(self, partition: int, timestamp: int = LATEST) -> int:
        """Same as `Client.offsets` with `committed`. Raises TopicDeleted, and BrokerError for what does not
        pass."""

        async def ask() -> int:
            found = await self.client.offsets(self.topic, [partition], timestamp, committed=True)
            return found[partition]

        return await self.retry_while(ask)
