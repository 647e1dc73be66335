"""A topic on brokers, as a transaction client needs it: appends that are neither lost nor doubled, and reads.

Owns the connections, the producer sessions, and the retries while leaders change.

A session is an idempotent producer with at most one batch in flight: after an error the same batch is sent
again, with the same producer id, epoch and sequence, and the broker responds with its first offset if it has
it. Lock versions only rise, so a batch whose rejection was lost is rejected again. A session with a batch of
unknown outcome is fenced: a marker with a higher epoch is written to the partitions, as at a transaction's
abort, and the brokers reject copies of the batch that arrive later (decision 25).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from lockstep.kafka_client.client import LATEST, Client, TopicMetadata
from lockstep.kafka_client.connection import (
    BrokerConnection,
    BrokerError,
    ClientError,
    ConnectionFailed,
    TimedOut,
    Unsupported,
    only,
)
from lockstep.kafka_client.followed_topic import SILENT_AFTER_S, FollowedTopic, TopicDeleted
from lockstep.kafka_client.retry_policy import RetryPolicy
from lockstep.kafka_client.security import Properties
from lockstep.protocol.cluster_view import RETRIABLE_ERRORS
from lockstep.protocol.config_resources import ResourceType
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.ids import format_uuid
from lockstep.protocol.lock_words import ATOMIC_TAG
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from lockstep.transactions.log import (
    AppendAttempt,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    Chunk,
    Trimmed,
)
from lockstep.transactions.model import RequestId
from lockstep.transactions.records import ProducerIdentity, batch_of, committed_in, refusal_of

FEATURES: Final = ("lockstep.locks", "lockstep.atomic")
FETCH_MAX_BYTES: Final = 4 * 1024 * 1024
REQUEST_TIMEOUT_S: Final = 10.0
LAST_EPOCH: Final = 32_000
"""A session with this producer epoch is not used again. A fence raises the epoch by one, and the largest
epoch, 32,767, is left to markers (decision 37)."""
_ENDS_TRANSACTION_BY_EPOCH: Final = 2
"""The transaction version in which a marker has a higher epoch than the batches that it ends (KIP-890)."""

SESSION_LOST_ERRORS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)
"""Errors of a broker without the session's last epoch and sequence, most likely because they have expired:
whether an earlier copy of the batch is in the log stays unknown."""
PERMANENT_REASONS: Final = frozenset({"LOCK", "EXPECTED_OFFSET"})
"""Reasons for which a batch is rejected at every attempt: lock versions and end offsets only rise."""


class _ProducerSession:
    """An idempotent producer with at most one batch in flight."""

    __slots__ = ("producer_epoch", "producer_id", "sequences")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences: dict[int, int] = {}
        """The sequence of the next record, by partition."""

    def identity(self, partition: int) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch, self.sequences.get(partition, 0))


class RemoteLog:
    """One topic of a cluster."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        client_id: str,
        create: int = 0,
        configs: Mapping[str, str] | None = None,
        properties: Properties | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._properties = properties
        self._name = topic
        self._create = create
        kept = {"retention.ms": "-1", "retention.bytes": "-1"}
        self._configs = {**kept, **(configs or {}), "lockstep.locks": "true"}
        """The configuration of a topic that is created: a rebuild of a state needs the whole log."""
        self._client_id = f"lockstep-transactions-{client_id[:8]}"
        self._client = self._new_client()
        self._followed: FollowedTopic
        self._readers: dict[int, FollowedTopic] = {}
        """One for each partition: a connection responds in order, and a read may wait long."""
        self._sessions: list[_ProducerSession] = []
        """The sessions without a batch in flight."""
        self._unsettled: dict[RequestId, _ProducerSession] = {}
        """The sessions whose batch has an unknown outcome, until it is fenced."""

    async def open(self) -> int:
        """The number of partitions. Raises ClientError: no broker, no such topic, no locks."""
        connection = await self._client.any_broker()
        for feature in FEATURES:
            if connection.features.get(feature, (0, 0))[1] < 1:
                raise Unsupported(
                    f"{connection} does not have the feature {feature}, and would ignore locks: it is no "
                    "Lockstep broker, or an older one"
                )
        self._followed = FollowedTopic(self._client, await self._find_or_create_topic())
        configs = await self._client.configs(ResourceType.TOPIC, self._name)
        mode = {each.name: each.value for each in configs}.get("lockstep.locks")
        if mode != "true":
            raise ClientError(
                f"topic {self._name}: lockstep.locks={mode}, and locks need lockstep.locks=true: "
                f"`lockstep configs alter topic {self._name} lockstep.locks=true`"
            )
        return len(self._followed.topic.partitions)

    @property
    def topic_id(self) -> str:
        """Same as `Log.topic_id`."""
        return format_uuid(self._followed.topic.topic_id)

    async def _find_or_create_topic(self) -> TopicMetadata:
        try:
            return await self._client.topic(self._name)
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if not self._create:
                advice = "there is no such topic; create=N of the client creates it with N partitions"
                raise BrokerError(error.code, error.about, advice) from None
        try:
            return await self._client.create_topic(self._name, partitions=self._create, configs=self._configs)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        return await self._client.topic(
            self._name, create=True
        )  # another client has created it: waits for it

    async def close(self) -> None:
        self._client.close()
        for reader in self._readers.values():
            reader.client.close()

    # -- appends ----------------------------------------------------------------------------------------

    async def append(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """Same as `Log.append`."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        session = await self._take_session(deadline)
        is_free = False
        try:
            found = await self._send_until_decided(session, append, deadline)
            for partition, part in append.parts.items():
                after = session.sequences.get(partition, 0) + len(part.records)
                session.sequences[partition] = after % (1 << 31)
            is_free = True
            return found
        except AppendUnknown:
            self._unsettled[append.request] = session
            raise
        except (AppendRefused, AppendFailed, AppendExpired):
            is_free = True
            raise
        finally:
            if is_free:
                self._sessions.append(session)

    async def _take_session(self, deadline: float) -> _ProducerSession:
        """A session without a batch in flight. Raises AppendExpired, AppendFailed."""
        if self._sessions:
            return self._sessions.pop()
        tries = RetryPolicy(deadline, self._client, SILENT_AFTER_S)
        while True:
            try:
                return _ProducerSession(*await self._client.producer_id())
            except (BrokerError, ConnectionFailed) as error:
                if isinstance(error, BrokerError) and error.code not in RETRIABLE_ERRORS:
                    raise AppendFailed(str(error)) from None
                problem = error
            if not await tries.wait_before_retry():
                raise AppendExpired(f"never sent: {problem}")

    async def _send_until_decided(
        self, session: _ProducerSession, append: AppendAttempt, deadline: float
    ) -> dict[int, int]:
        """Sends the batches until a response decides about them, or until the deadline. Returns the offsets
        of the last records, by partition."""
        now_ms = time.time_ns() // 1_000_000
        topic = self._followed.topic
        batches = {
            partition: batch_of(
                part, append.request, session.identity(partition), topic.name, topic.topic_id, now_ms
            )
            for partition, part in append.parts.items()
        }
        tries, may_be_appended, is_sent = RetryPolicy(deadline, self._client, SILENT_AFTER_S), False, False
        while True:
            problem: Exception
            try:
                connection = await self._connect_to_leader(min(batches))
                is_sent = True
                responses = await self._produce(connection, batches, tries.remaining_s)
                code = next((each.error_code for each in responses.values() if each.error_code), 0)
                if not code:
                    return {
                        partition: response.base_offset + len(append.parts[partition].records) - 1
                        for partition, response in responses.items()
                    }
                problem = _check_responses(topic.name, responses, code, may_be_appended)
            except ClientError as error:
                problem = error
            may_be_appended |= is_sent  # even if rejected: a new leader's log may have it
            is_sent = False
            if not await tries.wait_before_retry():
                if may_be_appended:
                    raise AppendUnknown(f"no response in time: {problem}")
                raise AppendExpired(f"not taken in time: {problem}")
            try:
                await self._followed.refresh()
            except TopicDeleted as error:
                raise (AppendUnknown if may_be_appended else AppendFailed)(str(error)) from None

    async def _produce(
        self, connection: BrokerConnection, batches: Mapping[int, bytes], remaining_s: float
    ) -> dict[int, PartitionProduceResponse]:
        uses_ids = connection.version_of(ProduceRequest) >= 13
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            topic_data=[
                TopicProduceData(
                    name="" if uses_ids else self._followed.topic.name,
                    topic_id=self._followed.topic.topic_id if uses_ids else bytes(16),
                    partition_data=[
                        PartitionProduceData(index=partition, records=batch)
                        for partition, batch in batches.items()
                    ],
                )
            ],
        )
        if len(batches) > 1:
            request.unknown_tags = {ATOMIC_TAG: b""}
        try:
            async with asyncio.timeout(
                remaining_s
            ):  # a timeout here must not close a connection that other calls use
                response = await connection.call(request, ProduceResponse, timeout_s=REQUEST_TIMEOUT_S)
        except TimeoutError:
            raise TimedOut(f"{connection} did not respond in time") from None
        found = {each.index: each for one in response.responses for each in one.partition_responses}
        if found.keys() != batches.keys():
            raise ClientError(f"{connection} responded with other partitions than requested")
        return found

    async def fence(self, append: AppendAttempt, timeout_s: float) -> Mapping[int, int]:
        """Same as `Log.fence`: markers with a higher epoch of the session, then the ends."""
        session = self._unsettled.pop(append.request, None)
        if session is None:
            raise AppendUnknown("it cannot be fenced any more")
        deadline = asyncio.get_running_loop().time() + timeout_s
        tries = RetryPolicy(deadline, self._client, SILENT_AFTER_S)
        partitions = list(append.parts)
        while True:
            try:
                await self._write_fence(session, partitions)
                ends = await self._client.offsets(self._followed.topic, partitions, LATEST)
                break
            except ClientError as error:
                if isinstance(error, BrokerError) and error.code not in RETRIABLE_ERRORS:
                    raise AppendUnknown(f"it cannot be fenced: {error}") from None
                problem = error
            if not await tries.wait_before_retry():
                raise AppendUnknown(f"it could not be fenced in time: {problem}")
            try:
                await self._followed.refresh()
            except TopicDeleted as error:
                raise AppendUnknown(f"it cannot be fenced: {error}") from None
        session.producer_epoch += 1
        session.sequences.clear()
        if session.producer_epoch < LAST_EPOCH:
            self._sessions.append(session)
        return ends

    async def _write_fence(self, session: _ProducerSession, partitions: list[int]) -> None:
        """Writes the fence's marker. Idempotent. Raises BrokerError, ConnectionFailed."""
        marker = WritableTxnMarker(
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch + 1,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=self._followed.topic.name, partition_indexes=partitions)],
            coordinator_epoch=0,
            transaction_version=_ENDS_TRANSACTION_BY_EPOCH,
        )
        connection = await self._connect_to_leader(min(partitions))
        response = await connection.call(
            WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, timeout_s=REQUEST_TIMEOUT_S
        )
        result = only(response.markers, "a fence")
        for each in only(result.topics, "a fence").partitions:
            if each.error_code:
                raise BrokerError(
                    each.error_code, f"a fence in {self._followed.topic.name}-{each.partition_index}"
                )

    # -- reads ------------------------------------------------------------------------------------------

    async def read(self, partition: int, position: int, wait_s: float) -> Chunk:
        """Same as `Log.read`; retries without a limit. Raises Trimmed, ClientError if not retriable."""
        reader = self._readers.get(partition)
        if reader is None:
            if self._client.is_closed:
                raise ClientError("the client is closed: open a new one")
            reader = self._readers[partition] = FollowedTopic(self._new_client(), self._followed.topic)
            await reader.refresh()
        try:
            found = await reader.fetch_committed(partition, position, wait_s, FETCH_MAX_BYTES)
        except BrokerError as error:
            if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise Trimmed(
                    f"{self._name}-{partition}: there is no offset {position} any more: rebuild the state "
                    f"from a snapshot, then resume({partition})"
                ) from None
            raise
        entries, position = committed_in(found.records, partition, position, found.aborted)
        return Chunk(entries, position)

    async def end(self, partition: int) -> int:
        """Same as `Log.end`."""
        return await self._followed.offset(partition)

    # -- connections ------------------------------------------------------------------------------------

    def _new_client(self) -> Client:
        return Client(
            self._bootstrap,
            client_id=self._client_id,
            timeout_s=REQUEST_TIMEOUT_S,
            properties=self._properties,
        )

    async def _connect_to_leader(self, partition: int) -> BrokerConnection:
        return await self._followed.leader(partition)


def _check_responses(
    topic: str, responses: Mapping[int, PartitionProduceResponse], code: int, may_be_appended: bool
) -> BrokerError:
    """Returns a retriable error. Raises AppendRefused, AppendFailed, AppendUnknown for the others.

    `may_be_appended`: an earlier copy of the batch is in a log, or may still arrive.
    """
    failed = next(each for each in responses.values() if each.error_code == code)
    problem = BrokerError(code, f"{topic}, partition {failed.index}", failed.error_message)
    if code in RETRIABLE_ERRORS:
        return problem
    if code in (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_RECORD):
        refusal = refusal_of(code, failed.error_message, failed.index)
        if may_be_appended and not (refusal.reason in PERMANENT_REASONS and not refusal.is_final):
            raise AppendUnknown(f"rejected, and an earlier copy may still come: {refusal.text}")
        raise AppendRefused(refusal)
    if may_be_appended or code in SESSION_LOST_ERRORS:
        raise AppendUnknown(str(problem))
    raise AppendFailed(str(problem))
