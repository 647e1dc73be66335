"""The coordinator on a real broker: what is one entry, what is two, and what a restart finds.

Other log groups' leaders are reached by way of `HeldMarkers`, which a test holds back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from lockstep.broker.produce.marker_batches import TxnMarkerEntry
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.transactions import transaction_coordinator as module
from lockstep.broker.transactions.transaction_records import TransactionState
from lockstep.broker.transactions.transaction_rules import LAST_EPOCH
from lockstep.broker.transactions.verification_client import VerificationRequest
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.control import ControlKind
from lockstep.storage.types import StorageFull
from tests.broker.conftest import StartBroker
from tests.broker.transactions.worlds import NAME, TIMEOUT_MS, World, error, make, until


@pytest.fixture
async def one(start_broker: StartBroker) -> World:
    """All partitions are in one log group."""
    return await make(start_broker)


@pytest.fixture
async def two(start_broker: StartBroker) -> AsyncIterator[World]:
    """They are in two, and markers to the other one are held back."""
    world = await make(start_broker, lockstep_data_groups="2")
    world.hold()
    yield world
    world.markers.open.set()


# --- one log group ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_in_one_log_group_ends_in_one_entry(one: World, commit: bool) -> None:
    places = one.places(own=True)
    assert len(places) == 4
    identity = await one.begin(*places)
    before = one.coordinator.group.applied_index
    assert await one.transactions.end(NAME, *identity, commit, 0) == identity
    assert one.coordinator.group.applied_index == before + 1
    assert one.state() is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    kind = ControlKind.COMMIT if commit else ControlKind.ABORT
    assert [one.kinds(place) for place in places] == [[(kind, 0)]] * 4
    assert await one.transactions.end(NAME, *identity, commit, 0) == identity  # asked again
    assert one.coordinator.group.applied_index == before + 1
    assert await error(one.transactions.end(NAME, *identity, not commit, 0)) is ErrorCode.INVALID_TXN_STATE


async def test_the_second_version_raises_the_epoch_at_every_end(one: World) -> None:
    producer_id, epoch = await one.begin(("t", 0), version=2)
    assert await one.transactions.end(NAME, producer_id, epoch, True, 2) == (producer_id, epoch + 1)
    assert one.kinds(("t", 0)) == [(ControlKind.COMMIT, epoch + 1)]
    assert await one.transactions.end(NAME, producer_id, epoch, True, 2) == (producer_id, epoch + 1)
    late = one.transactions.add_partitions(NAME, producer_id, epoch, [("t", 0)], 2)
    assert await error(late) is ErrorCode.PRODUCER_FENCED
    told = await one.transactions.verify(
        VerificationRequest(NAME, producer_id, epoch + 1, add=True), [("t", 1)]
    )
    assert told == {("t", 1): ErrorCode.NONE}
    assert one.now.partitions == (("t", 1),)
    assert await one.transactions.end(NAME, producer_id, epoch + 1, False, 2) == (producer_id, epoch + 2)
    # What did not begin may be aborted, too: the producer cannot know whether it did.
    assert await one.transactions.end(NAME, producer_id, epoch + 2, False, 2) == (producer_id, epoch + 3)


async def test_epochs_that_run_out_bring_a_new_id(one: World) -> None:
    producer_id, _ = await one.begin(("t", 0), version=2)
    worn = one.now._replace(producer_epoch=LAST_EPOCH)
    await one.coordinator._write(NAME, worn)
    fresh = await one.transactions.end(NAME, producer_id, LAST_EPOCH, True, 2)
    assert fresh[0] != producer_id
    assert fresh[1] == 0
    assert one.kinds(("t", 0)) == [(ControlKind.COMMIT, LAST_EPOCH + 1)]
    assert await one.transactions.end(NAME, producer_id, LAST_EPOCH, True, 2) == fresh
    # The same where a producer begins, and where it raises its epoch and asks twice.
    await one.coordinator._write(NAME, one.now._replace(producer_epoch=LAST_EPOCH))
    newer = await one.transactions.init_producer_id(NAME, TIMEOUT_MS, fresh[0], LAST_EPOCH)
    assert newer[0] not in (producer_id, fresh[0])
    assert newer[1] == 0
    assert await one.transactions.init_producer_id(NAME, TIMEOUT_MS, fresh[0], LAST_EPOCH) == newer


async def test_a_new_producer_aborts_what_its_predecessor_left(one: World) -> None:
    producer_id, epoch = await one.begin(("t", 0))
    assert await one.begin() == (producer_id, epoch + 2)
    assert one.kinds(("t", 0)) == [(ControlKind.ABORT, epoch + 1)]
    assert one.state() is TransactionState.EMPTY
    assert await error(one.transactions.end(NAME, producer_id, epoch, True, 0)) is ErrorCode.PRODUCER_FENCED


async def test_a_zombie_does_not_abort_its_successors_transaction(one: World) -> None:
    producer_id, epoch = await one.begin()
    successor = await one.begin(("t", 0))
    zombie = one.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch)
    assert await error(zombie) is ErrorCode.PRODUCER_FENCED
    assert await one.transactions.end(NAME, *successor, True, 0) == successor


async def test_a_producer_that_missed_the_response_with_its_epoch_retries(one: World) -> None:
    producer_id, epoch = await one.begin()
    raised = await one.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch)
    assert raised == (producer_id, epoch + 1)
    assert await one.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch) == raised
    assert await one.begin() == (producer_id, epoch + 2)
    late = one.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch)
    assert await error(late) is ErrorCode.PRODUCER_FENCED


async def test_requests_at_the_same_time_are_served_one_after_the_other(one: World) -> None:
    identity = await one.begin()
    adding = [one.transactions.add_partitions(NAME, *identity, [("t", n)], 0) for n in range(4)]
    told = await asyncio.gather(*adding, one.transactions.end(NAME, *identity, True, 0))
    assert told == [None] * 4 + [identity]
    assert [len(one.kinds(("t", n))) for n in range(4)] == [1] * 4
    many = await asyncio.gather(*(one.begin() for _ in range(5)))
    assert [epoch for _, epoch in many] == [1, 2, 3, 4, 5]


async def test_partitions_added_at_the_same_time_share_a_record(one: World) -> None:
    identity = await one.begin()
    before = one.coordinator.group.applied_index

    def add(*indexes: int, epoch: int = identity[1]) -> asyncio.Future[None]:
        places = [("t", index) for index in indexes]
        adding = one.transactions.add_partitions(NAME, identity[0], epoch, places, 2)
        return asyncio.ensure_future(adding)

    first = add(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # its turn has come
    others = [add(1), add(2), add(9, epoch=7), add(3)]
    told = await asyncio.gather(first, *others, return_exceptions=True)
    assert [type(each) for each in told] == [type(None)] * 3 + [RequestError, type(None)]
    assert one.now.partitions == tuple(("t", index) for index in range(4))
    assert one.coordinator.group.applied_index <= before + 3
    # What is added behind an end belongs to the next transaction.
    ending = asyncio.ensure_future(one.transactions.end(NAME, *identity, True, 2))
    await asyncio.sleep(0)
    late = add(0)
    await ending
    with pytest.raises(RequestError):
        await late
    waiting = [add(0, epoch=identity[1] + 1), add(1, epoch=identity[1] + 1)]
    await asyncio.sleep(0)
    one.coordinator.resign()
    for each in waiting:
        assert await error(each) is ErrorCode.NOT_COORDINATOR


async def test_requests_that_are_rejected_at_once(one: World) -> None:
    identity = await one.begin(("t", 0))
    now = one.transactions.verify_now
    assert now(VerificationRequest(NAME, *identity, add=True), [("t", 0)]) == {("t", 0): ErrorCode.NONE}
    not_yet = {("t", 1): ErrorCode.TRANSACTION_ABORTABLE}
    assert now(VerificationRequest(NAME, *identity, add=False), [("t", 1)]) == not_yet
    # To be added, which takes a commit.
    assert now(VerificationRequest(NAME, *identity, add=True), [("t", 1)]) is None
    ending = asyncio.ensure_future(one.transactions.end(NAME, *identity, True, 0))
    await asyncio.sleep(0)
    assert now(VerificationRequest(NAME, *identity, add=False), [("t", 0)]) is None
    await ending
    with pytest.raises(RequestError):
        now(VerificationRequest(NAME, identity[0] + 1, 0, add=False), [("t", 0)])


@pytest.mark.parametrize(
    ("name", "timeout_ms", "expected"),
    [
        ("", 1, ErrorCode.INVALID_REQUEST),
        (NAME, 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (NAME, 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
async def test_requests_that_no_producer_may_send(
    one: World, name: str, timeout_ms: int, expected: ErrorCode
) -> None:
    assert await error(one.transactions.init_producer_id(name, timeout_ms, -1, -1)) is expected


async def test_a_transaction_that_could_not_be_ended_does_not_begin(
    one: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOM_TO_END", one.broker.settings.largest_batch_bytes - 150)
    identity = await one.begin(("t", 0))
    more = one.transactions.add_partitions(NAME, *identity, [("t", 1), ("t" * 50, 1)], 0)
    assert await error(more) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert await one.transactions.end(NAME, *identity, True, 0) == identity


async def test_a_full_disk_lets_transactions_end(one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = await one.begin(("t", 0))
    group = one.coordinator.group
    has_space_for = group.log.has_space_for
    monkeypatch.setattr(
        group.log, "has_space_for", lambda size, *, reserved: reserved and has_space_for(size, reserved=True)
    )
    more = one.transactions.add_partitions(NAME, *identity, [("t", 1)], 0)
    assert await error(more) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await one.transactions.end(NAME, *identity, True, 0) == identity
    # that nothing is aborted, what producers without room try again and again, may not use what is kept
    ended = one.transactions.end(NAME, *identity, False, 2)
    assert await error(ended) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert one.state() is TransactionState.COMPLETE_COMMIT
    monkeypatch.setattr(group.log, "has_space_for", lambda size, *, reserved: False)
    assert await error(one.begin()) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_partition_of_a_newer_producer_is_left_alone(
    one: World, caplog: pytest.LogCaptureFixture
) -> None:
    identity = await one.begin(("t", 0), ("t", 1))
    partition = one.broker.assembly.cluster.partition("t", 1)
    assert partition is not None
    newer = TxnMarkerEntry(identity[0], 9, 1, False, 0)
    one.coordinator._appender.end_transactions([partition.log], newer)
    assert await one.transactions.end(NAME, *identity, True, 0) == identity
    await until(one, TransactionState.COMPLETE_COMMIT)
    assert one.kinds(("t", 0)) == [(ControlKind.COMMIT, 0)]
    assert one.kinds(("t", 1)) == [(ControlKind.ABORT, 9)]
    assert "a marker is rejected" in caplog.text


async def test_more_partitions_than_fit_one_entry(one: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTITIONS_PER_ENTRY", 3)
    identity = await one.begin(*one.places(own=True))
    await one.transactions.end(NAME, *identity, True, 0)
    await until(one, TransactionState.COMPLETE_COMMIT)
    assert [one.kinds(("t", n)) for n in range(4)] == [[(ControlKind.COMMIT, 0)]] * 4


# --- two log groups -----------------------------------------------------------------------------------------


async def test_what_is_decided_is_answered_before_every_partition_knows(two: World) -> None:
    own, others = two.places(own=True), two.places(own=False)
    assert own and others
    identity = await two.begin(*own, *others)
    before = two.coordinator.group.applied_index
    assert await two.transactions.end(NAME, *identity, True, 0) == identity
    assert two.coordinator.group.applied_index == before + 1  # the decision, with this log group's markers
    assert two.state() is TransactionState.PREPARE_COMMIT
    assert [two.kinds(place) for place in own] == [[(ControlKind.COMMIT, 0)]] * len(own)
    assert [two.kinds(place) for place in others] == [[]] * len(others)
    again = asyncio.ensure_future(two.transactions.end(NAME, *identity, True, 0))
    following = asyncio.ensure_future(two.transactions.add_partitions(NAME, *identity, own, 0))
    await asyncio.sleep(0.05)
    assert not again.done()
    assert two.markers.asked[0][0] == others
    two.markers.open.set()
    assert await again == identity
    await following
    assert two.state() is TransactionState.ONGOING
    assert [two.kinds(place) for place in others] == [[(ControlKind.COMMIT, 0)]] * len(others)


async def test_a_transaction_in_the_other_log_group_alone(two: World) -> None:
    two.markers.open.set()
    place = two.places(own=False)[0]
    identity = await two.begin(place)
    await two.transactions.end(NAME, *identity, False, 0)
    await until(two, TransactionState.COMPLETE_ABORT)
    assert two.kinds(place) == [(ControlKind.ABORT, 0)]


async def test_a_new_producer_waits_until_its_predecessor_is_through(two: World) -> None:
    producer_id, epoch = await two.begin(*two.places(own=False))
    begun = asyncio.ensure_future(two.begin())
    await asyncio.sleep(0.05)
    assert not begun.done()
    assert two.state() is TransactionState.PREPARE_ABORT
    two.markers.open.set()
    assert await begun == (producer_id, epoch + 2)


async def test_a_refusal_elsewhere_does_not_hold_the_id_up(
    two: World, caplog: pytest.LogCaptureFixture
) -> None:
    identity = await two.begin(*two.places(own=False))
    two.markers.refusal = RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer one")
    two.markers.open.set()
    await two.transactions.end(NAME, *identity, True, 0)
    await until(two, TransactionState.COMPLETE_COMMIT)
    assert "a newer one" in caplog.text


async def test_the_last_record_waits_for_room(two: World, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = await two.begin(*two.places(own=False))
    await two.transactions.end(NAME, *identity, True, 0)
    group, append = two.coordinator.group, two.coordinator.group.append
    refused = 0

    def full_twice(*arguments: object, **more: object) -> int:
        nonlocal refused
        if refused < 2:
            refused += 1
            raise StorageFull("no room")
        return append(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(group, "append", full_twice)
    two.markers.open.set()
    await until(two, TransactionState.COMPLETE_COMMIT)
    assert refused == 2


# --- a restart in each state --------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", ["1", "2"])
@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_restart_goes_on_from_what_is_committed(
    start_broker: StartBroker, groups: str, version: int, commit: bool
) -> None:
    world = await make(start_broker, lockstep_data_groups=groups)
    texts = {"lockstep_data_groups": groups, "transaction_state_log_num_partitions": "4"}

    async def restart() -> World:
        await world.broker.stop()
        return World(await start_broker(**texts))

    places = [("t", n) for n in range(4)]
    identity = await world.begin()
    world = await restart()  # in Empty
    assert world.state() is TransactionState.EMPTY
    await world.transactions.add_partitions(NAME, *identity, places, version)
    world = await restart()  # in Ongoing
    assert world.now.partitions == tuple(places)
    held = world.hold()
    told = await world.transactions.end(NAME, *identity, commit, version)
    if groups == "2":
        assert world.state() in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        assert held.asked
    world = await restart()  # in Prepare, or where it is over
    over = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    await until(world, over)
    kind = ControlKind.COMMIT if commit else ControlKind.ABORT
    for place in places:
        found = world.kinds(place)
        assert set(found) == {(kind, told[1])}
        # Of the first version a newer coordinator's marker is written again: it keeps late ones out.
        assert len(found) == 1 or (groups == "2" and version == 0)
    world = await restart()
    assert world.state() is over
    assert await world.transactions.end(NAME, *identity, commit, version) == told


# --- time ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", ["1", "2"])
@pytest.mark.parametrize("ahead_ms", [0, 10**11], ids=["", "a clock was ahead once"])
async def test_a_transaction_that_takes_too_long_is_aborted(
    start_broker: StartBroker, groups: str, ahead_ms: int
) -> None:
    world = await make(
        start_broker,
        lockstep_data_groups=groups,
        transaction_abort_timed_out_transaction_cleanup_interval_ms="20",
    )
    for group in world.broker.groups.values():
        group._replica.time_ms += ahead_ms  # as one frame of another leader leaves it: it stands still
    producer_id, epoch = await world.transactions.init_producer_id(NAME, 50, -1, -1)
    places = [("t", n) for n in range(4)]
    await world.transactions.add_partitions(NAME, producer_id, epoch, places, 0)
    await until(world, TransactionState.COMPLETE_ABORT)
    assert [world.kinds(place) for place in places] == [[(ControlKind.ABORT, epoch + 1)]] * 4
    late = world.transactions.end(NAME, producer_id, epoch, True, 0)
    assert await error(late) is ErrorCode.PRODUCER_FENCED
    # It may come back, if nobody else has: as with a Kafka of transaction version 2.
    back = await world.transactions.init_producer_id(NAME, TIMEOUT_MS, producer_id, epoch)
    assert back == (producer_id, epoch + 1)
    assert await world.broker.assembly.transaction_expiration.abort_overdue() == 0


async def test_transactions_one_after_the_other_are_not_taken_for_one_that_lasts(
    start_broker: StartBroker,
) -> None:
    """The log's time stands still, so that all of them begin at the same moment of it."""
    world = await make(start_broker)
    expiration = world.broker.assembly.transaction_expiration
    for group in world.broker.groups.values():
        group._replica.time_ms += 10**11
    producer_id, epoch = await world.transactions.init_producer_id(NAME, 100, -1, -1)
    for _ in range(3):
        await world.transactions.add_partitions(NAME, producer_id, epoch, [("t", 0)], 0)
        assert await expiration.abort_overdue() == 0
        await asyncio.sleep(0.07)
        producer_id, epoch = await world.transactions.end(NAME, producer_id, epoch, True, 0)
        await until(world, TransactionState.COMPLETE_COMMIT)
    await world.transactions.add_partitions(NAME, producer_id, epoch, [("t", 0)], 0)
    assert await expiration.abort_overdue() == 0
    await asyncio.sleep(0.12)
    assert await expiration.abort_overdue() == 1


async def test_a_leader_whose_clock_was_ahead_makes_no_transaction_late(one: World) -> None:
    identity = await one.begin(("t", 0))
    for group in one.broker.groups.values():
        group._replica.time_ms += 10**8
    assert one.coordinator.time_ms() > one.now.start_ms + TIMEOUT_MS
    assert await one.broker.assembly.transaction_expiration.abort_overdue() == 0
    assert await one.transactions.end(NAME, *identity, True, 0) == identity


async def test_ids_that_are_not_used_are_forgotten(start_broker: StartBroker) -> None:
    world = await make(start_broker, transactional_id_expiration_ms="1")
    expiration = world.broker.assembly.transaction_expiration
    identity = await world.begin(("t", 0))
    await asyncio.sleep(0.01)
    assert await expiration.remove_expired() == 0  # a transaction is under way
    await world.transactions.end(NAME, *identity, True, 0)
    await asyncio.sleep(0.01)
    assert await expiration.remove_expired() == 1
    late = world.transactions.end(NAME, *identity, True, 0)
    assert await error(late) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    with pytest.raises(RequestError) as refused:
        world.transactions.describe(NAME)
    assert refused.value.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_a_leader_whose_clock_was_ahead_makes_no_id_old(one: World) -> None:
    """Its time stays in the log when the clock is right again."""
    identity = await one.begin(("t", 0))
    await one.transactions.end(NAME, *identity, True, 0)
    await until(one, TransactionState.COMPLETE_COMMIT)
    for group in one.broker.groups.values():
        group._replica.time_ms += 10**11
    expiration_ms = one.broker.assembly.cluster.settings.transactional_id_expiration_ms
    assert one.coordinator.time_ms() > one.now.update_ms + expiration_ms
    assert await one.broker.assembly.transaction_expiration.remove_expired() == 0
    one.coordinator.remove_expired(NAME, expiration_ms)  # whoever asked
    assert (await one.begin())[0] == identity[0], "after that in the id's line, and as the same producer"


# --- a leadership that is over ------------------------------------------------------------------------------


async def test_pending_requests_fail_when_the_leadership_is_lost(two: World) -> None:
    coordinator = two.coordinator
    identity = await two.begin(*two.places(own=False))
    await two.transactions.end(NAME, *identity, True, 0)
    waiting = asyncio.ensure_future(two.transactions.end(NAME, *identity, True, 0))
    await asyncio.sleep(0.02)
    coordinator.resign()
    assert await error(waiting) is ErrorCode.NOT_COORDINATOR
    assert await error(two.begin()) is ErrorCode.NOT_COORDINATOR
    coordinator.prepare_load()
    assert await error(two.begin()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    two.markers.open.set()
    coordinator.load()
    assert await two.begin() == (identity[0], identity[1] + 1)  # behind what was left to do
