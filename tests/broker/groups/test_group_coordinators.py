"""The front door: whose group it is, how `__consumer_offsets` comes to be, what expires, what stays."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.groups.group_records import (
    CommittedOffset,
    GroupMetadata,
    Record,
    RecordedMember,
    group_record,
    offset_record,
)
from lockstep.broker.groups.offset_expiration import OffsetExpiration, expired
from lockstep.broker.metadata import topic_validation
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS, CONSUMER_OFFSETS_TOPIC_ID
from lockstep.broker.requests.errors import RequestError
from lockstep.broker.server import Broker
from lockstep.protocol.errors import ErrorCode
from tests.broker.conftest import StartBroker
from tests.broker.controller.api.configs import BROKER, SET, TOPIC, alter
from tests.broker.fakes import forget_nothing
from tests.broker.waiting import until
from tests.broker.wire import Client

MINUTE_MS = 60_000
RETENTION_MS = 10_080 * MINUTE_MS


async def write(broker: Broker, group_id: str, *records: Record) -> None:
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    broker.assembly.consumer_groups.store(group_id).append(group_id, records, done.set_result)
    assert await done is ErrorCode.NONE


async def test_the_topic_is_made_at_first_use(broker: Broker, client: Client) -> None:
    groups = broker.assembly.consumer_groups
    assert not groups.is_ready
    with pytest.raises(RequestError) as refused:
        groups.coordinator("g")
    assert refused.value.error is ErrorCode.NOT_COORDINATOR
    await asyncio.gather(*(groups.create_topic(broker.assembly.forwarder) for _ in range(5)))
    topic = broker.assembly.cluster.topic(CONSUMER_OFFSETS)
    assert topic is not None and topic.is_internal
    assert (topic.topic_id, len(topic.partitions)) == (CONSUMER_OFFSETS_TOPIC_ID, 50)
    assert topic.config.cleanup_policy == ("compact",)
    assert groups.partition_of("g") == 103 % 50
    assert groups.of("g") in groups.active_shards()


async def test_groups_are_spread_over_the_log_groups(start_broker: StartBroker) -> None:
    broker = await start_broker(lockstep_data_groups="3", offsets_topic_num_partitions="6")
    groups = broker.assembly.consumer_groups
    await groups.create_topic(broker.assembly.forwarder)
    stores = {groups.store(f"group-{number}") for number in range(50)}
    assert len(stores) == 3 == len(groups.active_shards())
    for number in range(20):
        await write(
            broker, f"group-{number}", offset_record(f"group-{number}", "t", 0, CommittedOffset(number))
        )
    await broker.stop()
    broker = await start_broker(lockstep_data_groups="3", offsets_topic_num_partitions="9")
    groups = broker.assembly.consumer_groups
    assert groups.partition_of("g") == 103 % 6, (
        "the number of partitions is that of the topic, once it is there"
    )
    for number in range(20):
        offsets = groups.store(f"group-{number}").state.offsets(f"group-{number}")
        assert offsets[("t", 0)].offset == number


async def test_an_ordinary_topic_of_that_name_is_left_alone(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(topic_validation.FIXED_IDS, CONSUMER_OFFSETS)
    broker = await start_broker()
    await broker.assembly.topics.ensure_topic(CONSUMER_OFFSETS)
    await broker.stop()
    monkeypatch.undo()
    broker = await start_broker()
    assert "is an ordinary one" in caplog.text
    groups = broker.assembly.consumer_groups
    with pytest.raises(RequestError) as refused:
        await groups.create_topic(broker.assembly.forwarder)
    assert refused.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(RequestError) as not_served:
        groups.coordinator("g")
    assert not_served.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    topic = broker.assembly.cluster.topic(CONSUMER_OFFSETS)
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    await groups.create_topic(broker.assembly.forwarder)
    assert groups.coordinator("g")


MEMBER = RecordedMember("m", None, "c", "/h", 10_000, 10_000, b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff", b"")


OLD_COMMIT = CommittedOffset(1, commit_time_ms=-RETENTION_MS)
SIMPLE, NOT_SAID = "simple", "not said"


@pytest.mark.parametrize(
    ("empty_since", "committed", "gone"),
    [
        # a simple consumer: by the time of the commit
        (SIMPLE, OLD_COMMIT, True),
        (SIMPLE, CommittedOffset(1, commit_time_ms=-RETENTION_MS + 1), False),
        (SIMPLE, CommittedOffset(1, commit_time_ms=0, expire_time_ms=0), True),
        (SIMPLE, CommittedOffset(1, commit_time_ms=-RETENTION_MS, expire_time_ms=1), False),
        # a group without members: since it has none, whatever the commit
        (-RETENTION_MS, CommittedOffset(1), True),
        (-5, OLD_COMMIT, False),
        # an old record, which does not say since when
        (NOT_SAID, OLD_COMMIT, True),
        (NOT_SAID, CommittedOffset(1), False),
    ],
)
async def test_what_expires(
    broker: Broker, empty_since: int | str, committed: CommittedOffset, gone: bool
) -> None:
    """Times are relative to now."""
    groups = broker.assembly.consumer_groups
    await groups.create_topic(broker.assembly.forwarder)
    now_ms = groups.store("g").time_ms() + 1_000_000
    if empty_since != SIMPLE:
        since_ms = now_ms + empty_since if isinstance(empty_since, int) else -1
        await write(broker, "g", group_record("g", GroupMetadata("consumer", 2, None, None, since_ms, ())))
    expire_time_ms = -1 if committed.expire_time_ms == -1 else now_ms + committed.expire_time_ms
    committed = CommittedOffset(1, -1, "", now_ms + committed.commit_time_ms, expire_time_ms)
    await write(broker, "g", offset_record("g", "t", 0, committed))
    found = expired(groups.store("g"), groups.coordinator("g"), "g", now_ms, RETENTION_MS)
    assert found == ([("t", 0)] if gone else [])


async def test_what_members_subscribe_to_does_not_expire(start_broker: StartBroker) -> None:
    broker = await start_broker()
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    old = CommittedOffset(1, commit_time_ms=1)
    stable = GroupMetadata("consumer", 1, "range", "m", 1, (MEMBER,))
    await write(
        broker,
        "g",
        group_record("g", stable),
        offset_record("g", "t", 0, old),
        offset_record("g", "u", 0, old),
    )
    await broker.stop()
    broker = await start_broker()
    groups = broker.assembly.consumer_groups
    assert not groups.coordinator("g").is_empty("g")
    now_ms = groups.store("g").time_ms()
    assert expired(groups.store("g"), groups.coordinator("g"), "g", now_ms, RETENTION_MS) == [("u", 0)]


async def test_expired_groups_go_and_busy_ones_stay(broker: Broker, client: Client) -> None:
    groups = broker.assembly.consumer_groups
    await groups.create_topic(broker.assembly.forwarder)
    await client.create("t", 3)
    old, new = (
        CommittedOffset(1, commit_time_ms=1),
        CommittedOffset(1, commit_time_ms=groups.store("g").time_ms()),
    )
    await write(broker, "old", *(offset_record("old", "t", index, old) for index in range(3)))
    await write(broker, "mixed", offset_record("mixed", "t", 0, old), offset_record("mixed", "t", 1, new))
    await write(broker, "empty", group_record("empty", GroupMetadata("consumer", 9, None, None, 1, ())))
    groups.store("busy").append("busy", [offset_record("busy", "t", 0, old)], lambda error: None)
    expiration = OffsetExpiration(groups, broker.assembly.cluster)
    assert await expiration.enforce() == 4
    for store, _ in groups.active_shards():
        await store.group.committed()
    assert groups.store("old").state.offsets("old") == {}
    assert groups.store("mixed").state.offsets("mixed") == {("t", 1): new}
    left = {group_id for store, _ in groups.active_shards() for group_id in store.state.group_ids()}
    assert left == {"mixed", "busy"}


async def test_a_leader_whose_clock_was_ahead_makes_no_offset_old(broker: Broker, client: Client) -> None:
    """Its time stays in the log when the clock is right again."""
    groups = broker.assembly.consumer_groups
    await groups.create_topic(broker.assembly.forwarder)
    await client.create("t")
    store = groups.store("g")
    now_ms = store.time_ms()
    emptied = GroupMetadata("consumer", 2, None, None, now_ms, ())
    await write(
        broker,
        "g",
        group_record("g", emptied),
        offset_record("g", "t", 0, CommittedOffset(1, commit_time_ms=now_ms)),
    )
    store.group._replica.time_ms += 2 * RETENTION_MS
    assert store.time_ms() > now_ms + RETENTION_MS
    assert await OffsetExpiration(groups, broker.assembly.cluster).enforce() == 0
    await store.group.committed()
    assert set(store.state.offsets("g")) == {("t", 0)}


async def test_a_look_that_fails_is_not_the_last(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker(offsets_retention_check_interval_ms="10")
    groups = broker.assembly.consumer_groups
    mistakes = [RuntimeError("a mistake of ours"), RuntimeError("another")]
    looked = asyncio.Event()

    def active_shards() -> list[Any]:
        if mistakes:
            raise mistakes.pop()
        looked.set()
        return []

    monkeypatch.setattr(groups, "active_shards", active_shards)
    await asyncio.wait_for(looked.wait(), 5)
    assert caplog.text.count("the expiration of committed offsets failed") == 2


async def test_the_largest_record_of_a_group_follows_the_topics_config(
    broker: Broker, client: Client
) -> None:
    groups = broker.assembly.consumer_groups
    await groups.create_topic(broker.assembly.forwarder)
    limits = groups.coordinator("g")._limits
    assert limits.max_record_bytes == broker.assembly.cluster.settings.message_max_bytes
    assert await alter(client, (BROKER, ""), ("message.max.bytes", SET, "150000")) == (0, None)
    assert limits.max_record_bytes == 150_000
    assert await alter(client, (TOPIC, CONSUMER_OFFSETS), ("max.message.bytes", SET, "100000")) == (0, None)
    assert (limits.max_record_bytes, limits.max_group_bytes) == (100_000, 1_600_000)


async def test_offsets_of_a_deleted_topic_go_with_it(broker: Broker) -> None:
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    for name in ("t", "kept"):
        await broker.assembly.topics.create(broker.assembly.topics.plan(name, 2, 1, {}))
    records = [
        offset_record("g", name, index, CommittedOffset(1)) for name in ("t", "kept") for index in (0, 1)
    ]
    store = broker.assembly.consumer_groups.store("g")
    store.append("g", records, lambda error: None)  # under way while the topic goes
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    await store.group.committed()
    assert set(store.state.offsets("g")) == {("kept", 0), ("kept", 1)}


async def test_a_full_disk_without_room_for_the_ends_of_offsets_keeps_no_topic_from_going(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker()
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    topics = broker.assembly.topics
    await topics.create(topics.plan("t", 1, 1, {}))
    await write(broker, "g", offset_record("g", "t", 0, CommittedOffset(1)))
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    with monkeypatch.context() as full:
        full.setattr(
            type(broker.groups[0].log), "has_space_for", lambda self, *_, reserved=False, **__: reserved
        )
        await topics.delete(topic)
        assert topic.topic_id not in {each.topic_id for each in broker.groups[1].partitions.values()}
        assert broker.assembly.consumer_groups.store("g").state.topics() == {"t": 1}
        with pytest.raises(RequestError):  # a new one would begin with the offsets of this one
            topics.plan("t", 1, 1, {})

    def is_free() -> bool:
        with contextlib.suppress(RequestError):
            return topics.plan("t", 1, 1, {}).name == "t"
        return False

    await until(is_free, 60)
    await topics.create(topics.plan("t", 1, 1, {}))
    assert broker.assembly.consumer_groups.store("g").state.offsets("g") == {}


async def test_a_deletion_that_a_crash_cut_short(start_broker: StartBroker) -> None:
    broker = await start_broker()
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    await broker.assembly.topics.create(broker.assembly.topics.plan("t", 1, 1, {}))
    await write(broker, "g", offset_record("g", "t", 0, CommittedOffset(1)))
    broker.assembly.topics.commands.forget_offsets_here = forget_nothing
    topic = broker.assembly.cluster.topic("t")
    assert topic is not None
    await broker.assembly.topics.delete(topic)
    assert broker.assembly.consumer_groups.store("g").state.topics() == {"t": 1}
    await broker.stop()
    broker = await start_broker()
    await until(lambda: not broker.assembly.consumer_groups.store("g").state.topics(), 60)


async def test_retention_leaves_the_offsets_topic_alone(start_broker: StartBroker) -> None:
    broker = await start_broker(log_retention_ms="1", log_retention_bytes="1")
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    for number in range(5):
        await write(broker, "g", offset_record("g", "t", 0, CommittedOffset(number)))
    await asyncio.sleep(0.01)
    assert await broker.enforce_retention() == 0
    partition = broker.assembly.cluster.partition(
        CONSUMER_OFFSETS, broker.assembly.consumer_groups.partition_of("g")
    )
    assert partition is not None and partition.log.log_start_offset == 0


async def test_a_checkpoint_carries_the_groups(start_broker: StartBroker, tmp_path: Path) -> None:
    """Enough commits to roll segments several times; then two restarts, clean and not."""
    broker = await start_broker()
    await broker.assembly.consumer_groups.create_topic(broker.assembly.forwarder)
    metadata = "m" * 4000
    for number in range(30):
        records = [
            offset_record("g", "t", index, CommittedOffset(number, -1, metadata)) for index in range(40)
        ]
        await write(broker, "g", *records)
    store = broker.assembly.consumer_groups.store("g")
    assert store.group.checkpoint_index > 0
    before = store.state
    await broker.stop()
    for _ in range(2):
        broker = await start_broker()
        assert broker.assembly.consumer_groups.store("g").state == before
        await broker.stop()
