"""Several members on real disks: what is committed is on all of them, and stays whoever leads."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import threading
import time
from pathlib import Path

import pytest

from lockstep.storage.append_codec import AppendSender
from lockstep.storage.log.options import LogOptions
from lockstep.storage.log.recent_frames import RecentFrames
from lockstep.storage.partition import PartitionLog
from lockstep.storage.raft.messages import Append, Message
from lockstep.storage.segment_repair import ScrubStopped
from lockstep.storage.types import Frame, NotLeader
from tests.storage.cluster import SMALL, Cluster, append
from tests.storage.log.frames import whole, whole_batches

TOPIC = bytes(range(16))


async def filled(cluster: Cluster, batches: int = 40) -> PartitionLog:
    """A partition with several segments behind it; the leader's."""
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    for _ in range(batches):
        append(leader, partition, b"x" * 100_000)
        await leader.committed()
        for group in cluster.groups.values():
            group.log.prepare_now()
    await cluster.agreed()
    return partition


async def test_what_one_leader_commits_is_on_every_member(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    for place in range(20):
        append(leader, partition, b"%d" % place, b"x" * 1000)
        await leader.committed()
    await cluster.agreed()
    for group in cluster.groups.values():
        copy = group.partitions[partition.local_id]
        assert (copy.high_watermark, copy.next_offset) == (40, 40)
        read = [bytes(b) for b in group.read(copy, 0, 1 << 20).buffers]
        assert b"".join(read) == b"".join(bytes(b) for b in leader.read(partition, 0, 1 << 20).buffers)
    await cluster.stop()
    assert not cluster.fatal


async def test_more_than_is_kept_goes_to_members_that_keep_up_without_being_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[int, ...]] = []
    from_disk = AppendSender._read

    def noted(self: AppendSender, *wanted: int) -> tuple[list[Frame], int | None]:
        read.append(wanted)
        return from_disk(self, *wanted)

    monkeypatch.setattr(AppendSender, "_read", noted)
    kept = dataclasses.replace(SMALL, recent_frames_bytes=100_000)
    cluster = Cluster(tmp_path, log=kept)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    await cluster.agreed()
    read.clear()  # the no-op follows what is in nobody's memory
    for _ in range(100):
        append(leader, partition, b"x" * 100_000)
    await leader.committed()
    await cluster.agreed()
    assert leader.log.last_index > 8, "more frames than requests in flight"
    assert not read
    await cluster.until(lambda: leader.log.recent_index >= leader.log.last_index - 1)
    await cluster.stop()
    assert not cluster.fatal


async def test_members_may_have_segments_of_different_sizes(tmp_path: Path) -> None:
    """A frame of the one with large segments is more than a file of the others takes: they ended for that,
    and again at each start."""
    cluster = Cluster(tmp_path, logs={1: LogOptions(segment_bytes=16 << 20)})
    await cluster.start()
    leader = await cluster.leader()
    if leader is not cluster.groups[1]:
        leader.transfer(cluster.groups[1].raft.member_id)
        await cluster.until(lambda: cluster.groups[1].is_leader)
    leader = cluster.groups[1]
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    for size in (1000, 3 << 20, 1000, 5 << 20, 1000):
        append(leader, partition, bytes(size))
        await leader.committed()
    await cluster.agreed()
    await cluster.stop(2)
    await cluster.start(2)
    await cluster.agreed()
    both = [cluster.groups[node].log.read_cold(partition.local_id, 0, 1 << 30, 5) for node in (1, 2)]
    assert whole(both[0].buffers) == whole(both[1].buffers) and both[0].total_bytes > 8 << 20
    await cluster.stop()
    assert not cluster.fatal


async def test_followers_reject_appends_and_know_the_leader(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    await cluster.agreed()
    for node, group in cluster.groups.items():
        if group is not leader:
            assert group.leader_id == leader.raft.member_id != node
            assert not group.has_lease
            with pytest.raises(NotLeader):
                append(group, group.partitions[partition.local_id], b"no")
    assert leader.has_lease
    await cluster.stop()


async def test_a_leader_cut_off_loses_what_it_alone_has(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    old = await cluster.leader()
    (partition,) = await old.open_partitions([(TOPIC, 0)])
    append(old, partition, b"kept")
    await old.committed()
    await cluster.agreed()
    cut_off = old.raft.member_id
    cluster.lost = lambda sender, to, message: cut_off in (sender, to)
    outcome: list[BaseException | None] = []
    assert append(old, partition, b"lost", b"lost") == 1
    old.when_committed(outcome.append)
    others = [node for node in cluster.groups if node != cut_off]
    new = await cluster.leader(*others)
    await cluster.until(lambda: not old.is_leader)
    assert append(new, new.partitions[partition.local_id], b"new") == 1
    await new.committed()
    cluster.lost = lambda sender, to, message: False
    await cluster.agreed()
    assert isinstance(outcome[0], NotLeader)
    assert (partition.next_offset, partition.high_watermark) == (2, 2)
    await cluster.stop()
    assert not cluster.fatal


async def test_all_of_them_start_again(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    partition = await filled(cluster)
    assert (await cluster.leader()).checkpoint_index > 0
    await cluster.stop()
    await cluster.start()
    leader = await cluster.leader()
    again = leader.partitions[partition.local_id]
    assert again.high_watermark == 40
    assert append(leader, again, b"more") == 40
    await leader.committed()
    await cluster.agreed()
    await cluster.stop()
    assert not cluster.fatal


async def test_a_member_with_nothing_gets_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_from = set()
    get = RecentFrames.get

    def noted(self: RecentFrames, index: int) -> Frame | None:
        seen_from.add(threading.current_thread())
        return get(self, index)

    monkeypatch.setattr(RecentFrames, "get", noted)
    cluster = Cluster(tmp_path)
    await cluster.start(1, 2)
    partition = await filled(cluster)
    leader = await cluster.leader()
    await cluster.until(lambda: leader.raft.terms.base_index > 0)
    await cluster.start(3)
    await cluster.agreed()
    copy = cluster.groups[3].partitions[partition.local_id]
    assert copy.high_watermark == 40
    assert cluster.groups[3].log.read_cold(partition.local_id, 0, 1 << 20, 40).total_bytes > 0
    await cluster.stop()
    await cluster.start()
    assert (await cluster.leader()).partitions[partition.local_id].high_watermark == 40
    await cluster.stop()
    assert not cluster.fatal
    assert seen_from == {threading.main_thread()}  # they move while another thread looks


async def test_a_shipped_log_is_whole_once_all_is_there_that_its_leader_had(tmp_path: Path) -> None:
    """What was written after the checkpoint may have cleaned what is shipped with it."""
    cluster = Cluster(tmp_path)
    await cluster.start(1, 2)
    partition = await filled(cluster)
    leader = await cluster.leader()
    await cluster.until(lambda: leader.raft.terms.base_index > 0)

    def stays_there(sender: int, to: int, message: Message) -> bool:
        installed = 3 in cluster.groups and cluster.groups[3].applied_index > 0
        return to == 3 and isinstance(message, Append) and installed

    cluster.lost = stays_there
    for _ in range(2):  # and after a restart
        await cluster.start(3)
        third = cluster.groups[3]
        await cluster.until(lambda third=third: third.applied_index > 0)  # type: ignore[misc]
        assert third.applied_index < third.log.whole_index == leader.commit_index
        await cluster.stop(3)
    cluster.lost = lambda sender, to, message: False
    await cluster.start(3)
    append(leader, partition, b"x")
    await leader.committed()
    await cluster.agreed()
    assert cluster.groups[3].applied_index > cluster.groups[3].log.whole_index
    await cluster.stop()
    assert not cluster.fatal


async def test_what_was_cleaned_comes_as_a_checkpoint(tmp_path: Path) -> None:
    """A frame without all of its batches verifies only in a shipment: as an entry nobody could take it."""
    small = LogOptions(segment_bytes=1 << 20, tail_cache_bytes=64 << 10, recent_frames_bytes=64 << 10)
    cluster = Cluster(tmp_path, log=small, kept_entries=1000)
    await cluster.start(1, 2)
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    for _ in range(40):
        append(leader, partition, b"x" * 100_000)
        await leader.committed()
        leader.log.prepare_now()
    await cluster.until(lambda: leader.log.first_kept_index > 20)
    first, second = leader.log.segments()[:2]
    leader.log.clean(second.sequence, whole_batches(lambda entry: entry.base_offset % 3 > 0))
    assert leader.raft.terms.base_index == 0
    await cluster.start(3)
    await cluster.agreed()
    copy = cluster.groups[3].partitions[partition.local_id]
    assert copy.high_watermark == 40
    assert first.last_index < leader.raft.terms.base_index <= second.last_index
    await cluster.stop()
    assert not cluster.fatal


async def test_a_tail_that_was_never_flushed_and_is_lost_comes_again_from_the_same_leader(
    tmp_path: Path,
) -> None:
    """With `log.flush=os`: the machine stops, and takes along what its member had acknowledged."""
    cluster = Cluster(tmp_path)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    await cluster.agreed()
    term, node = leader.term, next(each for each, group in cluster.groups.items() if group is not leader)
    await cluster.stop(node)
    shutil.copytree(tmp_path / str(node), tmp_path / "before")
    await cluster.start(node)
    for place in range(20):
        append(leader, partition, b"%d" % place)
        await leader.committed()
    await cluster.agreed()
    await cluster.stop(node)
    shutil.rmtree(tmp_path / str(node))
    shutil.move(tmp_path / "before", tmp_path / str(node))
    await cluster.start(node)
    assert cluster.groups[node].log.last_index < leader.log.last_index - 10
    append(leader, partition, b"more")
    await cluster.agreed()
    assert (
        leader.is_leader
        and leader.term == term
        and cluster.groups[node].log.last_index == leader.log.last_index
    )
    await cluster.stop()
    assert not cluster.fatal


async def test_frames_that_do_not_verify_are_dropped(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    damaged = 0

    def damage(sender: int, to: int, message: object) -> bool:
        nonlocal damaged
        if isinstance(message, Append) and message.frames and damaged < 4:
            damaged += 1
            data = bytearray(b"".join(message.frames))
            data[len(data) // 2] ^= 1
            message.frames = [bytes(data)]
        return False

    cluster.lost = damage
    append(leader, partition, b"whole")
    await asyncio.wait_for(leader.committed(), 5)
    await cluster.agreed()
    assert damaged == 4
    await cluster.stop()
    assert not cluster.fatal


def flip(path: Path, at: int) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


async def test_a_corrupt_segment_is_fetched_from_a_peer(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    partition = await filled(cluster)
    follower = next(g for g in cluster.groups.values() if not g.is_leader)
    await cluster.until(lambda: follower.checkpoint_index > 20)
    segment = follower.log.segments()[0]
    path = next((tmp_path / str(node)) for node, g in cluster.groups.items() if g is follower)
    file = path / f"{segment.sequence:016d}.segment"
    whole = file.read_bytes()
    flip(file, len(whole) // 2)
    assert await follower.scrub(segment.sequence, lambda count: None) == (
        segment.first_index,
        segment.last_index,
    )
    await cluster.until(lambda: follower._replica.repairing.repaired == 1)
    assert await follower.scrub(segment.sequence, lambda count: None) is None
    read = follower.log.read_cold(partition.local_id, 0, 1 << 20, 10)
    assert read.total_bytes > 0
    await cluster.stop()
    assert not cluster.fatal


async def test_a_leader_repairs_what_it_cannot_send_to_a_follower(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No consumer reads there, and the newest segments lie above both checkpoints."""
    options = dataclasses.replace(SMALL, recent_frames_bytes=1)
    cluster = Cluster(tmp_path, log=options, kept_entries=1000)
    await cluster.start()
    await filled(cluster, 5)
    leader = await cluster.leader()
    ((away, follower),) = [each for each in cluster.groups.items() if not each[1].is_leader][:1]
    node = next(node for node, group in cluster.groups.items() if group is leader)
    before = follower.log.last_index
    await cluster.stop(away)
    await filled(cluster, 40)
    damaged = [each for each in leader.log._table if each.first_index > before][-3:-1]
    for segment in damaged:
        flip(tmp_path / str(node) / f"{segment.sequence:016d}.segment", segment.end - 50_000)
    await cluster.start(away)
    await cluster.agreed()
    assert leader._replica.repairing.repaired == len(damaged) and leader.is_leader
    assert leader.log.damage.known() == []
    assert len([r for r in caplog.records if "entries for member" in r.getMessage()]) == 1
    await cluster.stop()
    assert not cluster.fatal


async def test_what_a_scrub_finds_above_the_checkpoints_is_repaired(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    await filled(cluster)
    follower = next(g for g in cluster.groups.values() if not g.is_leader)
    path = next((tmp_path / str(node)) for node, g in cluster.groups.items() if g is follower)
    segment = follower.log.segments()[-1]
    assert not follower.log.rewritable(segment.sequence)
    flip(path / f"{segment.sequence:016d}.segment", segment.total_bytes // 2)
    assert await follower.scrub(segment.sequence, lambda count: None) is not None
    await cluster.until(lambda: follower._replica.repairing.repaired == 1)
    assert await follower.scrub(segment.sequence, lambda count: None) is None
    await cluster.stop()
    assert not cluster.fatal


async def test_a_stop_does_not_wait_for_a_file_that_is_read_through(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    await filled(cluster)
    follower = next(g for g in cluster.groups.values() if not g.is_leader)
    await cluster.until(lambda: len(follower.log.segments()) > 0)
    calls = threading.Semaphore(0)

    def throttle(_: int) -> None:
        calls.release()
        time.sleep(0.2)

    scrub = asyncio.ensure_future(follower.scrub(follower.log.segments()[0].sequence, throttle))
    await asyncio.to_thread(calls.acquire)
    await cluster.stop()
    with pytest.raises(ScrubStopped):
        await scrub
    assert not cluster.fatal


async def test_a_corrupt_first_segment_is_repaired_without_dead_frames_that_all_others_freed(
    tmp_path: Path,
) -> None:
    """Segments begin elsewhere on every member: what is dead in this one's first others have freed."""
    cluster = Cluster(tmp_path)
    await cluster.start(1, 2)
    cluster.log = dataclasses.replace(cluster.log, segment_bytes=3 << 19)
    await cluster.start(3)
    partition = await filled(cluster, 60)
    leader, follower = await cluster.leader(), cluster.groups[3]
    await cluster.until(lambda: all(len(g.log._maintenance.checkpoints) > 1 for g in cluster.groups.values()))
    await leader.advance_log_starts({partition.local_id: 12})
    await cluster.agreed()
    for group in cluster.groups.values():
        group.free_deleted_segments()
    segment = follower.log.segments()[0]
    begin = min(group.log.oldest_index for group in cluster.groups.values() if group is not follower)
    assert segment.first_index < begin <= segment.last_index
    flip(tmp_path / "3" / f"{segment.sequence:016d}.segment", 900_000)
    assert await follower.scrub(segment.sequence, lambda count: None) is not None
    await cluster.until(lambda: follower._replica.repairing.repaired == 1)
    assert await follower.scrub(segment.sequence, lambda count: None) is None
    assert follower.log.oldest_index == begin
    read = [group.log.read_cold(partition.local_id, 12, 1 << 30, 60).buffers for group in (leader, follower)]
    assert whole(read[0]) == whole(read[1])
    await cluster.stop()
    assert not cluster.fatal


async def test_a_first_segment_that_is_lost_behind_freed_ones_is_fetched(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    partition = await filled(cluster, 60)
    leader = await cluster.leader()
    node, follower = next(each for each in cluster.groups.items() if not each[1].is_leader)
    await cluster.until(lambda: all(len(g.log._maintenance.checkpoints) > 1 for g in cluster.groups.values()))
    await leader.advance_log_starts({partition.local_id: 12})
    await cluster.agreed()
    for group in cluster.groups.values():
        group.free_deleted_segments()
        group.log.prepare_now()
    segment = follower.log.segments()[0]
    assert segment.first_index > 2
    await cluster.stop(node)
    (tmp_path / str(node) / f"{segment.sequence:016d}.segment").unlink()
    await cluster.start(node)
    follower = cluster.groups[node]
    assert not follower.log.has_exact_begin(segment.sequence) and follower.log.damage.known()
    assert await follower.scrub(segment.sequence, lambda count: None) is not None
    await cluster.until(lambda: follower._replica.repairing.repaired == 1)
    assert follower.log.damage.known() == [] and follower.log.oldest_index == segment.first_index
    leader = await cluster.leader()
    read = [group.log.read_cold(partition.local_id, 12, 1 << 30, 60).buffers for group in (leader, follower)]
    assert whole(read[0]) == whole(read[1])
    await cluster.stop()
    assert not cluster.fatal


async def test_a_member_that_lost_what_it_had_comes_back_as_another(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, salvage=True)
    await cluster.start()
    leader = await cluster.leader()
    (partition,) = await leader.open_partitions([(TOPIC, 0)])
    for _ in range(5):
        append(leader, partition, b"y" * 1000)
        await leader.committed()
    await cluster.agreed()
    node = next(n for n, g in cluster.groups.items() if not g.is_leader)
    await asyncio.sleep(0.05)  # the idle marker, so that rot at the end is seen as rot
    cluster.groups[node].abandon()
    cluster.groups.pop(node).log.close()
    flip(tmp_path / str(node) / "0000000000000001.segment", 4096 + 3000)
    await cluster.start(node)
    back = cluster.groups[node]
    assert back.raft.member_id != node
    assert back.log.last_index < leader.log.last_index
    await asyncio.sleep(0.5)
    assert not back.is_leader and leader.is_leader
    members = [m for m in leader.raft.configuration.voters if m != node]
    leader.change_members([*members, back.raft.member_id])
    await cluster.until(lambda: leader.raft.configuration.voters == (*members, back.raft.member_id))
    await cluster.agreed()
    await cluster.stop()
    assert not cluster.fatal
