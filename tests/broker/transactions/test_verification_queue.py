"""Batches that wait while their partition is verified: in order, bounded, never after their transaction."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.produce.append_result import (
    AppendOutcome,
    AppendResult,
    DelayedAppend,
    Unverified,
    VerificationGuardMismatch,
    VerificationRequired,
)
from lockstep.broker.produce.appender import Appender
from lockstep.broker.produce.producer_state import ProducerState
from lockstep.broker.requests import time_slices
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions import verification_queue as of_gate
from lockstep.broker.transactions.verification_client import (
    Codes,
    TopicPartition,
    Verification,
    VerificationRequest,
)
from lockstep.broker.transactions.verification_queue import VerificationQueue
from lockstep.protocol.errors import ErrorCode
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import StorageFull
from tests.broker.appends import LIMITS, Transactional
from tests.broker.wire import batch

TOPIC = bytes(15) + b"\x07"
NONE = ErrorCode.NONE
V1, V2 = 11, 12


def data(sequence: int = 0, producer_id: int = 7, epoch: int = 0, value: bytes = b"a") -> bytes:
    said = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return batch(value, transactional=True, **said)


class Group:
    group_id = 2
    term = 1
    is_leader = True


class Appends:
    """An `Appender` in which transactions are open or not; it notes what was appended."""

    def __init__(self) -> None:
        self.group = Group()
        self.producers = ProducerState(1)
        self.open: set[tuple[int, int]] = set()
        """Partition's index and producer id."""
        self.guard = 0
        self.appended: list[tuple[int, int, int]] = []
        """Partition's index, producer's epoch, sequence."""
        self.refusals: dict[int, RequestError] = {}
        """By sequence."""
        self.crash: Exception | None = None

    def append_transactional(
        self,
        partition: PartitionLog,
        records: bytes,
        limits: object,
        produce_version: int,
        transactional_id: str,
        *,
        verified: bool = False,
        guard: int | None = None,
    ) -> AppendResult | Unverified:
        if self.crash is not None:
            raise self.crash
        producer_id, epoch, sequence = (
            int.from_bytes(records[at:end], "big") for at, end in ((43, 51), (51, 53), (53, 57))
        )
        if sequence in self.refusals:
            raise self.refusals[sequence]
        key = partition.index, producer_id
        if key not in self.open:
            if not verified:
                return VerificationRequired(producer_id, epoch, self.guard)
            if guard != self.guard:
                return VerificationGuardMismatch(self.guard)
            self.open.add(key)
        self.appended.append((partition.index, epoch, sequence))
        return AppendResult(len(self.appended) - 1, -1)


class Coordinator:
    """A `Verification`: `at_once` is what is known here, the rest waits for `answer`."""

    def __init__(self) -> None:
        self.at_once: Codes | None = None
        self.asked: list[tuple[tuple[str, int, int], list[TopicPartition], bool]] = []
        self._answers: list[asyncio.Future[ErrorCode]] = []

    def verify_now(self, request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes | None:
        return self.at_once

    async def verify(self, request: VerificationRequest, places: Sequence[TopicPartition]) -> Codes:
        self.asked.append((request[:3], list(places), request.add))
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return dict.fromkeys(places, await answer)

    async def answer(self, code: ErrorCode) -> None:
        """The oldest question."""
        for _ in range(3):
            await asyncio.sleep(0)
        self._answers.pop(0).set_result(code)
        for _ in range(3):
            await asyncio.sleep(0)


class Topic:
    name = "t"


class World:
    """One log group with partitions 0 to 2 of topic "t"; or a real one, with 0 and 1."""

    def __init__(self, real: Transactional | None = None) -> None:
        self.appends = Appends()
        self.coordinator = Coordinator()
        self.logs = {index: PartitionLog(100 + index, TOPIC, index) for index in range(3)}
        if real is not None:
            self.logs = {0: real.one, 1: real.two}
        self.gate = VerificationQueue(
            cast(MetadataCache, self),
            {2: cast(Appender, self.appends) if real is None else real.appender},
            cast(Verification, self.coordinator),
            asyncio.get_running_loop(),
            time_slices.TimeSlicer(asyncio.get_running_loop().call_soon),
        )
        self.outcomes: dict[str, AppendOutcome] = {}

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return Topic() if self.logs else None

    def open_partition(self, topic_id: bytes, number: int, index: int) -> PartitionLog | None:
        return self.logs.get(index)

    def send(self, name: str, records: bytes, index: int = 0, version: int = V1, of: str = "id") -> None:
        """Append one batch; what becomes of it is `outcomes[name]`."""
        log = self.logs[index]
        view = bytearray(records)
        try:
            result = self.gate.appenders(of)[2].append(log, view, LIMITS, version)
        except RequestError as refused:
            self.outcomes[name] = refused
        else:
            if isinstance(result, DelayedAppend):
                result.on_outcome = lambda outcome: self.outcomes.__setitem__(name, outcome)
            else:
                self.outcomes[name] = result
        view[:] = bytes(len(view))  # the receive buffer is used again

    def error(self, name: str) -> ErrorCode:
        outcome = self.outcomes[name]
        return outcome.error if isinstance(outcome, RequestError) else NONE


@pytest.fixture
async def world() -> World:
    return World()


async def test_known_at_once(world: World) -> None:
    world.coordinator.at_once = {("t", 0): NONE, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}
    world.send("a", data(0))
    world.send("b", data(1))
    world.send("c", data(0), index=1, version=10)
    world.send("d", data(0), index=1, version=11)
    assert world.appends.appended == [(0, 0, 0), (0, 0, 1)]
    assert world.error("c") is ErrorCode.INVALID_TXN_STATE
    assert world.error("d") is ErrorCode.TRANSACTION_ABORTABLE
    assert world.coordinator.asked == []


async def test_later_ones_queue_behind_the_one_that_is_verified(world: World) -> None:
    for sequence in range(3):
        world.send(str(sequence), data(sequence))
    world.appends.open.add((0, 8))
    world.send("other", data(0, producer_id=8))
    assert world.appends.appended == [(0, 0, 0)], "another producer's batch waits for nobody"
    await world.coordinator.answer(NONE)
    assert world.appends.appended[1:] == [(0, 0, 0), (0, 0, 1), (0, 0, 2)]
    assert [world.outcomes[str(n)].base_offset for n in range(3)] == [1, 2, 3]  # type: ignore[union-attr]
    assert world.coordinator.asked == [(("id", 7, 0), [("t", 0)], False)]
    assert world.gate.waiting_bytes == 0
    world.send("3", data(3))
    assert world.appends.appended[-1] == (0, 0, 3), "nothing waits any more"


async def test_partitions_of_one_request_are_one_question(world: World) -> None:
    for index in range(3):
        world.send(f"p{index}", data(0), index=index, version=V2)
    world.send("another", data(0, producer_id=9), index=1, of="other")
    await world.coordinator.answer(NONE)
    assert world.coordinator.asked == [
        (("id", 7, 0), [("t", 0), ("t", 1), ("t", 2)], True),
        (("other", 9, 0), [("t", 1)], False),
    ]
    assert len(world.appends.appended) == 3 and "another" not in world.outcomes
    await world.coordinator.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert world.error("another") is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_refusal_is_that_of_all_that_wait(world: World) -> None:
    world.send("a", data(0))
    world.send("b", data(1), version=9)
    await world.coordinator.answer(ErrorCode.TRANSACTION_ABORTABLE)
    assert world.error("a") is ErrorCode.TRANSACTION_ABORTABLE
    assert world.error("b") is ErrorCode.INVALID_TXN_STATE
    assert world.appends.appended == [] and world.gate.waiting_bytes == 0


async def test_no_coordinator(world: World) -> None:
    world.send("a", data(0))
    await world.coordinator.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.error("a") is ErrorCode.NOT_ENOUGH_REPLICAS
    world.send("a", data(0))
    await world.coordinator.answer(NONE)
    assert world.error("a") is NONE, "sent again"


async def test_behind_a_batch_that_is_refused_the_next_one_is_tried(world: World) -> None:
    """Whether it may begin in its place the append path says."""
    world.appends.refusals[0] = RequestError(ErrorCode.MESSAGE_TOO_LARGE, "large")
    world.send("a", data(0))
    assert world.error("a") is ErrorCode.MESSAGE_TOO_LARGE, "no question about it"
    world.appends.refusals = {}
    world.send("b", data(0))
    world.send("c", data(1))
    world.appends.refusals[0] = RequestError(ErrorCode.KAFKA_STORAGE_ERROR, "full")
    await world.coordinator.answer(NONE)
    assert (world.error("b"), world.error("c")) == (ErrorCode.KAFKA_STORAGE_ERROR, NONE)


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Transactional]:
    made = await Transactional(tmp_path).open()
    yield made
    await made.group.close()


async def in_order(world: World, real: Transactional) -> None:
    """What was refused, and what came behind it, is written when it is sent again."""
    assert real.one.next_offset == 0 and world.gate.waiting_bytes == 0
    world.coordinator.at_once = {("t", 0): NONE}
    for name, sequence in (("first", 0), ("second", 1)):
        world.send(name, data(sequence))
        assert cast(AppendResult, world.outcomes[name]).base_offset == sequence


OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_no_batch_begins_for_one_whose_coordinator_was_not_found(real: Transactional) -> None:
    world = World(real)
    world.send("first", data(0))
    await world.coordinator.answer(ErrorCode.NETWORK_EXCEPTION)
    world.send("second", data(1))
    assert (world.error("first"), world.error("second")) == (ErrorCode.NOT_ENOUGH_REPLICAS, OUT_OF_ORDER)
    await in_order(world, real)


@pytest.mark.parametrize("behind", [False, True], ids=["", "behind another epoch"])
async def test_no_batch_begins_for_one_that_found_no_room_to_wait(
    real: Transactional, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    monkeypatch.setattr(of_gate, "MAX_WAITING_BYTES", 4000)
    world = World(real)
    epoch = 0
    if behind:
        world.send("zombie", data(0))
        epoch = 1
    world.send("first", data(0, epoch=epoch, value=b"a" * 5000))
    assert world.error("first") is ErrorCode.NOT_ENOUGH_REPLICAS
    world.send("second", data(1, epoch=epoch))
    if behind:
        await world.coordinator.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert world.error("second") is OUT_OF_ORDER
    if not behind:
        await in_order(world, real)


@pytest.mark.parametrize("waits", [False, True])
async def test_no_batch_begins_for_one_that_is_too_large(real: Transactional, waits: bool) -> None:
    """Clients send it again in two, the first with the same sequence."""
    world = World(real)
    epoch = 0
    if waits:
        world.send("zombie", data(0))
        epoch = 1
    world.send("first", data(0, epoch=epoch, value=b"a" * LIMITS.max_message_bytes))
    world.send("second", data(1, epoch=epoch))
    if waits:
        await world.coordinator.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert (world.error("first"), world.error("second")) == (ErrorCode.MESSAGE_TOO_LARGE, OUT_OF_ORDER)
    if not waits:
        await in_order(world, real)


async def test_no_batch_begins_for_one_that_the_log_refused(
    real: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(real)
    append, refused = real.group.append, 0

    def full_once(*arguments: Any) -> int:
        nonlocal refused
        if not refused:
            refused += 1
            raise StorageFull("no room")
        return append(*arguments)

    monkeypatch.setattr(real.group, "append", full_once)
    world.send("first", data(0))
    world.send("second", data(1))
    await world.coordinator.answer(NONE)
    assert (world.error("first"), world.error("second")) == (ErrorCode.KAFKA_STORAGE_ERROR, OUT_OF_ORDER)
    await in_order(world, real)


async def test_another_epoch_is_verified_for_itself(world: World) -> None:
    world.send("old", data(0, epoch=0))
    world.send("new", data(0, epoch=1))
    world.send("newer", data(1, epoch=1))
    await world.coordinator.answer(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert world.error("old") is ErrorCode.INVALID_PRODUCER_EPOCH and "new" not in world.outcomes
    await world.coordinator.answer(NONE)
    assert [asked[0] for asked in world.coordinator.asked] == [("id", 7, 0), ("id", 7, 1)]
    assert world.appends.appended == [(0, 1, 0), (0, 1, 1)]


async def test_a_marker_meanwhile_refuses_what_waits(world: World) -> None:
    """Else a batch would begin a transaction that has ended: it would hang."""
    world.send("a", data(0))
    world.send("b", data(1))
    world.appends.guard += 1
    await world.coordinator.answer(NONE)
    assert {world.error("a"), world.error("b")} == {ErrorCode.INVALID_TXN_STATE}
    assert world.appends.appended == []


async def test_a_marker_of_the_transaction_before_comes_while_the_next_one_is_added(world: World) -> None:
    """Version 2: EndTxn is answered when the end is decided, its markers may come after the next batch."""
    world.send("a", data(0), version=V2)
    world.send("b", data(1), version=V2)
    world.appends.guard += 1
    await world.coordinator.answer(NONE)
    assert world.outcomes == {}
    await world.coordinator.answer(NONE)
    assert [asked[2] for asked in world.coordinator.asked] == [True, True]
    assert world.appends.appended == [(0, 0, 0), (0, 0, 1)] and world.gate.waiting_bytes == 0


@pytest.mark.parametrize("change", ["lost", "lost and won again"])
async def test_another_leadership_refuses_what_waits(world: World, change: str) -> None:
    world.send("a", data(0))
    world.send("b", data(1))
    world.appends.group.term = 3
    world.appends.group.is_leader = change != "lost"
    await world.coordinator.answer(NONE)
    assert {world.error("a"), world.error("b")} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert world.appends.appended == [] and world.gate.waiting_bytes == 0


async def test_a_topic_that_is_deleted_meanwhile(world: World) -> None:
    world.send("a", data(0))
    world.logs = {}
    await world.coordinator.answer(NONE)
    assert world.error("a") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and world.appends.appended == []


async def test_what_waits_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_gate, "MAX_WAITING_BYTES", 3000)
    for sequence in range(4):
        world.send(str(sequence), data(sequence))
    assert [world.error(str(n)) for n in (2, 3)] == [ErrorCode.NOT_ENOUGH_REPLICAS] * 2
    world.send("elsewhere", data(0), index=1)
    assert world.error("elsewhere") is ErrorCode.NOT_ENOUGH_REPLICAS
    await world.coordinator.answer(NONE)
    assert world.appends.appended == [(0, 0, 0), (0, 0, 1)]
    world.send("2", data(2))
    assert world.error("2") is NONE
    world.send("elsewhere", data(0), index=1)
    await world.coordinator.answer(NONE)
    assert world.error("elsewhere") is NONE, "a refused one left nothing behind"


async def test_a_fault_of_ours_is_an_answer(world: World) -> None:
    world.send("a", data(0))
    world.send("b", data(1))
    world.appends.crash = RuntimeError("a fault")
    await world.coordinator.answer(NONE)
    assert {world.error("a"), world.error("b")} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    world.appends.crash = None
    world.send("a", data(0))
    await world.coordinator.answer(NONE)
    assert world.error("a") is NONE


async def test_a_stop_completes_waiting_requests(world: World) -> None:
    world.send("a", data(0))
    world.send("b", data(0), index=1)
    world.gate.stop()
    assert {world.error("a"), world.error("b")} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    await asyncio.sleep(0)
    assert world.gate.waiting_bytes == 0 and world.appends.appended == []


async def test_garbage_beside_a_batch_that_waits(world: World) -> None:
    world.send("a", data(0))
    world.appends.refusals[0] = RequestError(ErrorCode.INVALID_RECORD, "short")
    world.send("b", data(0)[:60])
    assert world.error("b") is ErrorCode.INVALID_RECORD


async def wait_for_coordinator(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three batches for each of three partitions, of which some are appended: each takes more than a turn."""
    monkeypatch.setattr(time_slices, "clock", itertools.count(0.0, 0.03).__next__)
    for index in range(3):
        for sequence in range(3):
            world.send(f"{index} {sequence}", data(sequence), index=index)
    await world.coordinator.answer(NONE)
    assert 0 < len(world.appends.appended) < 9


async def test_what_waited_has_one_turn_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have to be opened: 64 MiB of small batches held the loop for minutes."""
    await wait_for_coordinator(world, monkeypatch)
    world.send("behind", data(3), index=2)
    for _ in range(12):
        await asyncio.sleep(0)
    sequences = [(0, 0, n) for n in range(3)] + [(1, 0, n) for n in range(3)] + [(2, 0, n) for n in range(4)]
    assert world.appends.appended == sequences
    assert len(world.outcomes) == 10 and world.gate.waiting_bytes == 0


async def test_a_stop_between_two_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await wait_for_coordinator(world, monkeypatch)
    appended = len(world.appends.appended)
    world.gate.stop()
    for _ in range(12):
        await asyncio.sleep(0)
    codes = [world.error(f"{index} {sequence}") for index in range(3) for sequence in range(3)]
    assert codes == [NONE] * appended + [ErrorCode.NOT_LEADER_OR_FOLLOWER] * (9 - appended)
    assert len(world.appends.appended) == appended and world.gate.waiting_bytes == 0
