"""A group's records on their way into the log: one batch, one answer, and what stands in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker.groups.group_records import CommittedOffset, group_record, offset_record
from lockstep.broker.groups.group_store import BATCH_BYTES, GroupStore, OffsetTransaction
from lockstep.broker.produce.append_result import VerificationRequired
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import iter_headers
from lockstep.storage.log_group import LogGroup
from lockstep.storage.types import Backlogged, BatchTooLarge, NotLeader, StorageFull
from tests.broker.wire import Client


@pytest.fixture
async def store(broker: Broker) -> GroupStore:
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    return broker.assembly.consumer_groups.store("g")


class Done:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.errors: list[ErrorCode] = []
        self.on_status = asyncio.Event()

    def __call__(self, error: ErrorCode) -> None:
        self.errors.append(error)
        self.on_status.set()

    async def error(self) -> ErrorCode:
        await asyncio.wait_for(self.on_status.wait(), 5)
        (error,) = self.errors
        return error


def batches(store: GroupStore, group_id: str = "g") -> list[int]:
    """Record counts of the batches in the group's partition."""
    partition = store._partition_of(group_id)
    assert partition is not None
    read = store.group.read(partition, 0, 1 << 24)
    return [header.record_count for buffer in read.buffers for _, header in iter_headers(bytes(buffer))]


async def test_done_comes_once_and_after_the_state(store: GroupStore) -> None:
    done = Done()
    records = [offset_record("g", "t", index, CommittedOffset(index)) for index in range(3)]
    store.append("g", records, done)
    assert done.errors == [] and store.is_under_way("g") and not store.is_under_way("h")
    assert store.state.offsets("g") == {}
    assert await done.error() is ErrorCode.NONE
    assert len(store.state.offsets("g")) == 3 and not store.is_under_way("g")
    assert batches(store) == [3]


async def test_appends_of_one_turn_share_a_commit(store: GroupStore) -> None:
    index = store.group.log.last_index
    done = [Done() for _ in range(20)]
    for number, each in enumerate(done):
        store.append("g", [offset_record("g", "t", number, CommittedOffset(1))], each)
    assert {await each.error() for each in done} == {ErrorCode.NONE}
    assert store.group.log.last_index == index + 1
    assert batches(store) == [1] * 20 and not store.is_under_way("g")


async def test_nothing_to_write_is_done_too(store: GroupStore) -> None:
    done = Done()
    store.append("g", [], done)
    assert done.errors == []
    assert await done.error() is ErrorCode.NONE
    assert batches(store) == []


async def test_many_records_become_several_batches(store: GroupStore) -> None:
    done = Done()
    metadata = "m" * 4096
    count = BATCH_BYTES // 4096 * 3
    records = [offset_record("g", "t", index, CommittedOffset(index, -1, metadata)) for index in range(count)]
    store.append("g", records, done)
    assert await done.error() is ErrorCode.NONE
    assert len(batches(store)) >= 3 and sum(batches(store)) == count
    assert len(store.state.offsets("g")) == count


@pytest.mark.parametrize(
    ("problem", "error"),
    [
        (NotLeader("moved"), ErrorCode.NOT_COORDINATOR),
        (StorageFull("full"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (Backlogged("later"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (BatchTooLarge("huge"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
async def test_refusals_of_the_log(
    store: GroupStore, monkeypatch: pytest.MonkeyPatch, problem: Exception, error: ErrorCode
) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise problem

    monkeypatch.setattr(LogGroup, "append", refuse)
    done = Done()
    store.append("g", [group_record("g", None)], done)
    assert done.errors == [] and not store.is_under_way("g")
    assert await done.error() is error


async def test_one_record_that_no_frame_takes(store: GroupStore) -> None:
    done = Done()
    store.append("g", [(b"\0\1", bytes(1 << 20))], done)
    assert await done.error() is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_batch_that_is_refused_after_another_one(
    store: GroupStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [(b"\xff\0", bytes(BATCH_BYTES)), (b"\xff\1", b"")]
    append = LogGroup.append
    appended: list[int] = []

    def refuse_the_second(self: LogGroup, *args: Any, **how: Any) -> int:
        if appended:
            raise StorageFull("full")
        appended.append(1)
        return append(self, *args, **how)

    monkeypatch.setattr(LogGroup, "append", refuse_the_second)
    done = Done()
    store.append("g", records, done)
    assert await done.error() is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_leadership_lost_before_the_commit(store: GroupStore, monkeypatch: pytest.MonkeyPatch) -> None:
    waiters: list[Callable[[BaseException | None], None]] = []
    monkeypatch.setattr(store.group, "when_committed", waiters.append)
    done = Done()
    store.append("g", [offset_record("g", "t", 0, CommittedOffset(1))], done)
    waiters[0](NotLeader("moved"))
    assert done.errors == [ErrorCode.NOT_COORDINATOR] and not store.is_under_way("g")


async def test_a_group_of_another_log_group(broker: Broker, store: GroupStore) -> None:
    lost = GroupStore(store.group, store.state, lambda group_id: None, lambda: 0)
    done = Done()
    lost.append("g", [offset_record("g", "t", 0, CommittedOffset(1))], done)
    assert await done.error() is ErrorCode.NOT_COORDINATOR


def within(epoch: int = 0, verified: bool = True) -> OffsetTransaction:
    return OffsetTransaction(70, epoch, verified)


async def test_within_a_transaction(store: GroupStore) -> None:
    done, more = Done(), Done()
    records = [offset_record("g", "t", index, CommittedOffset(index)) for index in range(3)]
    store.append_within(within(), "g", records, done)
    assert done.errors == [] and store.is_under_way("g")
    assert await done.error() is ErrorCode.NONE
    assert store.state.offsets("g") == {} and not store.is_under_way("g")
    assert store.state.pending("g") == {("t", 0), ("t", 1), ("t", 2)}
    store.append_within(within(verified=False), "g", records, more)  # it is known to be open
    assert await more.error() is ErrorCode.NONE
    assert batches(store) == [3, 3]


async def test_a_transaction_without_a_verification(store: GroupStore) -> None:
    done = Done()
    unverified = store.append_within(within(verified=False), "g", [offset_record("g", "t", 0, None)], done)
    assert isinstance(unverified, VerificationRequired) and unverified.producer_id == 70
    await asyncio.sleep(0)
    store.resign()
    assert done.errors == [] and not store.is_under_way("g") and batches(store) == []


async def test_an_epoch_that_is_over(store: GroupStore) -> None:
    first, second = Done(), Done()
    record = offset_record("g", "t", 0, CommittedOffset(1))
    store.append_within(within(3), "g", [record], first)
    store.append_within(within(2), "g", [record], second)
    assert second.errors == [] and await first.error() is ErrorCode.NONE
    assert await second.error() is ErrorCode.INVALID_PRODUCER_EPOCH
    assert batches(store) == [1]


async def test_much_within_a_transaction(store: GroupStore) -> None:
    done = Done()
    metadata = "m" * 4_000
    records = [offset_record("g", "t", n, CommittedOffset(n, metadata=metadata)) for n in range(100)]
    store.append_within(within(), "g", records, done)
    assert await done.error() is ErrorCode.NONE
    assert len(batches(store)) == 2 and len(store.state.pending("g")) == 100


async def test_time_does_not_go_back(client: Client, store: GroupStore) -> None:
    await client.create("t")
    behind = GroupStore(store.group, store.state, lambda group_id: None, lambda: 5)
    assert behind.time_ms() == store.group.time_ms > 5


async def test_nothing_is_done_where_the_group_is_not_led(
    store: GroupStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = GroupStore(store.group, store.state, lambda group_id: partition, lambda: 0)
    partition = store.partition("g")
    monkeypatch.setattr(LogGroup, "is_leader", False)
    for records in ([], [group_record("g", None)]):
        done = Done()
        elsewhere.append("g", records, done)
        assert done.errors == [] and await done.error() is ErrorCode.NOT_COORDINATOR
    monkeypatch.undo()
    assert batches(store) == []


async def test_what_is_under_way_is_answered_once_when_the_leadership_is_lost(
    store: GroupStore, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(error: ErrorCode) -> None:
        raise RuntimeError("a mistake of whoever waits")

    appended, refused = Done(), Done()
    store.append("g", [group_record("g", None)], broken)
    store.append("g", [group_record("g", None)], appended)
    store.append("g", [(b"\0\1", bytes(1 << 20))], refused)
    store.resign()
    assert appended.errors == refused.errors == [ErrorCode.NOT_COORDINATOR]
    assert not store.is_under_way("g")
    assert "a mistake of whoever waits" in caplog.text
    again = Done()
    store.append("g", [group_record("g", None)], again)
    await store.group.committed()
    assert await again.error() is ErrorCode.NONE and not store.is_under_way("g")
    assert len(appended.errors) == len(refused.errors) == 1
