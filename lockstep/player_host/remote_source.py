"""One partition of a topic on brokers, as a player reads it: a `lockstep.player.source.interface.Source` over
the network.

Owns: two clients. Brokers respond to a connection's requests in order, so reads that wait for something new
have a connection of their own, and recoveries and bounds, which wait for nothing, have another. Invariants:
nothing at or above the last stable offset is read; a topic that was created again is not read in place of
this one; bounds come from the leader, after the request. Leaders that move and brokers that go away are
waited for. Does not: choose the player.
"""

from __future__ import annotations

import asyncio
from typing import Final

from lockstep.kafka_client.client import EARLIEST, LATEST, Client
from lockstep.kafka_client.connection import BrokerError, Unsupported
from lockstep.kafka_client.followed_topic import FollowedTopic, TopicDeleted
from lockstep.kafka_client.retry_policy import RetryPolicy
from lockstep.kafka_client.security import Properties
from lockstep.player.source.batch_entries import split_into_entries
from lockstep.player.source.interface import LogBounds, LogChunk, RangeLost, SourceClosed
from lockstep.player.source.log_id import log_id
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.fetch import FetchRequest

TIMEOUT_S: Final = 5.0
"""A broker that does not respond for this time is left: there may be another leader."""
DELETED_AFTER_S: Final = 10.0
SHORTENED_AFTER_S: Final = 5.0
"""The time in which a leader may report that the log ends before a position which was read already."""
_TOPIC_IDS_MIN_VERSION: Final = 13
"""The version of Fetch that names a topic by its id."""


class RemoteSource:
    """Make it with `RemoteSource.open`."""

    log_group = None

    def __init__(
        self, waiting: FollowedTopic, prompt: FollowedTopic, cluster_id: str, partition: int
    ) -> None:
        self._waiting = waiting
        self._prompt = prompt
        self.topic = prompt.topic.name
        self.partition = partition
        self.log_id = log_id(cluster_id, prompt.topic.topic_id, partition)

    @classmethod
    async def open(
        cls,
        bootstrap: str,
        topic: str,
        partition: int,
        *,
        client_id: str = "lockstep-player",
        timeout_s: float = TIMEOUT_S,
        deleted_after_s: float = DELETED_AFTER_S,
        properties: Properties | None = None,
    ) -> RemoteSource:
        """Look the topic up. Raises ClientError: no broker, no such topic or partition, too old a broker."""
        clients = [
            Client(bootstrap, client_id=client_id, timeout_s=timeout_s, properties=properties)
            for _ in range(2)
        ]
        try:
            found = await clients[0].topic(topic)
            connection = await clients[0].leader_of(found, partition)
            if connection.version_of(FetchRequest) < _TOPIC_IDS_MIN_VERSION:
                raise Unsupported(f"{connection} does not distinguish a topic from a later one")
            prompt, waiting = [FollowedTopic(client, found, deleted_after_s) for client in clients]
            await waiting.refresh()
        except BaseException:
            for client in clients:
                client.close()
            raise
        return cls(waiting, prompt, clients[0].cluster_id or "", partition)

    def problem(self) -> str:
        """The reason why nothing could be read for a while; empty where all is well, or nothing is read."""
        return self._waiting.problem() or self._prompt.problem()

    async def bounds(self) -> LogBounds:
        """Same as `Source.bounds`."""
        try:
            first = await self._prompt.offset(self.partition, EARLIEST)
            after = await self._prompt.offset(self.partition, LATEST)
            await self._prompt.refresh()  # offsets are requested by the topic's name
        except TopicDeleted as error:
            raise SourceClosed(str(error)) from None
        return LogBounds(first, after)

    async def read(self, first_position: int, max_bytes: int, wait_s: float) -> LogChunk:
        """Same as `Source.read`."""
        followed = self._waiting if wait_s > 0 else self._prompt
        tries = RetryPolicy(asyncio.get_running_loop().time() + SHORTENED_AFTER_S)
        while True:
            try:
                found = await followed.fetch_committed(self.partition, first_position, wait_s, max_bytes)
                return split_into_entries(found.records, first_position, found.aborted)
            except TopicDeleted as error:
                raise SourceClosed(str(error)) from None
            except BrokerError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
            bounds = await self.bounds()
            if first_position < bounds.first_position:
                raise RangeLost(bounds.first_position)
            if not await tries.wait_before_retry():
                raise SourceClosed(
                    f"the log ends before {bounds.next_position}, and was read up to {first_position - 1}"
                )

    async def close(self) -> None:
        self._waiting.client.close()
        self._prompt.client.close()
