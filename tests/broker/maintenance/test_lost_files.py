"""A closed log file that is gone or cut short: its records come from another node, and what is heard until
they have come."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

import pytest

from lockstep.broker.maintenance.damage import Document, HealedDamageLog, damage_text, node_damage
from lockstep.broker.maintenance.scrub import Scrubber
from lockstep.broker.peers.node_registry import NodeRegistry
from lockstep.protocol.cluster_messages import LockstepClusterRequest, LockstepClusterResponse
from lockstep.protocol.errors import ErrorCode
from lockstep.protocol.records.batch import read_header
from lockstep.storage.log.format import segment_of
from lockstep.storage.read_repair import ReadRepair
from tests.broker.cluster.brokers import BrokerCluster
from tests.broker.conftest import StartBroker, StartCluster
from tests.broker.maintenance.test_damage import (
    BATCHES,
    _bytes,
    _trouble,
    ask,
    fill,
    first_offsets,
    read,
    value,
)
from tests.broker.waiting import until
from tests.broker.wire import Client, batch


def file_with(directory: Path, number: int) -> Path:
    """The log file that holds a batch."""
    paths = sorted(directory.rglob("groups/1/*.segment"))
    return next(each for each in paths if value(number) in each.read_bytes())


def lose(path: Path, fault: str, number: int) -> None:
    """Damage the file that holds a batch, so that this batch is lost."""
    if fault == "missing":
        path.unlink()
    elif fault == "cut short":
        os.truncate(path, path.read_bytes().index(value(number)) + 7)
    else:
        data = bytearray(path.read_bytes())
        data[30] ^= 0xFF
        path.write_bytes(data)


async def filled(start_cluster: StartCluster, who: str) -> tuple[BrokerCluster, int]:
    """Three nodes with closed log files, and the number of the one whose files will be lost."""
    cluster = await start_cluster(
        3, lockstep_data_groups="1", lockstep_scrub_interval_ms="0", lockstep_tail_cache_bytes="0"
    )
    await cluster.settled()
    leading, writer = await cluster.create("t")
    for number in range(BATCHES):
        assert (await writer.produce("t", batch(value(number)))).error_code == 0
    node_id = leading if who == "leader" else next(each for each in cluster.brokers if each != leading)
    group, leader = cluster.brokers[node_id].groups[1], cluster.brokers[leading].groups[1]
    await until(lambda: len(group.log.segments()) > 3 and group.applied_index == leader.applied_index)
    return cluster, node_id


async def restarted_without(cluster: BrokerCluster, node_id: int, who: str, fault: str) -> None:
    """A node's file with batch 10 is lost while the node is stopped; it has its former role again, and
    nothing but a reader repairs the file."""
    await cluster.stop(node_id)
    lose(file_with(cluster.directory / str(node_id), 10), fault, 10)
    await cluster.start(node_id)
    await cluster.settled()
    if who == "leader":
        await cluster.led_by(1, node_id)
    else:
        group = cluster.brokers[node_id].groups[1]
        await cluster.until(lambda: group.leader_id > 0, "a follower that hears its leader")


@pytest.fixture
def no_scrub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Damaged files are repaired when they are read, or when the test says so, and whoever led leads."""

    async def never(self: Scrubber) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Scrubber, "run", never)
    monkeypatch.setattr(NodeRegistry, "_is_damaged", lambda self, group_id, group: False)


@pytest.mark.usefixtures("no_scrub")
@pytest.mark.parametrize("fault", ["missing", "cut short", "without a header"])
@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_records_of_a_file_lost_while_stopped_come_while_the_consumer_waits(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture, who: str, fault: str
) -> None:
    cluster, node_id = await filled(start_cluster, who)
    await restarted_without(cluster, node_id, who, fault)
    broker = cluster.brokers[node_id]
    (known,) = node_damage(broker.assembly.cluster)
    if fault == "without a header":  # all records can be read
        assert (known["topic"], known["first_offset"] > 1) == (None, True)
    else:
        assert (known["topic"], known["partition"]) == ("t", 0)
        assert known["first_offset"] <= 10 <= known["last_offset"]
    assert _trouble(broker) == damage_text(known)
    (line,) = [each for each in caplog.messages if "lost or cut short" in each]
    assert line.startswith(
        "log group 1: files of sealed segments that are lost or cut short: 1; "
        "their records come from the other nodes: "
    )
    client = await cluster.client(node_id)
    (data,) = await read(client, {0: 10})
    assert data.error_code == 0 and value(10) in _bytes(data)
    if fault == "without a header":
        await broker.assembly.scrubber.check()
        await cluster.until(lambda: node_damage(broker.assembly.cluster) == [], "a file that was repaired")
    assert node_damage(broker.assembly.cluster) == [] and _trouble(broker) == ""
    await cluster.stop(node_id)
    caplog.clear()
    await cluster.start(node_id)
    assert not [each for each in caplog.messages if "lost or cut short" in each], "it is on the disk again"
    assert cluster.brokers[node_id].groups[1].log.damage.known() == []


@pytest.mark.parametrize("fault", ["missing", "cut short", "without a header"])
async def test_a_node_without_its_newest_file_comes_back_as_another_member(
    start_cluster: StartCluster, fault: str
) -> None:
    cluster, node_id = await filled(start_cluster, "leader")
    group = cluster.brokers[node_id].groups[1]
    member_id = group.raft.member_id
    group.log.seal()  # so that the checkpoint at the end is in another file than the one before it
    await cluster.stop(node_id)
    placed = [segment_of(each.position) for each in group.log._maintenance.checkpoints]
    assert len(placed) == 2 and placed[0] < placed[1], "both checkpoints are not in one file"
    (path,) = cluster.directory.glob(f"{node_id}/**/groups/1/{placed[1]:016d}.segment")
    if fault == "missing":
        path.unlink()
    elif fault == "cut short":
        os.truncate(path, 5000)
    else:
        lose(path, fault, 0)
    await cluster.start(node_id)
    group = cluster.brokers[node_id].groups[1]
    assert group.log.report.salvaged_from and group.raft.member_id != member_id

    def is_back() -> bool:
        leading = cluster.leader_of(1)
        if leading is None:
            return False
        leader = cluster.brokers[leading].groups[1]
        is_voter = group.raft.member_id in leader.raft.configuration.voters
        return is_voter and group.applied_index == leader.applied_index

    await cluster.until(is_back, "a voter in the place of the one that lost its newest file")
    await cluster.led_by(1, node_id)
    client = await cluster.client(node_id)
    for number in range(BATCHES):
        (data,) = await read(client, {0: number})
        assert data.error_code == 0 and value(number) in _bytes(data)


@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_records_of_a_file_lost_while_running_come_while_the_consumer_waits(
    start_cluster: StartCluster, who: str
) -> None:
    cluster, node_id = await filled(start_cluster, who)
    broker = cluster.brokers[node_id]
    path = file_with(cluster.directory / str(node_id), 10)
    sequence = int(path.stem)
    log = broker.groups[1].log
    segment = log._table.get(sequence)
    assert segment is not None and segment.readers == 0
    if segment.fd >= 0:  # as when many other files were read since
        log._fs.close(segment.fd)
        segment.fd = -1
    path.unlink()
    (data,) = await read(await cluster.client(node_id), {0: 10})
    assert data.error_code == 0 and value(10) in _bytes(data)
    assert path.exists() and log.damage.known() == []


@pytest.mark.usefixtures("no_scrub")
async def test_until_they_have_come_it_is_damage_and_the_scrub_gets_them(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    cluster, node_id = await filled(start_cluster, "leader")
    await cluster.stop(node_id)
    directory = cluster.directory / str(node_id)
    lost = {file_with(directory, 2), file_with(directory, 18)}
    assert len(lost) == 2
    for path in lost:
        path.unlink()
    await cluster.start(node_id)
    await cluster.settled()
    await cluster.led_by(1, node_id)
    broker = cluster.brokers[node_id]
    healed = HealedDamageLog(broker.assembly.cluster)
    healed.update()
    known = node_damage(broker.assembly.cluster)
    assert len(known) == 2
    client = await cluster.client(node_id)
    status = await ask(client, do="status")
    assert status["healthy"] is False
    others = sorted({1, 2, 3} - {node_id})
    copies = {"intact_on": others, "unknown_on": []}
    assert status["damage"] == [{"node": node_id, **each, **copies} for each in known]

    async def nobody(self: ReadRepair, sequence: int, wait_s: float) -> bool:
        return False

    with monkeypatch.context() as alone:
        alone.setattr(ReadRepair, "repair", nobody)
        (data,) = await read(client, {0: 2})
        assert (data.error_code, _bytes(data)) == (ErrorCode.CORRUPT_MESSAGE, b"")
        (data,) = await read(client, {0: known[0]["last_offset"] + 1})
        assert data.error_code == 0 and read_header(_bytes(data)).base_offset == known[0]["last_offset"] + 1
    await broker.assembly.scrubber.check()
    await cluster.until(lambda: node_damage(broker.assembly.cluster) == [], "records that have come")
    assert all(path.exists() for path in lost) and _trouble(broker) == ""
    lines = [each for each in caplog.messages if "no longer damaged" in each]
    assert len(lines) == 2 and all(": repaired from node" in each for each in lines)
    for number in range(BATCHES):
        (data,) = await read(client, {0: number})
        assert data.error_code == 0 and value(number) in _bytes(data)


async def _skip(client: Client, **question: object) -> tuple[ErrorCode, str]:
    """The error and its text of a request to skip the damage of t-0."""
    body = json.dumps({"do": "give_up", "topic": "t", "partition": 0, **question}).encode()
    answer: LockstepClusterResponse = await client.call(LockstepClusterRequest(body=body), 0)
    return ErrorCode(answer.error_code), answer.error_message or ""


async def _skip_until(client: Client, expected: str) -> ErrorCode:
    """Repeats the request while nodes that have started are not reached; returns the error at the end."""
    while True:
        error, text = await _skip(client)
        if expected in text if expected else not text:
            return error
        assert "not reached" in text
        await asyncio.sleep(0.05)


async def _one_range(client: Client) -> Document:
    """The one damaged range of the status."""
    ranges: list[Document] = (await ask(client, do="status"))["damage"]  # type: ignore[assignment]
    assert len(ranges) == 1
    return ranges[0]


@pytest.mark.usefixtures("no_scrub")
async def test_records_that_another_node_has_or_may_have_are_not_skipped(
    start_cluster: StartCluster,
) -> None:
    cluster, node_id = await filled(start_cluster, "follower")
    others = sorted({1, 2, 3} - {node_id})
    await restarted_without(cluster, node_id, "follower", "missing")
    client = await cluster.client(node_id)

    async def hears(*nodes: int) -> None:
        heard = cluster.brokers[node_id].assembly.nodes
        await cluster.until(lambda: heard.alive() == {node_id, *nodes}, "these nodes alone")

    await hears(*others)
    known = await _one_range(client)
    assert (known["intact_on"], known["unknown_on"]) == (others, [])
    error, text = await _skip(client)
    assert error == ErrorCode.INVALID_REQUEST
    assert text == (
        f"nothing is skipped: node {node_id}: {damage_text(known)}; node {node_id} fetches them from nodes "
        f"{others[0]}, {others[1]} (--force skips them nevertheless)"
    )
    for each in others:
        await cluster.stop(each)
        lose(file_with(cluster.directory / str(each), 10), "missing", 10)
    await hears()
    known = await _one_range(client)
    assert (known["intact_on"], known["unknown_on"]) == ([], others)
    error, text = await _skip(client)
    assert error == ErrorCode.INVALID_REQUEST
    assert f"the repair waits for nodes {others[0]}, {others[1]}, which are not reached" in text
    assert all(not each["given_up"] for each in node_damage(cluster.brokers[node_id].assembly.cluster))
    await cluster.start(others[0])
    assert await _skip_until(client, f"waits for node {others[1]}, which is") == ErrorCode.INVALID_REQUEST
    await cluster.start(others[1])
    assert await _skip_until(client, "") == ErrorCode.NONE, "no node has them"
    for broker in cluster.brokers.values():
        assert all(each["given_up"] for each in node_damage(broker.assembly.cluster))


@pytest.mark.usefixtures("no_scrub")
async def test_an_operator_can_force_records_to_be_skipped(start_cluster: StartCluster) -> None:
    cluster, node_id = await filled(start_cluster, "follower")
    await restarted_without(cluster, node_id, "follower", "missing")
    client = await cluster.client(node_id)
    await cluster.until(lambda: len(cluster.brokers[node_id].assembly.nodes.alive()) == 3, "all nodes")
    assert (await _skip(client, force=False))[0] == ErrorCode.INVALID_REQUEST
    assert await _skip(client, force=True) == (ErrorCode.NONE, "")
    assert all(each["given_up"] for each in node_damage(cluster.brokers[node_id].assembly.cluster))


async def test_a_lost_file_comes_at_once_and_until_then_another_node_leads(
    start_cluster: StartCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    cluster, first = await filled(start_cluster, "leader")
    node_id = cluster.brokers[first].assembly.cluster.image.placement[1][0]
    await cluster.led_by(1, node_id)
    await cluster.stop(node_id)
    lose(file_with(cluster.directory / str(node_id), 10), "missing", 10)
    with monkeypatch.context() as unrepaired:
        unrepaired.setattr(Scrubber, "_is_repair_due", lambda self: False)
        await cluster.start(node_id)
        await cluster.settled()
        nodes = cluster.brokers[node_id].assembly.nodes
        await cluster.until(lambda: len(nodes.alive()) == 3, "all nodes")
        await asyncio.sleep(3)
        assert cluster.leader_of(1) not in (None, node_id), "it does not take the leadership back"
        assert nodes.incomplete_local_groups() == (1,)
    began = time.monotonic()
    await cluster.until(lambda: not node_damage(cluster.brokers[node_id].assembly.cluster), "a repair")
    assert time.monotonic() - began < 10, "without waiting for the next check"
    assert nodes.incomplete_local_groups() == ()
    (line,) = [each for each in caplog.records if "no longer damaged" in each.getMessage()]
    assert line.levelname == "INFO"
    assert line.getMessage().startswith("t-0: offsets ") and ": repaired from node" in line.getMessage()
    await cluster.until(lambda: cluster.leader_of(1) == node_id, "the preferred leader again")


async def test_a_node_alone_starts_and_its_operator_gives_the_records_up(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start_broker()
    client = await Client.connect(broker.port)
    await fill(client)
    await client.close()
    await broker.stop()
    file_with(broker.settings.directory, 10).unlink()
    broker = await start_broker()
    client = await Client.connect(broker.port)
    (line,) = [each for each in caplog.messages if "lost or cut short" in each]
    assert "; put them back from a copy, or give their records up by `lockstep log skip-damage" in line
    assert "the segment is missing" in line
    first, last = next(
        (each["first_offset"], each["last_offset"])
        for each in node_damage(broker.assembly.cluster)
        if each["partition"] == 0
    )
    assert first <= 5 <= last
    broken, before = (await read(client, {0: 5}))[0], (await read(client, {0: first - 1}))[0]
    assert (broken.error_code, _bytes(broken)) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert before.error_code == 0 and read_header(_bytes(before)).base_offset == first - 1
    assert _trouble(broker) != ""
    for partition in (0, 1):
        assert (await ask(client, do="give_up", topic="t", partition=partition))["given_up"]
    left = [each for each in range(BATCHES // 2) if not first <= each <= last]
    assert await first_offsets(client, 0) == left
    assert _trouble(broker) == ""
    await client.close()
    await broker.stop()
    broker = await start_broker()
    client = await Client.connect(broker.port)
    assert await first_offsets(client, 0) == left, "also after a restart"
    assert _trouble(broker) == ""
    await client.close()
