"""What a node reports of records that a salvaged log lacks, once it knows its topics."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.broker.fetch.api.list_offsets import MAX_TIMESTAMP
from lockstep.broker.fetch.follower_fetch import is_whole
from lockstep.broker.maintenance.damage import HealedDamageLog, damage_text, node_damage
from lockstep.broker.metadata.metadata_cache import CONSUMER_OFFSETS_TOPIC_ID, MetadataCache
from lockstep.broker.metadata.metadata_image import MetadataImage, TopicEntry, TopicState
from lockstep.broker.node.missing_records import MAX_LOGGED_PARTITIONS, MissingRecordsReview
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.broker.settings.config import Settings
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lockstep.protocol.records.batch import read_header
from lockstep.storage.log.damage import DamagedRange
from lockstep.storage.log_group import LogGroup
from lockstep.storage.missing_records import MissingRecords
from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NO_SEGMENT
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartCluster
from tests.broker.maintenance.test_damage import BATCHES, _bytes, _trouble, ask, read, value
from tests.broker.waiting import until
from tests.broker.wire import Client, batch

DELETED, COMPACTED, DEFAULT, UNKNOWN = (bytes([number]) * 16 for number in (1, 2, 3, 4))
BEGIN = (
    "log group 1: its state file or damage file was damaged, and its log begins with frame 13 in segment 7: "
)
REMEDY = (
    ". To get missing records from other nodes, start a node of a cluster with the same number and an empty "
    "directory"
)
GIVE_UP = (
    " (unless a topic was compacted before, and compaction removed them); their consumers get "
    "CORRUPT_MESSAGE until `lockstep log skip-damage TOPIC-PARTITION` makes consumers skip them"
)


class Damage:
    """A damage table with these unconfirmed ranges."""

    def __init__(self, ranges: list[DamagedRange]) -> None:
        self.ranges = ranges
        self.confirmed: list[DamagedRange] = []
        self.possible: list[DamagedRange] = []
        self.error: OSError | None = None

    def list_unconfirmed(self) -> list[DamagedRange]:
        return self.ranges

    def resolve_missing(
        self, confirmed: list[DamagedRange], dropped: list[DamagedRange], possible: list[DamagedRange]
    ) -> None:
        if self.error is not None:
            raise self.error
        self.confirmed += confirmed
        self.possible += possible
        self.ranges = [each for each in self.ranges if each not in (*confirmed, *dropped, *possible)]


class Node:
    """A node with topics and one data group, which lacks records of these: (topic id, index, first, end)."""

    def __init__(self, *missing: tuple[bytes, int, int, int], settings: Settings | None = None) -> None:
        self.image = MetadataImage()
        self.add("parcels", DELETED, {"cleanup.policy": "delete"})
        self.add("stocks", COMPACTED, {"cleanup.policy": "compact,delete"})
        self.add("plain", DEFAULT, {})
        self.damage = Damage([])
        self.partitions: dict[int, PartitionLog] = {}
        for local_id, (topic_id, index, first, end) in enumerate(missing, 1):
            self.partitions[local_id] = PartitionLog(local_id, topic_id, index)
            self.damage.ranges.append(DamagedRange(0, NO_SEGMENT, local_id, first, end, "gone", False, False))
        self.group = SimpleNamespace(
            group_id=1,
            partitions=self.partitions,
            control=SimpleNamespace(partitions=self.partitions, next_local_id=9),
            possible_losses=[],
            log=SimpleNamespace(
                damage=self.damage, first_offset=lambda _: None, oldest_index=13, oldest_segment=7
            ),
        )
        self.metadata: Any = SimpleNamespace(
            group_id=0,
            applied_index=9,
            recovered_index=9,
            raft=SimpleNamespace(last_index=20),
            possible_losses=[],
            log=SimpleNamespace(damage=Damage([])),
        )
        cluster = SimpleNamespace(
            groups={0: self.metadata, 1: self.group}, image=self.image, settings=settings or Settings()
        )
        self.review = MissingRecordsReview(cast(MetadataCache, cluster))

    def add(self, name: str, topic_id: bytes, overrides: dict[str, str]) -> None:
        self.image.topics[topic_id] = TopicEntry(name, topic_id, [1], overrides, TopicState.READY)

    def logged(self, caplog: pytest.LogCaptureFixture) -> str:
        caplog.clear()
        self.review.update()
        return "\n".join(record.getMessage() for record in caplog.records)


def test_missing_records_are_named_once_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    node = Node((DELETED, 2, 5, 40), (DEFAULT, 0, 0, 9))
    assert node.logged(caplog) == (
        f"{BEGIN}these records above log starts are missing: parcels-2: offsets 5 to 39, plain-0: offsets 0 "
        f"to 8{GIVE_UP}{REMEDY}"
    )
    assert [each.local_id for each in node.damage.confirmed] == [1, 2]
    assert node.logged(caplog) == ""


def test_what_compaction_may_have_removed_is_no_certain_loss(caplog: pytest.LogCaptureFixture) -> None:
    node = Node((COMPACTED, 0, 0, 9))
    assert node.logged(caplog) == (
        f"{BEGIN}these records are missing, or compaction removed them: stocks-0: offsets 0 to 8 (consumers "
        f"on this node skip these offsets without an error where no other node can lead){REMEDY}"
    )
    assert node.damage.confirmed == node.damage.ranges == []
    assert [each.local_id for each in node.damage.possible] == [1]
    compacting = Node((DEFAULT, 0, 0, 9), settings=Settings(log_cleanup_policy=("compact",)))
    assert "or compaction removed them: plain-0" in compacting.logged(caplog)
    assert compacting.damage.confirmed == []


def test_nothing_is_reviewed_before_the_topics_are_known(caplog: pytest.LogCaptureFixture) -> None:
    node = Node((DELETED, 0, 0, 9))
    node.metadata.applied_index = 8
    assert node.logged(caplog) == "" and len(node.damage.ranges) == 1
    node.metadata.raft.last_index = 8  # what its log held was truncated
    assert "parcels-0" in node.logged(caplog)


def test_a_topic_that_is_not_known_is_named_as_such_until_it_is(caplog: pytest.LogCaptureFixture) -> None:
    node = Node((UNKNOWN, 1, 0, 4))
    assert node.logged(caplog) == (
        f"{BEGIN}these records are missing, of topics that this node does not know: topic {UNKNOWN.hex()}-1: "
        f"offsets 0 to 3{REMEDY}"
    )
    assert node.logged(caplog) == "" and len(node.damage.ranges) == 1
    node.add("late", UNKNOWN, {})
    assert "log starts are missing: late-1: offsets 0 to 3" in node.logged(caplog)
    assert len(node.damage.confirmed) == 1


def test_possible_losses_are_named_as_such(caplog: pytest.LogCaptureFixture) -> None:
    node = Node((DELETED, 2, 0, 0))
    node.damage.ranges = []
    node.group.possible_losses = [
        MissingRecords(DELETED, 2, 1, 5, 40),
        MissingRecords(CONSUMER_OFFSETS_TOPIC_ID, 0, 1, 0, 9),
        MissingRecords(DELETED, 3, 99, 5, 40),  # closed since
    ]
    assert node.logged(caplog) == (
        f"{BEGIN}these records are missing, or were deleted before a power loss, which log.flush=os cannot "
        f"distinguish: parcels-2: offsets 5 to 39{REMEDY}"
    )
    assert node.logged(caplog) == ""


def test_nothing_is_logged_of_internal_topics_deleted_ones_or_without_a_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert Node().logged(caplog) == ""
    internal = Node((CONSUMER_OFFSETS_TOPIC_ID, 0, 0, 9))
    assert internal.logged(caplog) == "" and internal.damage.ranges == []
    unopened = Node((DELETED, 0, 0, 9))
    opened = dict(unopened.partitions)
    unopened.partitions.clear()
    unopened.group.control.next_local_id = 1
    assert unopened.logged(caplog) == "" and len(unopened.damage.ranges) == 1, "a restart has yet to open it"
    unopened.partitions.update(opened)
    assert "parcels-0" in unopened.logged(caplog)
    deleted = Node((DELETED, 0, 0, 9))
    deleted.partitions.clear()
    assert deleted.logged(caplog) == "" and deleted.damage.ranges == deleted.damage.confirmed == []


def test_a_follower_serves_nobody_while_records_may_be_missing() -> None:
    missing = DamagedRange(0, NO_SEGMENT, 1, 0, 9, "gone", False, False)
    damage = SimpleNamespace(missing={1: [missing]})
    log = SimpleNamespace(whole_index=3, damage=damage, first_offset=lambda _: None)
    control = SimpleNamespace(partitions={1: PartitionLog(1, DELETED, 0)})
    group = SimpleNamespace(is_leader=False, applied_index=3, log=log, control=control)
    assert not is_whole(cast(LogGroup, group))
    damage.missing = {}
    assert is_whole(cast(LogGroup, group))
    log.whole_index = 4
    assert not is_whole(cast(LogGroup, group))


def test_a_line_names_so_many_partitions_at_most(caplog: pytest.LogCaptureFixture) -> None:
    text = Node(*((DELETED, number, 0, 9) for number in range(MAX_LOGGED_PARTITIONS + 3))).logged(caplog)
    assert text.count("offsets 0 to 8") == MAX_LOGGED_PARTITIONS and " and 3 more partitions" in text


def test_a_review_that_cannot_be_written_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    node = Node((DELETED, 0, 0, 9))
    node.damage.error = OSError("no room")
    assert node.logged(caplog) == (
        "log group 1: the damage file, which is to record the missing records, cannot be written: no room"
    )
    assert node.logged(caplog) == "", "the same failure is one line"
    node.damage.error = None
    assert "parcels-0: offsets 0 to 8" in node.logged(caplog)


async def without_oldest_segments(start_cluster: StartCluster) -> tuple[BrokerCluster, int]:
    """A cluster with `BATCHES` batches in topic t, and a node of it that lost its state and its two oldest
    segments while it was stopped, and is a voter again."""
    cluster = await start_cluster(
        3,
        lockstep_data_groups="1",
        lockstep_scrub_interval_ms="0",
        lockstep_tail_cache_bytes="0",
        auto_leader_rebalance_enable="false",
        log_flush="always",
    )
    await cluster.settled()
    leading, writer = await cluster.create("t")
    for number in range(BATCHES):
        assert (await writer.produce("t", batch(value(number)))).error_code == 0
    node_id = next(each for each in cluster.brokers if each != leading)
    broker = cluster.brokers[node_id]
    await until(lambda: broker.groups[1].applied_index == cluster.brokers[leading].groups[1].applied_index)
    await until(lambda: len(broker.groups[1].log.segments()) > 3)
    oldest = [each.sequence for each in broker.groups[1].log.segments()[:2]]
    await cluster.stop(node_id)
    (directory,) = cluster.directory.joinpath(str(node_id)).rglob("groups/1")
    for sequence in oldest:
        (directory / f"{sequence:016d}.segment").unlink()
        (directory / f"{sequence:016d}.index").unlink(missing_ok=True)
    (directory / "state").write_bytes(bytes(8192))
    await cluster.start(node_id)
    leader = cluster.brokers[leading].groups[1]

    def is_back() -> bool:
        group = cluster.brokers[node_id].groups.get(1)
        return group is not None and group.raft.member_id in leader.raft.configuration.voters

    await cluster.until(is_back, "voter in the place of the one that lost its state")
    return cluster, node_id


async def searched(client: Client, timestamp: int) -> ListOffsetsPartitionResponse:
    """The result of ListOffsets for partition 0 of topic t."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])])
    response = await client.call(request, 7)
    found: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return found


def report_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no node report its missing records, so that one may lead without them."""
    monkeypatch.setattr(NodeRegistry, "_misses_records", lambda *_: False)


async def test_consumers_get_the_records_of_another_node(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The node without them serves nobody there, and hands the leadership over as soon as it has it."""
    cluster, node_id = await without_oldest_segments(start_cluster)
    broker = cluster.brokers[node_id]
    await until(lambda: bool(node_damage(broker.assembly.cluster)))
    last = node_damage(broker.assembly.cluster)[0]["last_offset"]
    caplog.set_level(logging.INFO)
    caplog.clear()
    await cluster.led_by(1, node_id)

    def is_handed_over() -> bool:
        leader = cluster.leader_of(1)
        return leader is not None and leader != node_id

    await cluster.until(is_handed_over, "leadership at a node that has all records")
    assert [
        each
        for each in caplog.messages
        if each.endswith(f": records are missing or damaged at node {node_id}")
    ]
    leader = cluster.leader_of(1)
    assert leader is not None
    (data,) = await read(await cluster.client(leader), {0: 0})
    assert data.error_code == 0 and read_header(_bytes(data)).base_offset == 0
    client = await cluster.client(node_id)
    for offset in (last, last + 1):
        (data,) = await read(client, {0: offset})
        assert (data.error_code, data.records or b"") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert not cluster.brokers[leader].assembly.nodes.may_serve(node_id, 1)


async def test_missing_records_are_damage_until_they_are_given_up(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_nothing(monkeypatch)
    cluster, node_id = await without_oldest_segments(start_cluster)
    broker = cluster.brokers[node_id]
    await until(lambda: bool(node_damage(broker.assembly.cluster)))
    (known,) = node_damage(broker.assembly.cluster)
    last = known["last_offset"]
    assert (known["topic"], known["partition"], known["first_offset"], known["segment"]) == ("t", 0, 0, 0)
    assert damage_text(known) == f"t-0: offsets 0 to {last} are missing (log group 1)" and last >= 2
    assert _trouble(broker) == damage_text(known)
    (line,) = [each for each in caplog.messages if "these records above log starts are missing" in each]
    assert f"t-0: offsets 0 to {last} (unless" in line
    client = await cluster.client(node_id)
    await cluster.led_by(1, node_id)
    (data,) = await read(client, {0: last})
    assert (data.error_code, data.records or b"") == (ErrorCode.CORRUPT_MESSAGE, b"")
    (data,) = await read(client, {0: last + 1})
    assert data.error_code == 0 and read_header(_bytes(data)).base_offset == last + 1
    status = await ask(client, do="status")
    assert status["healthy"] is False and status["damage"] == [
        {"node": node_id, **known, "intact_on": sorted({1, 2, 3} - {node_id}), "unknown_on": []}
    ]
    for timestamp in (0, 5, MAX_TIMESTAMP):
        assert (await searched(client, timestamp)).error_code == ErrorCode.CORRUPT_MESSAGE, (
            "may be in the gap"
        )
    given = (await ask(client, do="give_up", topic="t", partition=0, force=True))["given_up"]
    assert [each["last_offset"] for each in given] == [last]  # type: ignore[attr-defined]
    (data,) = await read(client, {0: 0})
    assert data.error_code == 0 and read_header(_bytes(data)).base_offset == last + 1
    assert (await searched(client, 0)).offset == last + 1
    assert _trouble(broker) == "" and "skipped" in damage_text(node_damage(broker.assembly.cluster)[0])


async def test_missing_records_are_known_at_the_next_start(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, node_id = await without_oldest_segments(start_cluster)
    await until(lambda: bool(node_damage(cluster.brokers[node_id].assembly.cluster)))
    known = node_damage(cluster.brokers[node_id].assembly.cluster)
    await cluster.stop(node_id)
    caplog.clear()
    await cluster.start(node_id)
    await until(lambda: node_damage(cluster.brokers[node_id].assembly.cluster) == known)
    (line,) = [each for each in caplog.messages if "are missing since" in each]
    assert line.startswith(
        "log group 1: 1 ranges of offsets are missing since an earlier start, and 0 may be;"
    )
    assert not [each for each in caplog.messages if "log files" in each]


async def test_what_compaction_may_have_removed_is_read_at_another_node(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only another node knows, so it leads; where none can, this one passes over what may be missing."""
    monkeypatch.setattr(MissingRecordsReview, "_cleanup_policy", lambda *_: "compact")
    cluster, node_id = await without_oldest_segments(start_cluster)
    broker = cluster.brokers[node_id]
    await until(lambda: bool(node_damage(broker.assembly.cluster)))
    (known,) = node_damage(broker.assembly.cluster)
    last = known["last_offset"]
    text = f"t-0: offsets 0 to {last} are missing, or compaction removed them (log group 1)"
    assert damage_text(known) == text == _trouble(broker)
    leader = cluster.leader_of(1)
    assert leader not in (None, node_id)
    assert leader is not None and not cluster.brokers[leader].assembly.nodes.may_serve(node_id, 1)
    client = await cluster.client(node_id)
    (data,) = await read(client, {0: 0})
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    report_nothing(monkeypatch)  # as where no node has them
    await cluster.led_by(1, node_id)
    (data,) = await read(client, {0: 0})
    assert data.error_code == 0 and read_header(_bytes(data)).base_offset == last + 1
    given = (await ask(client, do="give_up", topic="t", partition=0, force=True))["given_up"]
    assert [each["last_offset"] for each in given] == [last]  # type: ignore[attr-defined]
    assert _trouble(broker) == ""
    assert damage_text(node_damage(broker.assembly.cluster)[0]).endswith("missing and skipped (log group 1)")


async def test_missing_records_do_not_spread_by_a_snapshot(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_nothing(monkeypatch)
    cluster, node_id = await without_oldest_segments(start_cluster)
    await until(lambda: bool(node_damage(cluster.brokers[node_id].assembly.cluster)))
    await cluster.led_by(1, node_id)
    third = next(each for each in cluster.brokers if each != node_id)
    await cluster.stop(third)
    cluster.wipe(third)
    await cluster.start(third)
    await cluster.until(
        lambda: any("no snapshot is sent to member" in each for each in caplog.messages), "a line about it"
    )
    other = next(each for each in cluster.brokers if each not in (node_id, third))
    await cluster.led_by(1, other)
    group = cluster.brokers[node_id].groups[1]
    end = next(each.high_watermark for n, each in group.partitions.items() if n)

    def has_all() -> bool:
        found = cluster.brokers[third].assembly.cluster.partition("t", 0)
        return found is not None and found.is_here and found.log.high_watermark == end

    await cluster.until(has_all, "copy of the member that has all")
    (data,) = await read(await cluster.client(third), {0: 0})
    assert data.error_code == 0 and read_header(_bytes(data)).base_offset == 0


async def test_missing_records_that_are_deleted_are_reported_no_more(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    report_nothing(monkeypatch)
    cluster, node_id = await without_oldest_segments(start_cluster)
    broker = cluster.brokers[node_id]
    await until(lambda: bool(node_damage(broker.assembly.cluster)))
    healed = HealedDamageLog(broker.assembly.cluster)
    healed.update()
    await cluster.led_by(1, node_id)
    group = broker.groups[1]
    (local_id,) = group.log.damage.missing
    await group.advance_log_starts({local_id: group.log.damage.missing[local_id][0].end_offset})
    assert node_damage(broker.assembly.cluster) == []
    healed.update()
    (line,) = [each for each in caplog.messages if "no longer missing" in each]
    assert line.endswith("(log group 1): they are deleted, or a snapshot has brought them")
