"""Staged appends through a broker: what readers see, and what is refused, before and after an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.server import Broker
from lockstep.broker.staging.stage_expiration import StageExpiration
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.lock_words import HWM, WRITE
from lockstep.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lockstep.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from lockstep.protocol.records.record import BatchBuilder
from lockstep.protocol.staged_messages import (
    MAX_QUERY_CHARACTERS,
    LockstepStagedRequest,
    LockstepStagedResponse,
    Stage,
    StagedRecord,
    StagedTopic,
    is_staged,
    staged_transactional_id,
)
from tests.broker.conftest import StartBroker
from tests.broker.wire import Client, batch, records_of

QUERY = "4d1c"
COMMITTED = 1
"""Fetch's isolation level."""


class Writer:
    """One stage of a query."""

    def __init__(self, client: Client, query: str = QUERY) -> None:
        self.client = client
        self.query = query
        self.producer_id = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def send(
        self, topic: str, partition: int, *values: bytes, **builder: Any
    ) -> PartitionProduceResponse:
        if self.producer_id < 0:
            self.producer_id = (await staged(self.client, self.query)).producer_id
        place = topic, partition
        sequence = self.sequences.get(place, 0)
        said = {"producer_id": self.producer_id, "producer_epoch": 0, "transactional": True, **builder}
        data = batch(*values, base_sequence=sequence, **said)
        self.sequences[place] = sequence + len(values)
        part = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(
            transactional_id=staged_transactional_id(self.query),
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[part])],
        )
        response: ProduceResponse = await self.client.call(request, 11)
        return response.responses[0].partition_responses[0]

    @property
    def stage(self) -> Stage:
        found: dict[str, list[int]] = {}
        for topic, partition in self.sequences:
            found.setdefault(topic, []).append(partition)
        topics = [StagedTopic(name=name, partition_indexes=each) for name, each in found.items()]
        return Stage(producer_id=self.producer_id, topics=topics)


async def staged(client: Client, query: str = QUERY, **fields: Any) -> LockstepStagedResponse:
    answer: LockstepStagedResponse = await client.call(LockstepStagedRequest(query=query, **fields), 0)
    return answer


def epoch_record(hwm: int, value: bytes = b"epoch", query: str = QUERY) -> StagedRecord:
    building = BatchBuilder()
    headers = [(HWM, b"%d" % hwm), (WRITE, b"spark/" + query.encode())]
    building.append(value, timestamp_ms=1_000, headers=headers)
    return StagedRecord(topic="commits", partition_index=0, records=building.build())


async def commit(client: Client, *writers: Writer, hwm: int = -1) -> LockstepStagedResponse:
    stages = [each.stage for each in writers]
    return await staged(client, stages=stages, is_commit=True, record=[epoch_record(hwm)])


async def committed(client: Client, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """What a reader of committed records gets."""
    data = await client.fetch(topic, 0, partition, isolation_level=COMMITTED)
    aborted = {each.producer_id for each in data.aborted_transactions or []}
    found = []
    for record in records_of(data):
        if record.offset < data.last_stable_offset:
            found.append(record.value)
    return [] if aborted else found


@pytest.fixture
async def topics(client: Client) -> None:
    await client.create("t", 3)
    await client.create("commits", 1, lockstep_locks="true")


pytestmark = pytest.mark.usefixtures("topics")


async def test_a_commit_shows_all_of_it_at_once(client: Client) -> None:
    first, second = Writer(client), Writer(client)
    assert (await first.send("t", 0, b"a", b"b")).error_code == 0
    assert (await first.send("t", 0, b"c")).error_code == 0
    assert (await second.send("t", 1, b"d")).error_code == 0
    assert is_staged(first.producer_id) and first.producer_id != second.producer_id
    assert await committed(client) == [] and await committed(client, partition=1) == []

    answer = await commit(client, first, second)

    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert (await committed(client))[:3] == [b"a", b"b", b"c"]
    assert (await committed(client, partition=1))[:1] == [b"d"]
    assert await committed(client, "commits") == [b"epoch"]


async def test_a_second_commit_needs_the_first_ones_mark(client: Client) -> None:
    writers = [Writer(client) for _ in range(3)]
    for place, each in enumerate(writers):
        await each.send("t", place, b"v")
    assert (await commit(client, writers[0])).error_code == 0
    again = Writer(client)
    await again.send("t", 1, b"w")

    refused = await commit(client, again)

    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert "conflict_offset=0 exact" in (refused.error_message or "")
    assert await committed(client, partition=1) == []  # not begun, and nothing was undone
    assert (await commit(client, again, hwm=0)).error_code == 0


async def test_what_is_left_over_of_the_query_ends_with_its_next_commit(client: Client) -> None:
    dead, other, live = Writer(client), Writer(client, "another"), Writer(client)
    for each in (dead, other, live):
        await each.send("t", 0, b"v")

    assert (await commit(client, live)).error_code == 0

    data = await client.fetch("t", 0, isolation_level=COMMITTED)
    assert data.last_stable_offset == 1  # the other query's is open
    assert (await dead.send("t", 0, b"late")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await live.send("t", 0, b"late")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await other.send("t", 0, b"in time")).error_code == 0
    aborted = await staged(client, "another", stages=[other.stage])
    assert aborted.error_code == 0
    data = await client.fetch("t", 0, isolation_level=COMMITTED)
    assert data.last_stable_offset == data.high_watermark
    assert {each.producer_id for each in data.aborted_transactions or []} == {
        dead.producer_id,
        other.producer_id,
    }


async def test_an_abort_undoes_no_commit(client: Client) -> None:
    writer = Writer(client)
    await writer.send("t", 0, b"v")
    assert (await commit(client, writer)).error_code == 0

    assert (await staged(client, stages=[writer.stage])).error_code == 0

    data = await client.fetch("t", 0, isolation_level=COMMITTED)
    assert not data.aborted_transactions and data.last_stable_offset == data.high_watermark == 2


async def test_all_that_a_query_has_open_can_be_abandoned(client: Client) -> None:
    mine, other = Writer(client), Writer(client, "another")
    for partition, each in ((0, mine), (1, mine), (2, other)):
        await each.send("t", partition, b"v")

    assert (await staged(client, abandoned=["t"])).error_code == 0

    for partition, stable in ((0, 2), (1, 2), (2, 0)):
        data = await client.fetch("t", 0, partition, isolation_level=COMMITTED)
        assert data.last_stable_offset == stable
    late = (await Writer(client).send("t", 2, b"v")).error_code, (await mine.send("t", 2, b"v")).error_code
    assert late == (ErrorCode.INVALID_TXN_STATE,) * 2, "a task that has not heard of it would hold up readers"
    assert (await other.send("t", 2, b"v")).error_code == 0
    gone = await staged(client, abandoned=["gone"])
    assert gone.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_commit_of_what_was_aborted_is_refused_whole(client: Client) -> None:
    aborted, live = Writer(client), Writer(client)
    await aborted.send("t", 0, b"v")
    await live.send("t", 1, b"w")
    assert (await staged(client, stages=[aborted.stage])).error_code == 0

    refused = await commit(client, live, aborted)

    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert "t-0" in (refused.error_message or "")
    assert await committed(client, partition=1) == [] and await committed(client, "commits") == []


async def test_an_empty_commit_is_one(client: Client) -> None:
    assert (await commit(client)).error_code == 0
    assert (await commit(client)).error_code == ErrorCode.POLICY_VIOLATION


async def test_partitions_of_several_log_groups_are_refused(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(tmp_path / "groups", **{"lockstep_data_groups": "2"})
    client = await Client.connect(broker.port)
    await client.create("commits", 1, lockstep_locks="true", lockstep_group="1")
    await client.create("t", 1, lockstep_group="2")
    writer = Writer(client)
    await writer.send("t", 0, b"v")

    refused = await commit(client, writer)

    told = (await staged(client, topics=["t", "gone", "commits"])).topics
    assert [(each.name, each.group_ids) for each in told] == [("t", [2]), ("gone", []), ("commits", [1])]
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "t-0 in 2" in (refused.error_message or "") and "commits-0 in 1" in (refused.error_message or "")
    await client.close()


async def test_whose_it_is_is_checked(client: Client) -> None:
    writer = Writer(client)
    await writer.send("t", 0, b"v")
    writer.query = "another"
    refused = await writer.send("t", 0, b"v")
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    theirs = await staged(client, "another", stages=[writer.stage])
    assert theirs.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    plain = Writer(client)
    assert (await plain.send("t", 0, b"v", transactional=False)).error_code == ErrorCode.INVALID_RECORD
    assert (await plain.send("t", 0, b"v", producer_id=5)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    later = await plain.send("t", 0, b"v", producer_epoch=1)
    assert later.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("", {}),
        ("q" * (MAX_QUERY_CHARACTERS + 1), {}),
        (QUERY, {"is_commit": True}),
        (QUERY, {"record": [epoch_record(-1)]}),
    ],
)
async def test_requests_that_make_no_sense(client: Client, query: str, fields: dict[str, Any]) -> None:
    assert (await staged(client, query, **fields)).error_code == ErrorCode.INVALID_REQUEST


async def test_places_that_are_not_there(client: Client) -> None:
    writer = Writer(client)
    await writer.send("t", 0, b"v")
    writer.sequences["gone", 4] = 1
    assert (await commit(client, writer)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await staged(client, stages=[writer.stage])).error_code == 0
    data = await client.fetch("t", 0, isolation_level=COMMITTED)
    assert data.last_stable_offset == data.high_watermark


async def test_a_record_of_a_producer_does_not_go_with_markers(client: Client) -> None:
    request = epoch_record(-1)
    request.records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0)
    assert (await staged(client, is_commit=True, record=[request])).error_code == ErrorCode.INVALID_RECORD


async def test_kafkas_producers_cannot_take_such_an_id(client: Client) -> None:
    request = InitProducerIdRequest(
        transactional_id=staged_transactional_id(QUERY), transaction_timeout_ms=1000
    )
    answer: InitProducerIdResponse = await client.call(request, 4)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_what_nobody_came_back_for_expires(broker: Broker, client: Client) -> None:
    late, live = Writer(client), Writer(client, "another")
    await late.send("t", 0, b"v")
    expiration = broker.assembly.stage_expiration
    assert expiration.abort_expired_stages() == 0
    producer = broker.assembly.appenders[1].producers.of(
        next(each for each in broker.assembly.cluster.topic("t").partitions).log.local_id  # type: ignore[union-attr]
    )[0][1]
    producer.last_time_ms -= broker.assembly.settings.lockstep_staged_timeout_ms + 1_000
    await live.send("t", 1, b"w")

    assert expiration.abort_expired_stages() == 1

    assert (await late.send("t", 0, b"v")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await commit(client, late)).error_code == ErrorCode.INVALID_TXN_STATE
    assert (await live.send("t", 1, b"w")).error_code == 0


async def test_what_was_written_under_a_clock_far_ahead_expires(broker: Broker, client: Client) -> None:
    late, live = Writer(client), Writer(client, "another")
    producers = broker.assembly.appenders[1].producers

    async def write(*writers: Writer) -> None:
        for writer in writers:
            await writer.send("t", 0 if writer is late else 1, b"v")
        for place in producers.open_stages:
            state = producers.find(*place)
            assert state is not None
            state.last_time_ms = 1 << 60  # a log's time does not go back: all that follows has it, too

    await write(late, live)
    now, timeout_s = 0.0, broker.assembly.settings.lockstep_staged_timeout_ms / 1000
    expiration = StageExpiration(
        broker.assembly.staged_ends, broker.assembly.cluster, broker.assembly.clock_ms, lambda: now
    )
    assert expiration.abort_expired_stages() == 0
    now += timeout_s
    assert expiration.abort_expired_stages() == 0
    await write(live)
    now += 1
    assert expiration.abort_expired_stages() == 1
    assert [producer_id for _, producer_id in producers.open_stages] == [live.producer_id]
    now += timeout_s
    assert expiration.abort_expired_stages() == 0
    now += 1
    assert expiration.abort_expired_stages() == 1


async def test_stages_of_a_query_expire_together(broker: Broker, client: Client) -> None:
    early, live = Writer(client), Writer(client)
    await early.send("t", 0, b"v")
    producers = broker.assembly.appenders[1].producers
    ((number, producer_id),) = producers.open_stages
    early_state = producers.find(number, producer_id)
    assert early_state is not None
    early_state.last_time_ms -= broker.assembly.settings.lockstep_staged_timeout_ms + 1_000
    await live.send("t", 1, b"w")
    assert broker.assembly.stage_expiration.abort_expired_stages() == 0
    assert (await commit(client, early, live)).error_code == 0
    assert not producers.open_stages


async def test_a_commit_where_its_record_is(client: Client) -> None:
    await client.create("both", 1, lockstep_locks="true")
    for epoch in range(2):
        writer = Writer(client)
        await writer.send("both", 0, b"a", b"b")
        record = epoch_record(-1)
        record.topic = "both"
        answer = await staged(client, stages=[writer.stage], is_commit=True, record=[record])
        if epoch:
            assert answer.error_code == ErrorCode.POLICY_VIOLATION
            assert "conflict_offset=2 exact" in (answer.error_message or "")
        else:
            assert (answer.error_code, answer.base_offset) == (0, 2)


async def test_a_record_that_would_not_be_checked_is_refused(client: Client) -> None:
    plain, silent = epoch_record(-1), epoch_record(-1)
    plain.topic = "t"
    silent.records = batch(b"v")
    for record in (plain, silent):
        answer = await staged(client, is_commit=True, record=[record])
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_a_stage_is_named_once(client: Client) -> None:
    writer = Writer(client)
    await writer.send("t", 0, b"v")
    both: list[dict[str, Any]] = [{"is_commit": True, "record": [epoch_record(-1)]}, {}]
    for fields in both:
        answer = await staged(client, stages=[writer.stage, writer.stage], **fields)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_a_batch_that_cannot_be_read_is_refused_and_the_connection_stays(client: Client) -> None:
    writer = Writer(client)
    await writer.send("t", 0, b"v")
    for at, byte in ((16, 1), (23, 0xFF), (11, 7)):
        data = bytearray(batch(b"v", producer_id=writer.producer_id, producer_epoch=0, transactional=True))
        data[at] = byte
        part = PartitionProduceData(index=0, records=bytes(data))
        request = ProduceRequest(
            transactional_id=staged_transactional_id(QUERY),
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name="t", partition_data=[part])],
        )
        response: ProduceResponse = await client.call(request, 11)
        assert response.responses[0].partition_responses[0].error_code != 0


async def test_a_restart_forgets_nothing(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(tmp_path / "again")
    client = await Client.connect(broker.port)
    await client.create("t", 1)
    await client.create("commits", 1, lockstep_locks="true")
    dead, live = Writer(client), Writer(client)
    await dead.send("t", 0, b"dead")
    await live.send("t", 0, b"v")
    await client.close()
    await broker.stop()

    broker = await start_broker(tmp_path / "again")
    client = await Client.connect(broker.port)
    live.client = dead.client = client
    assert (await live.send("t", 0, b"w")).error_code == 0
    assert (await commit(client, live)).error_code == 0
    assert (await dead.send("t", 0, b"late")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    data = await client.fetch("t", 0, isolation_level=COMMITTED)
    assert data.last_stable_offset == data.high_watermark
    assert [each.producer_id for each in data.aborted_transactions or []] == [dead.producer_id]
    await client.close()
