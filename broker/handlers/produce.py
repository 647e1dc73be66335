"""Produce: append each partition's batch, answer when everything that was appended is committed.

Versions 3 to 13 are served and 0 to 13 advertised: old librdkafka takes a lowest version of 3 for "no
compression" (KAFKA-18659). 7 allows zstd (KIP-110); 8 carries an error's text, and which records are to blame
(KIP-467); 10 names the leader to whom it is not here (KIP-951); 11 knows TRANSACTION_ABORTABLE, 12 adds
partitions to the transaction (KIP-890, `broker/transactions/gate.py`); 13 names topics by id (KIP-516).
acks=1 is answered like acks=all; acks=0 has no response, but its place among the unanswered until the commit,
so that its producer is held back like others; a refusal closes the connection as Kafka does. Transactions may
use it, too; locks may not, since nobody would hear of a refusal. What takes more than a turn of the loop is
gone on with in later ones (`produce_turns.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from broker.append import Appended
from broker.batch_checks import AppendLimits
from broker.context import Answer, ClientContext, ConnectionRefused, Deferred
from broker.handlers.atomic_produce import Place, append_atomically, is_atomic
from broker.handlers.produce_turns import ProduceTurns
from broker.handlers.refused_batches import note_refused
from broker.locks.checks import require_no_locks
from broker.metadata import Topic, TopicPartition
from broker.partition_checks import known_leader
from broker.refused import RecordsRefused, Refused
from broker.settings.topic_config import LOCKS_KEPT
from broker.staging.writing import StagedAppenders
from broker.transactions.gate import Held, HeldBatch, Outcome
from broker.turns import done_in_turn
from protocol.api import ApiKey, RequestHeader
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.staged_messages import staged_query
from storage.group import LogGroup
from storage.partition import PartitionLog
from storage.types import Buffer

API_KEY: Final = ApiKey.PRODUCE
VERSIONS: Final = (3, 13)
LEADERS_SINCE: Final = 10
TOPIC_IDS_SINCE: Final = 13
VALID_ACKS: Final = (-1, 0, 1)
MOST_TEXT: Final = 5_000
"""Characters of a refusal: the longest names of topic and lock, escaped, and what is said of them."""
MOST_NAMED: Final = 10_000
"""LIMIT. Of records that one answer names, with some hundred bytes each: a small batch may expand to many. Of
one with more the whole is to blame, and its text says how many."""
SHOWN: Final = 3
"""So many of them Kafka has in the text, too."""


FROM_THE_TAIL = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Refusals that rest on batches which may not be committed yet: they are said once those are."""


class UnacknowledgedRefusal(ConnectionRefused):
    """A batch sent with acks=0 was refused: closing the connection is the only way to say so."""

    is_everybodys = False  # each of them is a loss, and there is no other trace of it


def handle(context: ClientContext, header: RequestHeader, request: ProduceRequest) -> Answer:
    """Serve one Produce request; the response waits for the commit of what it appended."""
    is_unanswered = request.acks == 0
    services = context.services
    transactional_id = request.transactional_id
    if transactional_id is None:
        produced = _Produced(context, header.api_version, services.appenders, is_unanswered)
    elif (query := staged_query(transactional_id)) is not None:
        staged = StagedAppenders(services.appenders, services.staged_ends, transactional_id, query)
        produced = _Produced(context, header.api_version, staged, is_unanswered)
    else:
        gated = services.gate.appenders(transactional_id)
        produced = _Gated(context, header.api_version, gated, is_unanswered)
    try:
        if request.acks not in VALID_ACKS:
            problem = f"acks must be -1, 0 or 1, not {request.acks}"
            raise Refused(ErrorCode.INVALID_REQUIRED_ACKS, problem)
        if request.unknown_tags and is_atomic(request):
            topics = produced.together(request.topic_data)
        else:
            topics = []
            left = produced.first_turn(request.topic_data, topics)
            if left is not None:
                return _in_later_turns(produced, request, topics, left)
    except Refused as error:
        topics = [produced.refuse_topic(topic, error) for topic in request.topic_data]
        produced.rest_all(topics)
    response = ProduceResponse(responses=topics)
    if is_unanswered:
        if produced.refusal is not None:
            raise UnacknowledgedRefusal(str(produced.refusal))
        return _Unanswered(produced) if produced.held or produced.resting else None
    if produced.is_moved:
        produced.tell_leaders(response)
    if produced.held:
        return _LaterAnswer(response, produced)
    if not produced.resting:
        return response
    return _Answer(response, produced)


def _in_later_turns(
    produced: _Produced, request: ProduceRequest, topics: list[TopicProduceResponse], steps: Iterator[None]
) -> Deferred:
    """Go on when the others have had theirs, from a copy of what is left."""
    for topic in request.topic_data:
        for each in topic.partition_data:
            if each.records is not None:
                each.records = bytes(each.records)
    produced.held += 1
    produced.is_spread = True
    answer: Deferred
    if produced.is_unanswered:
        answer = _Unanswered(produced)
    else:
        answer = _LaterAnswer(ProduceResponse(responses=topics), produced)
    return ProduceTurns(produced.context.services.turns, steps, produced, answer)


class _AppendPath(Protocol):
    def append(
        self, partition: PartitionLog, records: Buffer, limits: AppendLimits, produce_version: int
    ) -> Appended:
        """Raises Refused, or Held where a transactional batch waits."""


class _Appenders(Protocol):
    def __getitem__(self, number: int) -> _AppendPath:
        """The way into a data group."""


class _Produced:
    """What one request has done so far."""

    __slots__ = (
        "appenders",
        "context",
        "held",
        "is_moved",
        "is_spread",
        "is_unanswered",
        "late",
        "nameable",
        "produce_version",
        "refusal",
        "resting",
        "when_settled",
    )

    def __init__(
        self, context: ClientContext, produce_version: int, appenders: _Appenders, is_unanswered: bool
    ) -> None:
        self.context = context
        self.is_unanswered = is_unanswered
        self.produce_version = produce_version
        self.appenders = appenders
        self.resting: dict[LogGroup, list[PartitionProduceResponse]] = {}
        """What is said, by the group whose commit it must wait for."""
        self.held = 0
        """Batches that wait for a transaction's coordinator; those left for later turns are one of them."""
        self.when_settled: Callable[[], None] | None = None
        """Called whenever one waits no more, and at the end of each later turn."""
        self.is_spread = False
        """It goes on in later turns."""
        self.late: Refused | None = None
        """Why no more is appended."""
        self.refusal: Refused | None = None
        self.nameable = MOST_NAMED
        """So many more records may be named."""
        self.is_moved = False
        """A partition is not led here: the response says who leads it (KIP-951)."""

    def first_turn(
        self, wanted: list[TopicProduceData], topics: list[TopicProduceResponse]
    ) -> Iterator[None] | None:
        """Append what the request has and put into `topics` what is said of it; the steps left, if any."""
        if len(wanted) == 1 and len(wanted[0].partition_data) == 1:  # as most: never spread, no clock is read
            of_topic = wanted[0]
            topics.append(_of_topic(of_topic, [self.batch(of_topic, of_topic.partition_data[0])]))
            return None
        steps = self.steps(wanted, topics)
        return None if done_in_turn(steps) else steps

    def steps(self, wanted: list[TopicProduceData], topics: list[TopicProduceResponse]) -> Iterator[None]:
        """Append what the request has, a batch each step, and put into `topics` what is said of it."""
        for of_topic in wanted:
            answers: list[PartitionProduceResponse] = []
            topics.append(_of_topic(of_topic, answers))
            for data in of_topic.partition_data:
                yield
                answers.append(self.batch(of_topic, data))
                data.records = None  # not to be kept for later turns

    def batch(self, of_topic: TopicProduceData, data: PartitionProduceData) -> PartitionProduceResponse:
        """Append one batch to what its topic is now: it may have gone since the last turn."""
        try:
            topic = self.find(of_topic)
        except Refused as refusal:
            return self.refuse(of_topic, data, refusal)
        if self.late is None:
            response = self.partition(topic, of_topic, data)
            if self.is_spread and response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self.give_up("a batch before it could not be appended")  # to hear at once what is sent behind
            return response
        return self.refuse(of_topic, data, self.late)

    def turned(self, is_done: bool) -> None:
        """A later turn has ended, with the last batch or not."""
        if is_done:
            self.held -= 1
        if self.when_settled is not None:
            self.when_settled()

    def give_up(self, why: str) -> None:
        """Append no more."""
        self.late = self.late or Refused(ErrorCode.REQUEST_TIMED_OUT, why)

    def find(self, data: TopicProduceData) -> Topic:
        """The topic that is meant. Raises Refused."""
        cluster = self.context.services.cluster
        if self.produce_version >= TOPIC_IDS_SINCE:
            topic = cluster.topic_by_id(data.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            topic = cluster.topic(data.name)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic is None:
            raise Refused(unknown, unknown.message)
        if topic.is_internal:
            # Kafka lets a client named __admin_client write here; what it writes would be replayed at once.
            problem = f"Cannot append to internal topic {topic.name}"
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        return topic

    def partition(
        self, topic: Topic, of_topic: TopicProduceData, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        """Append one partition's batch."""
        try:
            partition, records = _place(topic, data)
            group = partition.group
            if not group.is_leader:
                raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the partition")
            if self.is_unanswered and topic.config.lockstep_locks == LOCKS_KEPT:
                require_no_locks(records, topic.config.max_message_bytes)
            appended = self.appenders[group.group_id].append(
                partition.log, records, topic.config, self.produce_version
            )
        except Refused as refusal:
            refused = self.refuse(of_topic, data, refusal, topic.name)
            if refusal.error in FROM_THE_TAIL:
                self.wait_for(group, refused)
            return refused
        except Held as held:
            return self.later(partition, held.batch)
        response = _at(data, partition, appended)
        self.wait_for(group, response)
        return response

    def together(self, wanted: list[TopicProduceData]) -> list[TopicProduceResponse]:
        """Append the batches of all partitions as one. Raises Refused for all of them."""
        places: list[Place] = []
        for of_topic in wanted:
            topic = self.find(of_topic)
            places += [(topic, *_place(topic, each)) for each in of_topic.partition_data]
        try:
            appended = append_atomically(places, self.context.services.appenders, self.produce_version)
        except Refused as refusal:
            if refusal.error in FROM_THE_TAIL:
                self.resting[places[0][1].group] = []  # see `rest_all`
            raise
        asked = [each for data in wanted for each in data.partition_data]
        triples = zip(asked, places, appended, strict=True)
        told = [_at(each, partition, done) for each, (_, partition, _), done in triples]
        self.resting[places[0][1].group] = told
        answers = iter(told)
        return [_of_topic(data, [next(answers) for _ in data.partition_data]) for data in wanted]

    def later(self, partition: TopicPartition, batch: HeldBatch) -> PartitionProduceResponse:
        """The batch waits, which those of a transactional id may."""
        raise NotImplementedError

    def rest_all(self, topics: list[TopicProduceResponse]) -> None:
        """All of this rests on what was waited for before it was said."""
        for told in self.resting.values():
            told += [each for topic in topics for each in topic.partition_responses]

    def wait_for(self, group: LogGroup, told: PartitionProduceResponse) -> None:
        """This rests on what is appended to this group."""
        others = self.resting.get(group)
        if others is None:
            self.resting[group] = [told]
        else:
            others.append(told)

    def refuse_topic(self, data: TopicProduceData, refusal: Refused) -> TopicProduceResponse:
        """The same refusal for each of the topic's partitions."""
        return _of_topic(data, [self.refuse(data, each, refusal) for each in data.partition_data])

    def refuse(
        self, of_topic: TopicProduceData, data: PartitionProduceData, refusal: Refused, topic_name: str = ""
    ) -> PartitionProduceResponse:
        """The error response of a batch that is not appended; the batch is remembered as refused."""
        services = self.context.services
        note_refused(services.cluster, services.appenders, of_topic, data)
        response = PartitionProduceResponse(index=data.index, base_offset=-1)
        self.say(response, refusal, topic_name)
        return response

    def say(self, response: PartitionProduceResponse, refusal: Refused, topic_name: str = "") -> None:
        """Say it where the response is. The name is for a refusal of single records."""
        self.refusal = refusal
        self.is_moved = self.is_moved or refusal.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        response.error_code = refusal.error
        response.error_message = refusal.message[:MOST_TEXT]
        if isinstance(refusal, RecordsRefused) and len(refusal.places) <= self.nameable:
            self.nameable -= len(refusal.places)
            _name_records(response, refusal, topic_name)

    def withdraw(self, told: list[PartitionProduceResponse]) -> None:
        """Leadership was lost before the commit: what rests on it must not read as success. What has
        committed stays: a producer that was told otherwise would send it again."""
        for each in told:
            if each.error_code == ErrorCode.NONE or each.error_code in FROM_THE_TAIL:
                each.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                each.error_message = None
                each.base_offset = -1
                self.is_moved = True

    def _told(
        self, response: ProduceResponse
    ) -> Iterator[tuple[PartitionProduceResponse, TopicPartition | None]]:
        """What is said of each partition, with what this node knows of it now."""
        cluster = self.context.services.cluster
        by_id = self.produce_version >= TOPIC_IDS_SINCE
        for told in response.responses:
            topic = cluster.topic_by_id(told.topic_id) if by_id else cluster.topic(told.name)
            for each in told.partition_responses:
                yield each, cluster.partition(topic.name, each.index) if topic is not None else None

    def tell_leaders(self, response: ProduceResponse) -> None:
        """Say who leads the partitions that are not led here, as far as this node knows."""
        if self.produce_version < LEADERS_SINCE:
            return
        for each, partition in self._told(response):
            if partition is None or each.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            leader_id, leader_epoch = known_leader(partition)
            each.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            found = self.context.endpoint_of(leader_id)
            if found is not None and all(known.node_id != leader_id for known in response.node_endpoints):
                response.node_endpoints.append(
                    NodeEndpoint(node_id=leader_id, host=found.host, port=found.port, rack=found.rack)
                )


def _place(topic: Topic, data: PartitionProduceData) -> tuple[TopicPartition, Buffer]:
    if not 0 <= data.index < len(topic.partitions):
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise Refused(error, error.message)
    if not data.records:
        raise Refused(ErrorCode.INVALID_RECORD, "no record batch; exactly one is allowed")
    return topic.partitions[data.index], data.records


def _name_records(response: PartitionProduceResponse, refused: RecordsRefused, topic_name: str) -> None:
    """Say which records are to blame, in Kafka's words: its producers fail these with them, and the others of
    the batch as those that were sent beside one that is invalid."""
    problem = f"{refused.problem} in topic partition {topic_name}-{response.index}"
    response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=problem)
        for place in refused.places
    ]
    shown = ", ".join(
        [f"RecordError(batchIndex={place}, message='{problem}')" for place in refused.places[:SHOWN]]
    )
    response.error_message = (
        f"One or more records have been rejected due to {len(refused.places)} record errors in total, and "
        f"only showing the first three errors at most: [{shown}]"
    )


def _of_topic(data: TopicProduceData, answers: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)


def _at(
    data: PartitionProduceData, partition: TopicPartition, appended: Appended
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=data.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=partition.log.log_start_offset,
    )


class _Gated(_Produced):
    """A request of a transactional id: its batches may wait for a coordinator."""

    __slots__ = ()

    def later(self, partition: TopicPartition, batch: HeldBatch) -> PartitionProduceResponse:
        """A response to be filled when the batch no longer waits."""
        response = PartitionProduceResponse(index=partition.index, base_offset=-1)
        group, log = partition.group, partition.log  # the partition may have others by then
        topic_name = partition.topic.name

        def settled(outcome: Outcome) -> None:
            if isinstance(outcome, Refused):
                self.say(response, outcome, topic_name)
                if outcome.error in FROM_THE_TAIL:
                    self.wait_for(group, response)
            else:
                self.wait_for(group, response)
                response.base_offset = outcome.base_offset
                response.log_append_time_ms = outcome.log_append_time_ms
                response.log_start_offset = log.log_start_offset
            self.held -= 1
            if self.when_settled is not None:
                self.when_settled()

        self.held += 1
        batch.settled = settled
        return response


class _Answer(Deferred):
    """A Produce response that waits for one commit in each group it touched, as nearly all do. It is no
    `_Commits`, which takes 3 % more of the processor a request."""

    __slots__ = ("_pending", "_produced", "_waiting_response")

    def __init__(self, response: ProduceResponse, produced: _Produced) -> None:
        super().__init__()
        self._waiting_response = response
        self._produced = produced
        self._pending = len(produced.resting)
        for group, told in produced.resting.items():
            group.when_committed(partial(self._committed, told))

    def _committed(self, told: list[PartitionProduceResponse], error: BaseException | None) -> None:
        if error is not None:
            self._produced.withdraw(told)
        self._pending -= 1
        if self._pending == 0:
            if self._produced.is_moved:
                self._produced.tell_leaders(self._waiting_response)
            self.complete(self._waiting_response)


class _Commits(Deferred):
    """Waits for what is held, and for each commit from when it was appended: what is appended may be lost
    with a leadership that comes back before the last coordinator has answered."""

    __slots__ = ("_pending", "_produced")

    def __init__(self, produced: _Produced) -> None:
        super().__init__()
        self._produced = produced
        self._pending = 0
        if produced.held:
            produced.when_settled = self._settled
        self._settled()

    def _settled(self) -> None:
        resting, self._produced.resting = self._produced.resting, {}
        self._pending += len(resting)
        for group, told in resting.items():
            group.when_committed(partial(self._committed, told))
        self._look()

    def _committed(self, told: list[PartitionProduceResponse], error: BaseException | None) -> None:
        if error is not None:
            self._produced.withdraw(told)
        self._pending -= 1
        self._look()

    def _look(self) -> None:
        """Something has come: is that all?"""
        raise NotImplementedError


class _LaterAnswer(_Commits):
    """One with what became of each batch."""

    __slots__ = ("_waiting_response",)

    def __init__(self, response: ProduceResponse, produced: _Produced) -> None:
        self._waiting_response = response
        super().__init__(produced)

    def _look(self) -> None:
        if self._pending == 0 and self._produced.held == 0:
            if self._produced.is_moved:
                self._produced.tell_leaders(self._waiting_response)
            self.complete(self._waiting_response)


class _Unanswered(_Commits):
    """acks=0: nothing to say in the end, unless there is a refusal. Until all of it is committed, or lost, it
    counts as unanswered: that is what holds back a producer which waits for nothing."""

    __slots__ = ()

    def _look(self) -> None:
        if self.done or self._produced.held:
            return
        refusal = self._produced.refusal
        if refusal is not None:
            self.fail(UnacknowledgedRefusal(str(refusal)))
        elif self._pending == 0:
            self.complete(None)
