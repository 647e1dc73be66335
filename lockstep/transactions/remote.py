"""A topic on brokers, as a transaction client needs it: appends that are neither lost nor doubled, and reads.

Owns the connections, the lanes, and sending again while leaders move.

A session is an idempotent producer with one batch under way: whatever breaks, the same batch goes out again,
under the same producer id, epoch and sequence, and the broker answers with its first offset if it has it.
Marks only rise, so a rejection that was lost stays one. A session with a batch of unknown outcome is fenced:
a marker with a higher epoch goes into the partitions, as at a transaction's abort, and what still lies on
some wire is rejected from then on (decision 25).
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
"""A session that has come so far is not used again: its next fence might be the last there is."""
_ENDS_TRANSACTION_BY_EPOCH: Final = 2
"""The version of a marker that is known again by its epoch (KIP-890)."""

SESSION_LOST_ERRORS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    }
)
"""The broker does not know the session as the session knows itself; its state has expired, most likely."""
PERMANENT_REASONS: Final = frozenset({"LOCK", "EXPECTED_OFFSET"})
"""Reasons why a batch that comes a second time is rejected a second time: marks and ends only rise."""


class _ProducerSession:
    """An idempotent producer with at most one batch under way."""

    __slots__ = ("producer_epoch", "producer_id", "sequences")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.sequences: dict[int, int] = {}
        """By partition: that of the next record."""

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
    ) -> None:
        self._bootstrap = bootstrap
        self._name = topic
        self._create = create
        kept = {"retention.ms": "-1", "retention.bytes": "-1"}
        self._configs = {**kept, **(configs or {}), "lockstep.locks": "true"}
        """Of the topic, where it is created: a state that is rebuilt from the log needs all of it."""
        self._client_id = f"lockstep-transactions-{client_id[:8]}"
        self._client = self._new_client()
        self._followed: FollowedTopic
        self._readers: dict[int, FollowedTopic] = {}
        """By partition: a connection answers in order, and a read may wait long."""
        self._sessions: list[_ProducerSession] = []
        """Those with nothing under way."""
        self._unsettled: dict[RequestId, _ProducerSession] = {}

    async def open(self) -> int:
        """The number of partitions. Raises ClientError: no broker, no such topic, no locks."""
        connection = await self._client.any_broker()
        for feature in FEATURES:
            if connection.features.get(feature, (0, 0))[1] < 1:
                raise Unsupported(
                    f"{connection} does not have the feature {feature}, and would ignore locks: it is no "
                    "Lockstep broker, or an older one"
                )
        self._followed = FollowedTopic(self._client, await self._found())
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

    async def _found(self) -> TopicMetadata:
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
        return await self._client.topic(self._name, create=True)  # somebody else was faster: waits for it

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
            found = await self._sent(session, append, deadline)
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
        """One with nothing under way. Raises AppendExpired."""
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
            if not await tries.again():
                raise AppendExpired(f"never sent: {problem}")

    async def _sent(
        self, session: _ProducerSession, append: AppendAttempt, deadline: float
    ) -> dict[int, int]:
        """The offsets of the last records, after as many tries as it takes."""
        now_ms = time.time_ns() // 1_000_000
        topic = self._followed.topic
        batches = {
            partition: batch_of(
                part, append.request, session.identity(partition), topic.name, topic.topic_id, now_ms
            )
            for partition, part in append.parts.items()
        }
        tries, is_open, is_sent = RetryPolicy(deadline, self._client, SILENT_AFTER_S), False, False
        while True:
            problem: Exception
            try:
                connection = await self._leader(min(batches))
                is_sent = True
                answers = await self._produce(connection, batches, tries.remaining_s)
                code = next((each.error_code for each in answers.values() if each.error_code), 0)
                if not code:
                    return {
                        partition: answer.base_offset + len(append.parts[partition].records) - 1
                        for partition, answer in answers.items()
                    }
                problem = _check_responses(topic.name, answers, code, is_open)
            except ClientError as error:
                problem = error
            is_open |= is_sent  # whoever rejected it may have it in a log that a new leader continues with
            is_sent = False
            if not await tries.again():
                if is_open:
                    raise AppendUnknown(f"no answer in time: {problem}")
                raise AppendExpired(f"not taken in time: {problem}")
            try:
                await self._followed.refresh()
            except TopicDeleted as error:
                raise (AppendUnknown if is_open else AppendFailed)(str(error)) from None

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
            async with asyncio.timeout(remaining_s):  # whose time is over may not close what others wait on
                answer = await connection.call(request, ProduceResponse, timeout_s=REQUEST_TIMEOUT_S)
        except TimeoutError:
            raise TimedOut(f"{connection} did not answer in time") from None
        found = {each.index: each for one in answer.responses for each in one.partition_responses}
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
                await self._mark(session, partitions)
                ends = await self._client.offsets(self._followed.topic, partitions, LATEST)
                break
            except ClientError as error:
                if isinstance(error, BrokerError) and error.code not in RETRIABLE_ERRORS:
                    raise AppendUnknown(f"it cannot be fenced: {error}") from None
                problem = error
            if not await tries.again():
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

    async def _mark(self, session: _ProducerSession, partitions: list[int]) -> None:
        """Raises BrokerError, ConnectionFailed. Doing it twice is doing it once."""
        marker = WritableTxnMarker(
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch + 1,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=self._followed.topic.name, partition_indexes=partitions)],
            coordinator_epoch=0,
            transaction_version=_ENDS_TRANSACTION_BY_EPOCH,
        )
        connection = await self._leader(min(partitions))
        answer = await connection.call(
            WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, timeout_s=REQUEST_TIMEOUT_S
        )
        result = only(answer.markers, "a fence")
        for each in only(result.topics, "a fence").partitions:
            if each.error_code:
                raise BrokerError(
                    each.error_code, f"a fence in {self._followed.topic.name}-{each.partition_index}"
                )

    # -- reads ------------------------------------------------------------------------------------------

    async def read(self, partition: int, position: int, wait_s: float) -> Chunk:
        """Same as `Log.read`; retries for as long as it takes. Raises Trimmed, or ClientError for good."""
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
        return Client(self._bootstrap, client_id=self._client_id, timeout_s=REQUEST_TIMEOUT_S)

    async def _leader(self, partition: int) -> BrokerConnection:
        return await self._followed.leader(partition)


def _check_responses(
    topic: str, answers: Mapping[int, PartitionProduceResponse], code: int, is_open: bool
) -> BrokerError:
    """The problem, where it passes. Raises AppendRefused, AppendFailed, AppendUnknown.

    `is_open`: an earlier copy of the batch may still come.
    """
    failed = next(each for each in answers.values() if each.error_code == code)
    problem = BrokerError(code, f"{topic}, partition {failed.index}", failed.error_message)
    if code in RETRIABLE_ERRORS:
        return problem
    if code in (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_RECORD):
        refusal = refusal_of(code, failed.error_message, failed.index)
        if is_open and not (refusal.reason in PERMANENT_REASONS and not refusal.is_final):
            raise AppendUnknown(f"refused, and an earlier copy may still come: {refusal.text}")
        raise AppendRefused(refusal)
    if is_open or code in SESSION_LOST_ERRORS:
        raise AppendUnknown(str(problem))
    raise AppendFailed(str(problem))
