"""A small Kafka client: topics, produce, fetch, offsets; what the command and the tests of this project need.

Owns: the connections to a cluster's brokers and what their metadata say.

Invariants: a batch is sent once. When a connection breaks before the response, the caller gets the error;
nothing here sends records again, so nothing is doubled. Only questions about a topic that has no leader yet
are asked again, for a few seconds.

Does not: join consumer groups, batch or retry in the background, run transactions. Applications use one of
the Kafka clients for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from lockstep.bootstrap import call_timeout_s, first_to_answer
from lockstep.connection import BrokerConnection, BrokerError, ConnectionFailed, only
from lockstep.protocol.bootstrap import bootstrap_addresses
from lockstep.protocol.config_resources import ConfigOperation, ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.fields import Struct
from lockstep.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from lockstep.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from lockstep.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from lockstep.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from lockstep.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from lockstep.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from lockstep.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from lockstep.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.primitives import Buffer
from lockstep.retry_policy import RetryPolicy
from lockstep.topic import PartitionMetadata as PartitionMetadata
from lockstep.topic import TopicMetadata as TopicMetadata
from lockstep.topic import topic_of

T = TypeVar("T")
Response = TypeVar("Response", bound=Struct)

EARLIEST: Final = -2
LATEST: Final = -1
_SETTLE_S: Final = 5.0
"""How long a topic that was just asked for may take to get its leaders."""
_GONE_TIMEOUT_S: Final = 15.0
"""So long a cluster may name a node that has gone: it is missed for some seconds before it counts as gone."""
_NOT_YET: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""Refusals that come of asking before everything is in place, or of old metadata."""
AWAITING_ELECTION: Final = (
    *_NOT_YET[1:],
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of a partition or a group that has no leader or coordinator yet: one will be elected."""


@dataclass(frozen=True)
class FetchedPartition:
    """The result of one Fetch for one partition: whole batches, the last of them perhaps truncated."""

    index: int
    high_watermark: int
    records: Buffer
    aborted: tuple[AbortedTransaction, ...]
    """What a reader of committed records leaves out; empty for others."""


class Client:
    """Connections to one cluster. Use it as `async with Client("host:9092") as client`."""

    def __init__(self, bootstrap: str, *, client_id: str = "lockstep", timeout_s: float = 30.0) -> None:
        self.bootstrap = bootstrap
        self._bootstrap_addresses = bootstrap_addresses(bootstrap)
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._first: BrokerConnection | None = None
        self._first_since = 0.0
        """When that connection was made."""
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[int, BrokerConnection] = {}
        self._controller_id = -1
        self._connecting: dict[int | None, asyncio.Task[BrokerConnection]] = {}
        """By node; None is any of those that were named, or of those that they named."""
        self.is_closed = False
        self.cluster_id: str | None = None
        """As the metadata last said it; None before any were asked for."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """For good."""
        self.is_closed = True
        for attempt in self._connecting.values():
            attempt.cancel()
        for connection in (self._first, *self._leaders.values()):
            if connection is not None:
                connection.close()

    # -- topics -----------------------------------------------------------------------------------------

    async def topics(self, names: Iterable[str] | None = None) -> list[TopicMetadata]:
        """The topics of these names, or all; sorted by name. BrokerError for one that is not there."""
        requested = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = await self._metadata(requested, create=False)
        return sorted(map(topic_of, _without_errors(answer)), key=lambda topic: topic.name)

    async def topic(self, name: str, *, create: bool = False) -> TopicMetadata:
        """One topic, with a leader for each partition; `create` lets the broker make it if it may.

        Waits a few seconds for leaders. BrokerError.
        """

        async def ask() -> TopicMetadata:
            answer = await self._metadata([MetadataRequestTopic(name=name)], create=create)
            topic = topic_of(only(_without_errors(answer), f"topic {name}"))
            for partition in topic.partitions:
                if partition.error_code:
                    raise BrokerError(partition.error_code, f"{name}, partition {partition.index}")
            return topic

        waits_for = _NOT_YET if create else _NOT_YET[1:]
        return await self.retry_while(ask, waits_for)

    async def create_topic(
        self, name: str, *, partitions: int = -1, replication: int = -1, configs: dict[str, str] | None = None
    ) -> TopicMetadata:
        """Create a topic; -1 leaves a number to the broker. BrokerError."""
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication,
                    configs=[
                        CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
                    ],
                )
            ],
            timeout_ms=int(self.timeout_s * 1000),
        )
        answer = await (await self._controller()).call(request, CreateTopicsResponse)
        for result in answer.topics:
            if result.error_code:
                raise _topic_error(name, result.error_code, result.error_message)
        return await self.retry_while(lambda: self.topic(name), _NOT_YET)

    async def grow_topic(self, name: str, partitions: int) -> tuple[TopicMetadata, str]:
        """Give a topic so many partitions, more than it has; and what the broker warns of. BrokerError."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=int(self.timeout_s * 1000),
        )
        answer = await (await self._controller()).call(request, CreatePartitionsResponse)
        for result in answer.results:
            if result.error_code:
                raise _topic_error(name, result.error_code, result.error_message)
        warning = " ".join(result.error_message or "" for result in answer.results)
        return await self.retry_while(lambda: self.topic(name), _NOT_YET), warning

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records. BrokerError."""
        connection = await self._controller()
        request = DeleteTopicsRequest(timeout_ms=int(self.timeout_s * 1000))
        if connection.version_of(DeleteTopicsRequest) >= 6:
            request.topics = [DeleteTopicState(name=name)]
        else:
            request.topic_names = [name]
        answer = await connection.call(request, DeleteTopicsResponse)
        for result in answer.responses:
            if result.error_code:
                raise _topic_error(name, result.error_code, result.error_message)

    # -- configurations ---------------------------------------------------------------------------------

    async def topic_configs(self, name: str) -> list[DescribeConfigsResourceResult]:
        """The topic's configuration, set and default. BrokerError."""
        return await self.configs(ResourceType.TOPIC, name)

    async def configs(self, kind: ResourceType, name: str) -> list[DescribeConfigsResourceResult]:
        """The configuration of a topic, a group or a broker ("" is what all have in common). BrokerError."""
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            ]
        )
        connection = await self._configured_by(kind, name)
        result = only((await connection.call(request, DescribeConfigsResponse)).results, name)
        if result.error_code:
            raise _config_error(kind, name, result.error_code, result.error_message)
        return list(result.configs)

    async def alter_configs(
        self,
        kind: ResourceType,
        name: str,
        requested: Mapping[str, str],
        deleted: Iterable[str] = (),
        *,
        validate_only: bool = False,
    ) -> None:
        """Set some configurations, take others back to their defaults. BrokerError."""
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        *(AlterableConfig(name=key, value=value) for key, value in requested.items()),
                        *(
                            AlterableConfig(name=key, config_operation=ConfigOperation.DELETE, value=None)
                            for key in deleted
                        ),
                    ],
                )
            ],
            validate_only=validate_only,
        )
        connection = await self._configured_by(kind, name)
        result = only((await connection.call(request, IncrementalAlterConfigsResponse)).responses, name)
        if result.error_code:
            raise _config_error(kind, name, result.error_code, result.error_message)

    async def _configured_by(self, kind: ResourceType, name: str) -> BrokerConnection:
        """A broker answers for itself; for everything else the controller does."""
        await self._metadata([], create=False)
        if kind == ResourceType.BROKER and name.isdecimal():
            return await self._node(int(name))
        return await self._controller()

    # -- records ----------------------------------------------------------------------------------------

    async def producer_id(self) -> tuple[int, int]:
        """(id, epoch) of a new idempotent producer: a batch numbered by them may be sent again.
        BrokerError."""
        request = InitProducerIdRequest(transactional_id=None)
        answer = await (await self._any()).call(request, InitProducerIdResponse)
        if answer.error_code:
            raise BrokerError(answer.error_code, "a producer id")
        return answer.producer_id, answer.producer_epoch

    async def produce(self, topic: TopicMetadata, partition: int, batch: Buffer, *, acks: int = -1) -> int:
        """Append one record batch; its base offset, or -1 with `acks` 0. BrokerError, ConnectionFailed.

        `acks`: -1 all, 1 the leader, 0 do not wait.
        """
        connection = await self.leader_of(topic, partition)
        uses_ids = connection.version_of(ProduceRequest) >= 13
        request = ProduceRequest(
            acks=acks,
            timeout_ms=int(self.timeout_s * 1000),
            topic_data=[
                TopicProduceData(
                    name="" if uses_ids else topic.name,
                    topic_id=topic.topic_id if uses_ids else bytes(16),
                    partition_data=[PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )
        if acks == 0:
            connection.send(request)
            await connection.drain()
            return -1
        answer = await connection.call(request, ProduceResponse)
        about = f"{topic.name}, partition {partition}"
        result = only((each for one in answer.responses for each in one.partition_responses), about)
        if result.error_code:
            message = result.error_message
            raise BrokerError(result.error_code, f"{topic.name}, partition {partition}", message)
        return result.base_offset

    async def fetch(
        self,
        topic: TopicMetadata,
        offsets: dict[int, int],
        *,
        max_wait_ms: int = 500,
        max_bytes: int = 8 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        committed: bool = False,
    ) -> list[FetchedPartition]:
        """Read from the given offset of each partition; all leaders are asked at once.

        `committed`: nothing of open transactions; the reader leaves out aborted ones. Waits up
        to `max_wait_ms` where there is nothing. BrokerError (OFFSET_OUT_OF_RANGE among others).
        """
        by_leader: dict[int, list[int]] = {}
        leaders = {partition.index: partition.leader for partition in topic.partitions}
        for index in offsets:
            if index not in leaders:  # a broker whose metadata lag
                about = f"{topic.name}, partition {index}"
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about)
            by_leader.setdefault(leaders[index], []).append(index)

        async def ask(indexes: list[int]) -> list[FetchedPartition]:
            connection = await self.leader_of(topic, indexes[0])
            uses_ids = connection.version_of(FetchRequest) >= 13
            request = FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=int(committed),
                topics=[
                    FetchTopic(
                        topic="" if uses_ids else topic.name,
                        topic_id=topic.topic_id if uses_ids else bytes(16),
                        partitions=[
                            FetchPartition(
                                partition=index,
                                fetch_offset=offsets[index],
                                partition_max_bytes=partition_max_bytes,
                            )
                            for index in indexes
                        ],
                    )
                ],
            )
            timeout_s = self.timeout_s + max_wait_ms / 1000
            answer = await connection.call(request, FetchResponse, timeout_s=timeout_s)
            if answer.error_code:
                raise BrokerError(answer.error_code, f"fetch from {topic.name}")
            return [_unpack(topic, data) for response in answer.responses for data in response.partitions]

        if len(by_leader) == 1:  # without a task of its own, which would answer some turns of the loop later
            (indexes,) = by_leader.values()
            return await ask(indexes)
        return await _all_of([ask(indexes) for indexes in by_leader.values()])

    async def offsets(
        self, topic: TopicMetadata, partitions: Iterable[int], timestamp: int, *, committed: bool = False
    ) -> dict[int, int]:
        """For each partition the first offset not older than `timestamp` (ms), or EARLIEST or LATEST.

        `committed`: LATEST is before what open transactions have written.
        """
        found: dict[int, int] = {}
        for index in partitions:
            connection = await self.leader_of(topic, index)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(committed),
                topics=[
                    ListOffsetsTopic(
                        name=topic.name,
                        partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp)],
                    )
                ],
            )
            answer = await connection.call(request, ListOffsetsResponse)
            about = f"{topic.name}, partition {index}"
            result = only((each for one in answer.topics for each in one.partitions), about)
            if result.error_code:
                raise BrokerError(result.error_code, f"{topic.name}, partition {index}")
            found[index] = result.offset
        return found

    # -- connections ------------------------------------------------------------------------------------

    async def brokers(self) -> list[BrokerConnection]:
        """A connection to each broker of the cluster."""
        await self._metadata([], create=False)
        return [await self._node(node_id) for node_id in self._addresses]

    def suspect(self, for_s: float = 0.0) -> None:
        """The broker asked for metadata may be partitioned from the others: ask another one from now on,
        unless this one was chosen less than `for_s` ago: several callers may suspect one broker."""
        if self._first is not None and asyncio.get_running_loop().time() - self._first_since >= for_s:
            self._first.close()

    async def any_broker(self) -> BrokerConnection:
        """A connection to one that is known, the same as long as it holds. ConnectionFailed."""
        return await self._any()

    async def coordinator(self, group: str) -> BrokerConnection:
        """The broker that looks after a consumer group; waits a few seconds for one. BrokerError."""

        async def ask() -> BrokerConnection:
            request = FindCoordinatorRequest(coordinator_keys=[group])
            answer = await self._call_any(request, FindCoordinatorResponse)
            found = only(answer.coordinators, f"group {group}")
            if found.error_code:
                raise BrokerError(found.error_code, f"group {group}", found.error_message)
            self._addresses[found.node_id] = (found.host, found.port)
            return await self._node(found.node_id)

        return await self.retry_while(ask, (ErrorCode.COORDINATOR_NOT_AVAILABLE,))

    async def _any(self) -> BrokerConnection:
        if self._first is not None and self._first.is_open:
            return self._first
        return await self._share_attempt(None, self._connect_first)

    async def _connect_first(self) -> BrokerConnection:
        addresses = self._all_addresses
        if self._first is not None:  # the one that has failed may hang: those behind it come first
            failed_address = (self._first.host, self._first.port)
            after = addresses.index(failed_address) + 1 if failed_address in addresses else 0
            addresses = [*addresses[after:], *addresses[:after]]
        self._first = await first_to_answer(addresses, self._connect, self.timeout_s)
        self._first_since = asyncio.get_running_loop().time()
        return self._first

    @property
    def _all_addresses(self) -> list[tuple[str, int]]:
        return list(dict.fromkeys([*self._bootstrap_addresses, *self._addresses.values()]))

    async def _connect(self, host: str, port: int, within_s: float | None = None) -> BrokerConnection:
        return await BrokerConnection.open(
            host, port, client_id=self._client_id, timeout_s=self.timeout_s, open_timeout_s=within_s
        )

    async def _call_any(self, request: Struct, answer: type[Response]) -> Response:
        """Ask what any broker knows: one that goes away or is silent meanwhile is left for the next."""
        loop = asyncio.get_running_loop()
        deadline, others = loop.time() + self.timeout_s, len(self._all_addresses)
        while True:
            others -= 1
            connection = await self._any()
            try:
                timeout_s = call_timeout_s(deadline - loop.time(), others)
                return await connection.call(request, answer, timeout_s=timeout_s)
            except ConnectionFailed:
                if others <= 0 or loop.time() >= deadline:
                    raise

    async def _node(self, node_id: int) -> BrokerConnection:
        connection = self._leaders.get(node_id)
        if connection is not None and connection.is_open:
            return connection
        address = self._addresses.get(node_id)
        if address is None:
            reason = None if node_id < 0 else f"there is no such node, known are {sorted(self._addresses)}"
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"node {node_id}", reason)

        async def connect() -> BrokerConnection:
            # the cluster may still name a node that has gone: as long as a call may take, and no longer
            within_s = call_timeout_s(self.timeout_s, len(self._all_addresses) - 1)
            self._leaders[node_id] = await self._connect(*address, within_s)
            return self._leaders[node_id]

        return await self._share_attempt(node_id, connect)

    async def _share_attempt(
        self, node_id: int | None, connect: Callable[[], Coroutine[None, None, BrokerConnection]]
    ) -> BrokerConnection:
        """Many may ask at once, and a host may be silent: all hear what becomes of one attempt."""
        if self.is_closed:
            raise ConnectionFailed("the client is closed")
        attempt = self._connecting.get(node_id)
        if attempt is None:
            attempt = self._connecting[node_id] = asyncio.create_task(connect())
            attempt.add_done_callback(lambda done: self._attempt_done(node_id, done))
        await asyncio.wait([attempt])
        if attempt.cancelled():
            raise ConnectionFailed("the client is closed")
        return attempt.result()

    def _attempt_done(self, node_id: int | None, attempt: asyncio.Task[BrokerConnection]) -> None:
        del self._connecting[node_id]
        if not attempt.cancelled():
            attempt.exception()  # whoever waited hears of it, if anybody still does

    async def _controller(self) -> BrokerConnection:
        await self._metadata([], create=False)
        return await self._node(self._controller_id) if self._controller_id >= 0 else await self._any()

    async def leader_of(self, topic: TopicMetadata, index: int) -> BrokerConnection:
        """The leader of a partition, as the topic was when it was looked up. Raises ClientError."""
        for partition in topic.partitions:
            if partition.index == index:
                return await self._node(partition.leader)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name}, partition {index}")

    async def _metadata(self, topics: list[MetadataRequestTopic] | None, *, create: bool) -> MetadataResponse:
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        answer = await self._call_any(request, MetadataResponse)
        self._addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._controller_id = answer.controller_id
        self.cluster_id = answer.cluster_id
        return answer

    async def retry_while(self, ask: Callable[[], Awaitable[T]], waits_for: tuple[ErrorCode, ...] = ()) -> T:
        """`ask`, again and again, for a few seconds: while it is refused with one of `waits_for`, or as long
        as the cluster still names a broker that has gone; not where none has ever answered."""
        now = asyncio.get_running_loop().time()
        tries = RetryPolicy(now + min(self.timeout_s, _SETTLE_S))
        policy_of_gone = RetryPolicy(now + min(self.timeout_s, _GONE_TIMEOUT_S))
        while True:
            try:
                return await ask()
            except BrokerError as error:
                if error.code not in waits_for or not await tries.again():
                    raise
            except ConnectionFailed:
                if self._first is None or self.is_closed or not await policy_of_gone.again():
                    raise


def _without_errors(answer: MetadataResponse) -> list[MetadataResponseTopic]:
    for topic in answer.topics:
        if topic.error_code:
            raise _topic_error(topic.name or "", topic.error_code)
    return answer.topics


def _topic_error(name: str, code: int, message: str | None = None) -> BrokerError:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        message = "there is no such topic"
    return BrokerError(code, f"topic {name}", message)


def _config_error(kind: ResourceType, name: str, code: int, message: str | None) -> BrokerError:
    if kind == ResourceType.TOPIC:
        return _topic_error(name, code, message)
    return BrokerError(code, f"broker {name}".strip() if kind == ResourceType.BROKER else name, message)


async def _all_of(calls: Sequence[Coroutine[Any, Any, list[T]]]) -> list[T]:
    """The results of all of them. None is left running for a next call to wait behind, also where one
    fails."""
    found: list[T] = []
    for part in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(part, BaseException):
            raise part
        found += part
    return found


def _unpack(topic: TopicMetadata, data: PartitionData) -> FetchedPartition:
    if data.error_code:
        raise BrokerError(data.error_code, f"{topic.name}, partition {data.partition_index}")
    records = b"" if data.records is None else data.records
    assert not isinstance(records, list), "what was decoded is one buffer"
    aborted = tuple(data.aborted_transactions or ())
    return FetchedPartition(data.partition_index, data.high_watermark, records, aborted)
