"""Groups of several members in one process, kept as they are wanted while they are written to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.broker.membership.group_view import DesiredMembers
from lockstep.broker.membership.reconciler import Reconciler, TransferRejected
from lockstep.protocol.records.batch import read_header
from lockstep.protocol.records.record import iter_records
from lockstep.storage.group_options import member_of
from lockstep.storage.log_group import LogGroup
from lockstep.storage.raft.configuration import Configuration
from lockstep.storage.raft.membership import ConfigurationRejected
from lockstep.storage.types import NotLeader, StorageError
from tests.storage.cluster import Cluster, append

TOPIC = bytes(range(16))
HASTE = 20
"""How much faster the keepers' clock runs: three seconds of being steady are 150 ms."""


class Kept:
    """A cluster with a keeper beside each of its groups; all of them want the same."""

    def __init__(self, directory: Path, *desired: int, voters: tuple[int, ...] = (1, 2, 3)) -> None:
        self.cluster = Cluster(directory, voters=voters)
        self.reconcilers: dict[int, Reconciler] = {}
        self.voter_nodes = desired
        self.learner_nodes: tuple[int, ...] = ()
        self.silent: set[int] = set()
        """Nodes of whose state nobody has heard."""
        self.unwritable: dict[int, bool] = {}
        self.incomplete: frozenset[int] = frozenset()
        """What nodes say of their disks."""
        self.balance = False
        self.broken = False
        """Whether asking what is wanted fails."""
        self.on_status: list[object] = []
        self.acknowledged: list[bytes] = []
        self._writing: asyncio.Task[None] | None = None
        self.clock: Callable[[], float] = lambda: asyncio.get_running_loop().time() * HASTE
        self._time = 0.0

    def desired(self) -> DesiredMembers:
        if self.broken:
            raise RuntimeError("planted")
        said = {node: g.raft.member_id for node, g in self.cluster.groups.items() if node not in self.silent}
        return DesiredMembers(
            self.voter_nodes, self.learner_nodes, said, frozenset(said), self.unwritable, self.incomplete
        )

    async def start(self, *nodes: int, joins: bool = False, incarnation: int = 0) -> None:
        await self.cluster.start(*nodes, voters=() if joins else None, incarnation=incarnation)
        loop = asyncio.get_running_loop()
        for node in nodes or self.cluster.voters:
            self.reconcilers[node] = Reconciler(
                self.cluster.groups[node],
                self.desired,
                loop,
                balance=lambda: self.balance,
                monotonic=lambda: self.clock(),
                interval_seconds=0.02,
            )
            self.reconcilers[node].start()

    async def stop(self, *nodes: int) -> None:
        for node in nodes or tuple(self.reconcilers):
            self.reconcilers.pop(node).stop()
            await self.cluster.stop(node)

    async def wipe(self, node: int, incarnation: int) -> None:
        """The node loses its disk and comes back."""
        await self.stop(node)
        shutil.rmtree(self.cluster.directory / str(node))
        await self.start(node, joins=True, incarnation=incarnation)

    def begin_writing(self) -> None:
        self._writing = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        number = 0
        while True:
            leader = next((g for g in self.cluster.groups.values() if g.is_leader), None)
            await asyncio.sleep(0.005)
            if leader is None or not leader.is_leader:
                continue
            try:
                if len(leader.partitions) == 1:
                    await leader.open_partitions([(TOPIC, 0)])
                (partition,) = [each for place, each in leader.partitions.items() if place]
                number += 1
                append(leader, partition, b"%d" % number)
                await leader.committed()
                self.acknowledged.append(b"%d" % number)
            except StorageError:
                pass  # whether it is there or not, nobody was told that it is

    async def end(self) -> None:
        """No acknowledged record is missing anywhere, and nothing has failed."""
        await self.until(lambda: len(self.acknowledged) > 3)
        assert self._writing is not None and not self._writing.done(), self._writing
        self._writing.cancel()
        await asyncio.wait([self._writing])
        await self.until(lambda: any(g.is_leader for g in self.cluster.groups.values()))
        leader = await self.cluster.leader()
        await leader.committed()
        members = leader.raft.configuration.members
        groups = [g for g in self.cluster.groups.values() if g.raft.member_id in members]
        await self.until(lambda: len({g.applied_index for g in groups}) == 1)
        for group in groups:
            assert set(self.acknowledged) <= set(await values(group))
        await self.stop()
        assert not self.cluster.fatal

    def stop_clock(self) -> None:
        """From now on time passes for the keepers when it is told to, however busy this machine is."""
        self._time = self.clock()
        self.clock = lambda: self._time

    async def pass_time(self, seconds: float) -> None:
        """Let the keepers look many times while so much passes."""
        end = self._time + seconds
        while self._time < end:
            self._time = min(end, self._time + 0.25)
            await asyncio.sleep(0.02)

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait for it; long enough for a machine that is busy with other things."""
        for turn in range(6):
            try:
                return await self.cluster.until(what)
            except AssertionError:
                if turn == 5 or self.cluster.fatal:
                    raise

    async def lead(self, node: int) -> None:
        """Wait until this node leads."""
        await self.until(lambda: self.cluster.groups[node].is_leader)

    async def asked(self, ask: Callable[[Reconciler], None]) -> None:
        """Ask whoever leads, until that is possible: on a busy machine leaders change and fall behind."""

        def took() -> bool:
            for node, group in self.cluster.groups.items():
                if group.is_leader:
                    with contextlib.suppress(TransferRejected, NotLeader):
                        ask(self.reconcilers[node])
                        return True
            return False

        await self.until(took)

    def configuration(self) -> Configuration | None:
        """The members, once that is committed where the group is led."""
        for group in self.cluster.groups.values():
            raft = group.raft
            if group.is_leader and raft.configurations.current_index <= raft.commit_index:
                return raft.configuration
        return None

    async def until_members(self, *voters: int, learners: tuple[int, ...] = ()) -> None:
        desired = Configuration(tuple(sorted(voters)), (), learners)
        try:
            await self.until(lambda: self.configuration() == desired)
        except AssertionError as error:
            raise AssertionError(f"{self.configuration()}; {error}") from error

    async def led_by(self, node: int) -> None:
        """Let this node lead, whoever does."""
        self.balance = False
        member = self.cluster.groups[node].raft.member_id

        def led() -> bool:
            for group in self.cluster.groups.values():
                if group.is_leader and group.raft.member_id != member:
                    with contextlib.suppress(ConfigurationRejected, NotLeader):
                        group.transfer(member)
            return self.cluster.groups[node].is_leader

        await self.until(led)


async def values(group: LogGroup) -> list[bytes]:
    """All records that are committed there."""
    (partition,) = [each for place, each in group.partitions.items() if place]
    found: list[bytes] = []
    offset = 0
    while offset < partition.high_watermark:
        result = group.read(partition, offset, 1 << 20)
        if result.cold:
            result = await group.read_cold(partition, offset, 1 << 20)
        for data in result.buffers:
            header = read_header(data)
            offset = header.base_offset + header.record_count
            found += [bytes(record.value or b"") for record in iter_records(data)]
    return found


async def pause(seconds: float = 0.3) -> None:
    """Long enough for many looks."""
    await asyncio.sleep(seconds)


async def test_a_wiped_member_is_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockstep.membership")
    kept = Kept(tmp_path, 1, 2, 3)
    await kept.start()
    kept.begin_writing()
    await kept.led_by(1)
    await kept.wipe(3, incarnation=7)
    new = member_of(3, 7)
    await kept.until_members(1, 2, new)
    await pause()
    assert kept.configuration() == Configuration((1, 2, new))
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "log group 1: voters become 1, 2, 3, learners 3 (incarnation 7): the desired learners have changed",
        "log group 1: voters become 1, 2, 3 (incarnation 7), learners none: "
        "3 (incarnation 7) has caught up and replaces 3",
    ]
    await kept.stop(2)  # the new one counts: with it alone there is a majority
    count = len(kept.acknowledged)
    await kept.until(lambda: len(kept.acknowledged) > count + 5)
    await kept.end()


async def test_silence_removes_nobody(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    await kept.start()
    kept.begin_writing()
    await kept.led_by(1)
    kept.silent = {2, 3}
    await kept.stop(3)
    await pause()
    assert kept.configuration() == Configuration((1, 2, 3))
    await kept.start(3)
    await kept.end()


async def test_a_fourth_node_comes(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    await kept.start()
    kept.begin_writing()
    await kept.start(4, joins=True)
    await pause(0.1)
    kept.voter_nodes = (1, 2, 3, 4)
    await kept.until_members(1, 2, 3, 4)
    await kept.end()


async def test_a_node_that_is_to_listen_never_votes(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    kept.learner_nodes = (4,)
    await kept.start()
    kept.begin_writing()
    await kept.start(4, joins=True)
    await kept.until_members(1, 2, 3, learners=(4,))
    await pause()
    assert kept.configuration() == Configuration((1, 2, 3), (), (4,))
    await kept.end()


@pytest.mark.parametrize("led_by", [4, 1])
async def test_a_node_goes_also_where_it_leads(tmp_path: Path, led_by: int) -> None:
    kept = Kept(tmp_path, 1, 2, 3, 4, voters=(1, 2, 3, 4))
    await kept.start()
    kept.begin_writing()
    await kept.led_by(led_by)
    kept.voter_nodes = (1, 2, 3)
    await kept.until_members(1, 2, 3)
    await kept.stop(4)
    await kept.end()


async def test_a_group_moves_to_other_nodes_altogether(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    await kept.start()
    kept.begin_writing()
    await kept.start(4, 5, 6, joins=True)
    await kept.led_by(1)
    kept.voter_nodes = (4, 5, 6)
    await kept.until_members(4, 5, 6)
    await kept.stop(1, 2, 3)
    count = len(kept.acknowledged)
    await kept.until(lambda: len(kept.acknowledged) > count + 5)
    await kept.end()


async def test_one_becomes_three_and_one_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, voters=(1,))
    await kept.start()
    kept.begin_writing()
    await kept.start(2, 3, joins=True)
    kept.voter_nodes = (1, 2, 3)
    await pause(0.1)
    assert kept.configuration() == Configuration((1,))  # alone it only looks when it is told
    kept.reconcilers[1].reconcile()
    await kept.until_members(1, 2, 3)
    kept.voter_nodes = (2,)
    await kept.until_members(2)
    await kept.end()


async def test_a_dead_learner_never_votes(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    kept.learner_nodes = (4,)
    await kept.start()
    kept.begin_writing()
    await kept.start(4, joins=True)
    await kept.until_members(1, 2, 3, learners=(4,))
    kept.cluster.lost = lambda sender, to, message: 4 in (sender, to)  # its state is heard of all the same
    await pause(0.6)
    kept.learner_nodes, kept.voter_nodes = (), (1, 2, 3, 4)
    await pause()
    assert kept.configuration() == Configuration((1, 2, 3), (), (4,))
    kept.cluster.lost = lambda sender, to, message: False
    await kept.until_members(1, 2, 3, 4)
    await kept.end()


@pytest.mark.parametrize("stops", ["newcomer", "leader", "another"])
async def test_somebody_stops_in_the_middle_of_a_swap(tmp_path: Path, stops: str) -> None:
    """One of three was wiped, so that two are left; while the joint change is under way one more is gone."""
    kept = Kept(tmp_path, 1, 2, 3)
    await kept.start()
    kept.begin_writing()
    await kept.led_by(1)
    node = {"newcomer": 3, "leader": 1, "another": 2}[stops]
    cut = asyncio.Event()

    def joint(sender: int, to: int, message: object) -> bool:
        if not cut.is_set() and any(g.raft.configuration.joint for g in kept.cluster.groups.values()):
            cut.set()
        return cut.is_set() and node in (sender, to & 0xFFFF)

    kept.cluster.lost = joint
    await kept.wipe(3, incarnation=7)
    await asyncio.wait_for(cut.wait(), 5)
    await pause(0.5)
    if stops == "newcomer":  # the old majority is there, and is one of the new voters, too
        assert kept.configuration() == Configuration((1, 2, member_of(3, 7)))
        count = len(kept.acknowledged)
        await kept.until(lambda: len(kept.acknowledged) > count + 5)
    kept.cluster.lost = lambda sender, to, message: False
    await kept.until_members(1, 2, member_of(3, 7))
    await kept.end()


# --- leadership --------------------------------------------------------------------------------------------


def handed_over(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the keepers say of hand-overs."""
    said = [record.getMessage() for record in caplog.records]
    return [
        line.removeprefix("log group 1: the leadership is transferred to ")
        for line in said
        if "leadership" in line
    ]


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "lockstep.membership")
    return caplog


async def test_the_preferred_leader_returns(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    kept = Kept(tmp_path, 2, 1, 3)
    await kept.start()
    kept.begin_writing()
    await kept.led_by(3)
    await pause()
    assert not handed_over(said)  # as long as nobody says that it may
    kept.balance = True
    await kept.lead(2)
    assert set(handed_over(said)) == {"node 2: it is the preferred leader"}
    await kept.stop(2)
    await kept.until(lambda: any(g.is_leader for g in kept.cluster.groups.values()))
    await kept.start(2)
    await kept.lead(2)
    await kept.end()


async def test_it_returns_after_three_seconds_and_not_twice_within_ten(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path, 2, 1, 3)
    kept.stop_clock()
    await kept.start(1, 2)  # who leads is one of the two
    await kept.led_by(1)
    kept.balance = True
    await kept.pass_time(2.5)
    assert not handed_over(said)
    for _ in range(8):  # each pause of an election begins it anew
        await kept.pass_time(3.5)
        if handed_over(said):
            break
    await kept.lead(2)
    await kept.led_by(1)
    said.clear()
    kept.balance = True
    await kept.pass_time(5)
    assert not handed_over(said)
    await kept.pass_time(10)
    await kept.lead(2)
    await kept.stop()


async def test_a_leader_whose_disk_is_full_hands_over(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    kept.stop_clock()
    await kept.start()
    kept.begin_writing()
    await kept.led_by(1)
    kept.unwritable = {1: True, 2: True}  # of node 3 nobody knows
    kept.balance = True
    await kept.pass_time(15)
    assert not handed_over(said) and kept.cluster.groups[1].is_leader
    kept.unwritable = {1: True, 2: True, 3: False}
    await kept.lead(3)  # without any time passing
    assert handed_over(said) == ["node 3: the disk of node 1 is full"]
    await kept.pass_time(15)
    assert len(handed_over(said)) == 1, "it does not return to the preferred leader"
    kept.unwritable = {1: False, 2: True, 3: False}
    for _ in range(8):  # each pause of an election begins the time of being steady anew
        await kept.pass_time(3.5)
    await kept.lead(1)
    assert set(handed_over(said)[1:]) == {"node 1: it is the preferred leader"}
    await kept.end()


async def test_a_leader_that_misses_records_hands_over(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    kept.stop_clock()
    await kept.start()
    kept.begin_writing()
    await kept.led_by(1)
    kept.incomplete = frozenset({1, 2, 3})
    kept.balance = True
    await kept.pass_time(15)
    assert not handed_over(said) and kept.cluster.groups[1].is_leader
    kept.incomplete = frozenset({1, 2})
    await kept.lead(3)
    assert handed_over(said) == ["node 3: records are missing or damaged at node 1"]
    await kept.pass_time(15)
    assert len(handed_over(said)) == 1, "it does not return to the preferred leader"
    with pytest.raises(TransferRejected, match="records of group 1 are missing or damaged at node 1"):
        kept.reconcilers[3].transfer_to(1)
    await kept.end()


async def test_a_full_disk_is_not_left_twice_within_ten_seconds(
    tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    kept.stop_clock()
    await kept.start()
    await kept.led_by(1)
    kept.unwritable = {1: True, 2: False}
    await kept.lead(2)
    await kept.led_by(1)
    await kept.pass_time(5)
    assert handed_over(said) == ["node 2: the disk of node 1 is full"]
    await kept.pass_time(10)
    await kept.lead(2)
    await kept.stop()


async def test_leadership_goes_where_somebody_wants_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    await kept.start()
    await kept.led_by(1)
    kept.reconcilers[1].transfer_to(1)
    assert kept.cluster.groups[1].is_leader
    await kept.asked(lambda reconciler: reconciler.transfer_to(3))
    await kept.lead(3)
    await kept.stop()


async def test_a_leader_that_is_behind_is_not_handed_anything(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    kept.stop_clock()
    await kept.start()
    await kept.led_by(1)
    kept.cluster.lost = lambda sender, to, message: 2 in (sender, to)
    await pause()
    with pytest.raises(TransferRejected, match="node 2 has not caught up with group 1"):
        kept.reconcilers[1].transfer_to(2)
    await kept.stop()


async def test_why_leadership_cannot_go_somewhere(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    await kept.start()
    await kept.led_by(1)
    with pytest.raises(TransferRejected, match="node 9 is no voter of the group"):
        kept.reconcilers[1].transfer_to(9)
    kept.silent = {3}
    with pytest.raises(TransferRejected, match="node 3 has no recent status"):
        kept.reconcilers[1].transfer_to(3)
    with pytest.raises(NotLeader, match="group 1 is not led here"):
        kept.reconcilers[2].transfer_to(3)
    kept.silent, kept.unwritable = set(), {2: True}
    with pytest.raises(TransferRejected, match="the disk of node 2 is full"):
        kept.reconcilers[1].transfer_to(2)
    kept.unwritable = {}
    kept.reconcilers[1].stop()
    kept.cluster.groups[1].change_members([1, 2, 3], [4])
    with pytest.raises(TransferRejected, match="group 1: a change of the members is under way"):
        kept.reconcilers[1].transfer_to(2)
    await kept.stop(2, 3)
    kept.reconcilers.pop(1)
    await kept.cluster.stop()


# --- costs -------------------------------------------------------------------------------------------------


async def test_where_nothing_is_led_or_nobody_else_is_wanted_nobody_looks(tmp_path: Path) -> None:
    looks: list[int] = []
    cluster = Cluster(tmp_path, voters=(1,))
    await cluster.start()

    def desired() -> DesiredMembers:
        looks.append(1)
        return DesiredMembers((1,), (), {1: 1}, frozenset({1}))

    reconciler = Reconciler(cluster.groups[1], desired, asyncio.get_running_loop(), interval_seconds=0.001)
    reconciler.reconcile()
    assert not looks  # not started
    reconciler.start()
    await pause(0.05)
    assert len(looks) == 1
    reconciler.reconcile()
    assert len(looks) == 2
    reconciler.stop()
    reconciler.stop()
    reconciler.reconcile()
    assert len(looks) == 2
    await cluster.stop()


async def test_an_error_of_the_desired_members_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path, 1, 2, 3)
    kept.learner_nodes = (4,)
    kept.broken = True
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: kept.on_status.append(context))
    await kept.start()
    await kept.start(4, joins=True)
    await kept.until(lambda: len(kept.on_status) > 2)
    kept.broken = False
    await kept.until_members(1, 2, 3, learners=(4,))
    assert "a listener of its leadership failed" in caplog.text
    await kept.stop()
