"""A small Kafka client: topics, produce, fetch, offsets; what the command and the tests of this project need.

Invariants: a batch is sent once. When a connection breaks before the response, the caller gets the error;
nothing here sends records again, so nothing is doubled. Only requests about a topic that has no leader yet
are retried, for a few seconds.

Does not: join consumer groups, batch or retry in the background, run transactions. Applications use one of
the Kafka clients for those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from lockstep.kafka_client.cluster_connections import NO_LEADER, ClusterConnections, no_leader
from lockstep.kafka_client.connection import BrokerConnection, BrokerError, ConnectionFailed, only
from lockstep.protocol.cluster_view import LEADERSHIP_ERRORS, NEW_TOPIC_ERRORS, topics_of
from lockstep.protocol.cluster_view import PartitionMetadata as PartitionMetadata
from lockstep.protocol.cluster_view import TopicMetadata as TopicMetadata
from lockstep.protocol.config_resources import ConfigOperation, ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
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
from lockstep.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from lockstep.protocol.messages.fetch import (
    AbortedTransaction,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
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
    MetadataRequestTopic,
    MetadataResponse,
)
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.primitives import Buffer

T = TypeVar("T")

EARLIEST: Final = -2
LATEST: Final = -1
_TOPIC_REASONS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "there is no such topic; `lockstep topics list` shows those there are"
    ),
    **NO_LEADER,
}

_DAMAGED: Final = "the record is damaged on the broker's disk; see `lockstep cluster status`"


@dataclass(frozen=True)
class FetchedPartition:
    """The result of one Fetch for one partition: whole batches, the last of them perhaps truncated."""

    index: int
    high_watermark: int
    records: Buffer
    aborted: tuple[AbortedTransaction, ...]
    """The aborted transactions that a reader of committed records leaves out; empty for others."""


class Client(ClusterConnections):
    """Topics, records and offsets of one cluster. Use it as `async with Client("host:9092") as client`."""

    # -- topics -----------------------------------------------------------------------------------------

    async def topics(self, names: Iterable[str] | None = None) -> list[TopicMetadata]:
        """The topics of these names, or all; sorted by name. BrokerError for one that is not there, and for
        all where no node is the controller for a few seconds."""
        if names is None:
            response = await self.retry_while(self._all_topics, (ErrorCode.NOT_CONTROLLER,))
        else:
            requested = [MetadataRequestTopic(name=name) for name in names]
            response = await self._metadata(requested, create=False)
        return sorted(topics_of(response, _TOPIC_REASONS), key=lambda topic: topic.name)

    async def _all_topics(self) -> MetadataResponse:
        """A broker that has known no controller since its start closes the connection of this request:
        no error reports that a list may be incomplete. It responds to one for no topic."""
        try:
            return await self._metadata(None, create=False)
        except ConnectionFailed:
            if (await self._metadata([], create=False)).controller_id >= 0:
                raise
            raise no_leader(ErrorCode.NOT_CONTROLLER, self.bootstrap) from None

    async def topic(self, name: str, *, create: bool = False) -> TopicMetadata:
        """One topic, with a leader for each partition; `create` lets the broker make it if it may.

        Waits a few seconds for leaders. BrokerError.
        """

        async def attempt() -> TopicMetadata:
            response = await self._metadata([MetadataRequestTopic(name=name)], create=create)
            topic = only(topics_of(response, _TOPIC_REASONS), f"topic {name}")
            for partition in topic.partitions:
                if code := partition.error_code:
                    raise BrokerError(code, f"{name}, partition {partition.index}", NO_LEADER.get(code))
            return topic

        waits_for = NEW_TOPIC_ERRORS if create else LEADERSHIP_ERRORS
        return await self.retry_while(attempt, waits_for)

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
        response = await (await self._controller()).call(request, CreateTopicsResponse)
        for result in response.topics:
            if result.error_code:
                raise _topic_error(name, result.error_code, result.error_message)
        return await self.retry_while(lambda: self.topic(name), NEW_TOPIC_ERRORS)

    async def grow_topic(self, name: str, partitions: int) -> tuple[TopicMetadata, str]:
        """Grows a topic to this number of partitions; returns the broker's warning. Raises BrokerError."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=int(self.timeout_s * 1000),
        )
        response = await (await self._controller()).call(request, CreatePartitionsResponse)
        for result in response.results:
            if result.error_code:
                raise _topic_error(name, result.error_code, result.error_message)
        warning = " ".join(result.error_message or "" for result in response.results)
        return await self.retry_while(lambda: self.topic(name), NEW_TOPIC_ERRORS), warning

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and all its records. BrokerError."""
        connection = await self._controller()
        request = DeleteTopicsRequest(timeout_ms=int(self.timeout_s * 1000))
        if connection.version_of(DeleteTopicsRequest) >= 6:
            request.topics = [DeleteTopicState(name=name)]
        else:
            request.topic_names = [name]
        response = await connection.call(request, DeleteTopicsResponse)
        for result in response.responses:
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

    # -- users ------------------------------------------------------------------------------------------

    async def scram_users(self) -> dict[str, list[tuple[int, int]]]:
        """User -> number and iterations of each SCRAM mechanism. BrokerError."""
        await self._metadata([], create=False)
        connection = await self._controller()
        request = DescribeUserScramCredentialsRequest(users=None)
        response = await connection.call(request, DescribeUserScramCredentialsResponse)
        if response.error_code:
            raise BrokerError(response.error_code, "users", response.error_message)
        return {
            each.user: [(info.mechanism, info.iterations) for info in each.credential_infos]
            for each in response.results
        }

    async def set_scram_user(
        self, user: str, mechanism: int, iterations: int, salt: bytes, salted_password: bytes
    ) -> None:
        """Set a user's credential of one SCRAM mechanism. BrokerError."""
        credential = ScramCredentialUpsertion(
            name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted_password
        )
        await self._alter_user(user, AlterUserScramCredentialsRequest(upsertions=[credential]))

    async def delete_scram_user(self, user: str, mechanism: int) -> None:
        """Delete a user's credential of one SCRAM mechanism. BrokerError."""
        credential = ScramCredentialDeletion(name=user, mechanism=mechanism)
        await self._alter_user(user, AlterUserScramCredentialsRequest(deletions=[credential]))

    async def _alter_user(self, user: str, request: AlterUserScramCredentialsRequest) -> None:
        await self._metadata([], create=False)
        connection = await self._controller()
        response = await connection.call(request, AlterUserScramCredentialsResponse)
        result = only(response.results, f"user {user}")
        if result.error_code:
            raise BrokerError(result.error_code, f"user {user}", result.error_message)

    async def _configured_by(self, kind: ResourceType, name: str) -> BrokerConnection:
        """Requests about one broker go to it, all others to the controller."""
        await self._metadata([], create=False)
        if kind == ResourceType.BROKER and name.isdecimal():
            return await self._node(int(name))
        return await self._controller()

    # -- records ----------------------------------------------------------------------------------------

    async def producer_id(self) -> tuple[int, int]:
        """(id, epoch) of a new idempotent producer: a batch numbered by them may be sent again.
        BrokerError."""
        request = InitProducerIdRequest(transactional_id=None)
        response = await (await self._any()).call(request, InitProducerIdResponse)
        if response.error_code:
            is_denied = response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            reason = "this client may not write to any topic (WRITE on a TOPIC)" if is_denied else None
            raise BrokerError(response.error_code, "a producer id", reason)
        return response.producer_id, response.producer_epoch

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
        response = await connection.call(request, ProduceResponse)
        about = f"{topic.name}, partition {partition}"
        result = only((each for one in response.responses for each in one.partition_responses), about)
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
        """Reads from the given offset of each partition; all leaders get their requests at once.

        `committed`: nothing of open transactions; the reader leaves out aborted ones. Waits up
        to `max_wait_ms` where there is nothing. BrokerError (OFFSET_OUT_OF_RANGE among others).
        """
        by_leader: dict[int, list[int]] = {}
        for index in offsets:
            by_leader.setdefault(topic.leader_of(index), []).append(index)

        async def attempt(indexes: list[int]) -> list[FetchedPartition]:
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
            response = await connection.call(request, FetchResponse, timeout_s=timeout_s)
            if response.error_code:
                raise BrokerError(response.error_code, f"fetch from {topic.name}")
            found = [data for each in response.responses for data in each.partitions]
            return [_unpack(topic, data, offsets.get(data.partition_index)) for data in found]

        if len(by_leader) == 1:  # without a task of its own, which would respond some iterations later
            (indexes,) = by_leader.values()
            return await attempt(indexes)
        return await _all_of([attempt(indexes) for indexes in by_leader.values()])

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
            response = await connection.call(request, ListOffsetsResponse)
            about = f"{topic.name}, partition {index}"
            result = only((each for one in response.topics for each in one.partitions), about)
            if result.error_code:
                raise BrokerError(result.error_code, f"{topic.name}, partition {index}")
            found[index] = result.offset
        return found


def _topic_error(name: str, code: int, message: str | None = None) -> BrokerError:
    return BrokerError(code, f"topic {name}", _TOPIC_REASONS.get(code, message))


def _config_error(kind: ResourceType, name: str, code: int, message: str | None) -> BrokerError:
    if kind == ResourceType.TOPIC:
        return _topic_error(name, code, message)
    about = f"broker {name}".strip() if kind == ResourceType.BROKER else name
    return BrokerError(code, about, NO_LEADER.get(code, message))


async def _all_of(calls: Sequence[Coroutine[Any, Any, list[T]]]) -> list[T]:
    """The results of all of them. None is left running for a next call to wait behind, also where one
    fails."""
    found: list[T] = []
    for part in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(part, BaseException):
            raise part
        found += part
    return found


def _unpack(topic: TopicMetadata, data: PartitionData, offset: int | None) -> FetchedPartition:
    about = f"{topic.name}, partition {data.partition_index}"
    if data.error_code == ErrorCode.CORRUPT_MESSAGE:
        raise BrokerError(data.error_code, f"{about}, offset {offset}", _DAMAGED)
    if data.error_code:
        raise BrokerError(data.error_code, about)
    records = b"" if data.records is None else data.records
    assert not isinstance(records, list), "what was decoded is one buffer"
    aborted = tuple(data.aborted_transactions or ())
    return FetchedPartition(data.partition_index, data.high_watermark, records, aborted)
