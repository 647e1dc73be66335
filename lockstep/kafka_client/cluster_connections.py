"""Connections to the brokers of a cluster: any of them, the leader of a partition, a coordinator.

Owns: the connections, and the retries after a temporary error; the `ClusterView` has the brokers and the
order in which they are tried. Several callers share one attempt to connect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Coroutine, Mapping
from typing import Final, Self, TypeVar

from lockstep.kafka_client.bootstrap import call_timeout_s, connect_to_first
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, ConnectionFailed
from lockstep.kafka_client.retry_policy import RetryPolicy
from lockstep.kafka_client.security import ClientSecurity, Properties
from lockstep.protocol.client_errors import ListenerMismatch
from lockstep.protocol.cluster_view import GROUP, ClusterView, TopicMetadata, coordinator_request
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")
Response = TypeVar("Response", bound=Struct)

_SETTLE_S: Final = 5.0
"""The time that a topic may take to get its leaders after the first request for it."""
_GONE_TIMEOUT_S: Final = 15.0
"""The time in which a cluster may still name a dead node: it counts as dead some seconds later."""
_MISMATCH_TIMEOUT_S: Final = 1.0
"""The time in which a client that was never served repeats requests whose connection is closed: the
broker may be about to stop, but its listener may also be of another kind."""


_MAJORITY: Final = "a majority of the nodes may be missing (`lockstep cluster status` shows)"
NO_LEADER: Final[Mapping[int, str]] = {
    ErrorCode.NOT_CONTROLLER: f"no node is the controller now; {_MAJORITY}",
    ErrorCode.LEADER_NOT_AVAILABLE: f"the partition has no leader now; {_MAJORITY}",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: f"no node can serve it now; {_MAJORITY}",
}
"""The meaning of an error that persists for a few seconds, and the remedy."""


def no_leader(code: int, about: str) -> BrokerError:
    """An error of `NO_LEADER`, in its words."""
    return BrokerError(code, about, NO_LEADER[code])


class ClusterConnections:
    """Connections to the brokers of one cluster, and its newest metadata.

    Args: properties: Kafka's client properties of TLS and SASL (`security`); wrong ones raise ClientError.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "lockstep",
        timeout_s: float = 30.0,
        properties: Properties | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._view = ClusterView(bootstrap)
        self._security = ClientSecurity.of(properties)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._first: BrokerConnection | None = None
        self._first_since = 0.0
        """The time when that connection was made."""
        self._leaders: dict[int, BrokerConnection] = {}
        self._connecting: dict[int | None, asyncio.Task[BrokerConnection]] = {}
        """By node; None is any of those that were named, or of those that they named."""
        self.is_closed = False

    @property
    def cluster_id(self) -> str | None:
        """From the newest metadata; None before the first."""
        return self._view.cluster_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections, permanently."""
        self.is_closed = True
        for attempt in self._connecting.values():
            attempt.cancel()
        for connection in (self._first, *self._leaders.values()):
            if connection is not None:
                connection.close()

    async def brokers(self) -> list[BrokerConnection]:
        """A connection to each broker of the cluster."""
        await self._metadata([], create=False)
        return [await self._node(node_id) for node_id in self._view.addresses]

    def suspect(self, for_s: float = 0.0) -> None:
        """Takes metadata from another broker from now on, as the present one may be partitioned from the
        others; not if it was chosen less than `for_s` ago, as several callers may suspect one broker."""
        if self._first is not None and asyncio.get_running_loop().time() - self._first_since >= for_s:
            self._first.close()

    async def any_broker(self) -> BrokerConnection:
        """A connection to one that is known, the same as long as it holds. ConnectionFailed."""
        return await self._any()

    async def coordinator(self, group: str) -> BrokerConnection:
        """The broker that looks after a consumer group; waits a few seconds for one. BrokerError."""

        async def attempt() -> BrokerConnection:
            version = (await self._any()).version_of(FindCoordinatorRequest)
            request = coordinator_request(group, GROUP, version)
            response = await self._call_any(request, FindCoordinatorResponse)
            return await self._node(self._view.coordinator_of(response, f"group {group}", NO_LEADER))

        return await self.retry_while(attempt, (ErrorCode.COORDINATOR_NOT_AVAILABLE,))

    async def _any(self) -> BrokerConnection:
        if self._first is not None and self._first.is_open:
            return self._first
        return await self._share_attempt(None, self._connect_first)

    async def _connect_first(self) -> BrokerConnection:
        if self._first is not None:  # the one that has failed may hang
            self._view.suspect((self._first.host, self._first.port))

        async def connect(host: str, port: int, within_s: float) -> BrokerConnection:
            try:
                return await self._connect(host, port, within_s)
            except ConnectionFailed:
                self._view.suspect((host, port))
                raise

        self._first = await connect_to_first(self._view.candidates(), connect, self.timeout_s)
        self._first_since = asyncio.get_running_loop().time()
        return self._first

    async def _connect(self, host: str, port: int, within_s: float | None = None) -> BrokerConnection:
        return await BrokerConnection.open(
            host,
            port,
            client_id=self._client_id,
            timeout_s=self.timeout_s,
            open_timeout_s=within_s,
            security=self._security,
        )

    async def _call_any(self, request: Struct, response_type: type[Response]) -> Response:
        """Sends a request that any broker can serve; one that disappears or does not respond is replaced by
        the next."""
        loop = asyncio.get_running_loop()
        deadline, others = loop.time() + self.timeout_s, len(self._view.candidates())
        while True:
            others -= 1
            connection = await self._any()
            try:
                timeout_s = call_timeout_s(deadline - loop.time(), others)
                return await connection.call(request, response_type, timeout_s=timeout_s)
            except ConnectionFailed:
                if others <= 0 or loop.time() >= deadline:
                    raise

    async def _node(self, node_id: int) -> BrokerConnection:
        connection = self._leaders.get(node_id)
        if connection is not None and connection.is_open:
            return connection
        if node_id < 0:
            raise no_leader(ErrorCode.LEADER_NOT_AVAILABLE, self.bootstrap)
        address = self._view.address_of(node_id)

        async def connect() -> BrokerConnection:
            # the cluster may still name a node that has gone: as long as a call may take, and no longer
            within_s = call_timeout_s(self.timeout_s, len(self._view.candidates()) - 1)
            self._leaders[node_id] = await self._connect(*address, within_s)
            return self._leaders[node_id]

        return await self._share_attempt(node_id, connect)

    async def _share_attempt(
        self, node_id: int | None, connect: Callable[[], Coroutine[None, None, BrokerConnection]]
    ) -> BrokerConnection:
        """Several callers may connect at once, and a host may not respond: all of them get the result of one
        attempt."""
        if self.is_closed:
            raise ConnectionFailed("the client is closed: open a new one")
        attempt = self._connecting.get(node_id)
        if attempt is None:
            attempt = self._connecting[node_id] = asyncio.create_task(connect())
            attempt.add_done_callback(lambda done: self._attempt_done(node_id, done))
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise ConnectionFailed("the client is closed: open a new one")
        return attempt.result()

    def _attempt_done(self, node_id: int | None, attempt: asyncio.Task[BrokerConnection]) -> None:
        del self._connecting[node_id]
        if not attempt.cancelled():
            attempt.exception()  # a caller that still waits gets the error itself

    async def _controller(self) -> BrokerConnection:
        """The controller; waits a few seconds for one. BrokerError, ConnectionFailed."""

        async def attempt() -> BrokerConnection:
            await self._metadata([], create=False)
            if self._view.controller_id < 0:
                raise no_leader(ErrorCode.NOT_CONTROLLER, self.bootstrap)
            return await self._node(self._view.controller_id)

        return await self.retry_while(attempt, (ErrorCode.NOT_CONTROLLER,))

    async def leader_of(self, topic: TopicMetadata, index: int) -> BrokerConnection:
        """The leader of a partition, as the topic was when it was looked up. Raises ClientError."""
        return await self._node(topic.leader_of(index))

    async def _metadata(self, topics: list[MetadataRequestTopic] | None, *, create: bool) -> MetadataResponse:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        response = await self._call_any(request, MetadataResponse)
        self._view.update(response)
        return response

    async def retry_while(self, attempt: Callable[[], Awaitable[T]], waits_for: Container[int] = ()) -> T:
        """Calls `attempt` repeatedly for a few seconds: while it is rejected with one of `waits_for`, or
        while the metadata still names a broker that has gone; not where no broker has ever responded."""
        now = asyncio.get_running_loop().time()
        tries = RetryPolicy(now + min(self.timeout_s, _SETTLE_S))
        policy_of_gone = RetryPolicy(now + min(self.timeout_s, _GONE_TIMEOUT_S))
        policy_of_mismatch = RetryPolicy(now + _MISMATCH_TIMEOUT_S)
        while True:
            try:
                return await attempt()
            except BrokerError as error:
                if error.code not in waits_for or not await tries.wait_before_retry():
                    raise
            except ConnectionFailed as error:
                is_mismatch = isinstance(error, ListenerMismatch) and not self._view.addresses
                policy = policy_of_mismatch if is_mismatch else policy_of_gone
                if self._first is None or self.is_closed or not await policy.wait_before_retry():
                    raise
