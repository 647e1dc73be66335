"""Scrubber: whose turn it is, rot that is read again until it is whole, and a cluster that mends itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.broker.maintenance import damage, scrub
from lockstep.broker.maintenance.scrub import CHECK_SECONDS, MAX_RETRY_SECONDS, RETRY_SECONDS, Scrubber
from tests.broker.conftest import StartCluster
from tests.broker.waiting import until
from tests.broker.wire import batch
from tests.storage.log.frames import same
from tests.storage.log.memory_log import NoDamage

HOUR_MS = 3_600_000


class Repair:
    """The repairs of a log group."""

    on_corrupt: Callable[[int], None]
    on_repaired: Callable[[int, list[int]], None]


class Group:
    """A log group of some closed files; what is read is noted."""

    def __init__(self, read: list[tuple[int, int]], number: int, files: int) -> None:
        self.files = list(range(1, files + 1))
        self.log = SimpleNamespace(
            corruption_found=False,
            damage=NoDamage(),
            segments=lambda: [SimpleNamespace(sequence=each) for each in self.files],
        )
        self.leader_id = 1
        self.raft = SimpleNamespace(alone=False)
        self.read_repair = SimpleNamespace(segment_repair=Repair())
        self.rotten: set[int] = set()
        self.error: Exception | None = None
        self._read, self._number = read, number
        self.repairs = 0
        """How often somebody waited for a repair."""

    async def wait_until_repaired(self) -> None:
        self.repairs += 1

    async def scrub(self, sequence: int, throttle: Callable[[int], None]) -> tuple[int, int] | None:
        throttle(1)
        self._read.append((self._number, sequence))
        if self.error is not None:
            raise self.error
        return (1, 2) if sequence in self.rotten else None


class World:
    """Two groups of four and two files, each to be read every hour."""

    def __init__(self, interval_ms: int = HOUR_MS) -> None:
        self.read: list[tuple[int, int]] = []
        self.groups = {1: Group(self.read, 1, 4), 2: Group(self.read, 2, 2)}
        self.now = 0.0
        settings = SimpleNamespace(
            lockstep_scrub_interval_ms=interval_ms, log_cleaner_io_max_bytes_per_second=float("inf")
        )
        cluster: Any = SimpleNamespace(groups=self.groups, settings=settings)
        self.scrubber = Scrubber(cluster, lambda rate: lambda count: None, lambda: self.now, lambda: 0.0)

    async def until(self, seconds: float) -> list[tuple[int, int]]:
        """Look every so often; what has been read."""
        self.read.clear()
        while self.now < seconds:
            self.now += CHECK_SECONDS
            await self.scrubber.check()
        return list(self.read)


async def test_every_file_has_its_turn_once_in_the_interval_evenly() -> None:
    world = World()
    assert len(await world.until(1500)) == 2 and len(await world.until(3690)) == 4
    first = await world.until(2 * 3600 + 90)
    assert sorted(first) == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2)]
    assert await world.until(3 * 3600 + 90) == first, "in the same order again"
    world.groups[1].files.remove(1)
    del world.groups[2]
    assert sorted(await world.until(4 * 3600 + 90)) == [(1, 2), (1, 3), (1, 4)]
    world.now += 10 * 3600
    assert sorted(await world.until(world.now + CHECK_SECONDS)) == [(1, 2), (1, 3), (1, 4)], "not ten times"
    assert await World(interval_ms=0).until(100 * 3600) == []


async def test_what_is_corrupt_is_read_again_later_and_later_until_it_is_whole() -> None:
    world = World(interval_ms=1000 * HOUR_MS)
    group = world.groups[1]
    group.rotten.add(3)
    group.log.corruption_found = True
    assert await world.until(CHECK_SECONDS) == [(1, each) for each in (1, 2, 3, 4)]
    assert not group.log.corruption_found
    assert await world.until(CHECK_SECONDS + RETRY_SECONDS) == [(1, 3)]
    assert await world.until(CHECK_SECONDS + 2 * RETRY_SECONDS) == []
    assert await world.until(CHECK_SECONDS + 3 * RETRY_SECONDS) == [(1, 3)]
    group.rotten.clear()
    assert await world.until(CHECK_SECONDS + 7 * RETRY_SECONDS) == [(1, 3)]
    assert await world.until(CHECK_SECONDS + 100 * RETRY_SECONDS) == []


async def test_corruption_that_is_met_again_and_again_is_not_looked_for_as_often() -> None:
    """Of a node alone nobody can mend it, and compaction meets it every few seconds."""
    world = World(interval_ms=1000 * HOUR_MS)
    group = world.groups[1]
    group.rotten.add(3)
    reads = 0
    while world.now < 24 * 3600:
        group.log.corruption_found = True
        reads += len(await world.until(world.now + CHECK_SECONDS))
    assert 24 * 4 < reads < 2 * 24 * 5 + 50, "once an hour in the end"
    group.log.corruption_found = False
    await world.until(world.now + 2 * MAX_RETRY_SECONDS)
    group.log.corruption_found = True
    assert len(await world.until(world.now + CHECK_SECONDS)) >= 4, "at once, after it was quiet"


async def test_files_that_are_known_to_be_damaged_are_read_first_each_after_the_repair_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(interval_ms=1000 * HOUR_MS)
    known = [SimpleNamespace(sequence=3), SimpleNamespace(sequence=4)]
    monkeypatch.setattr(NoDamage, "known", lambda self: known)
    monkeypatch.setattr(damage, "group_damage", lambda cluster, number, group: [])
    world.groups[1].log.corruption_found = True
    assert await world.until(CHECK_SECONDS) == [(1, 3), (1, 4), (1, 1), (1, 2)]
    assert world.groups[1].repairs == 4


def test_a_node_that_is_restarted_often_gets_round() -> None:
    cluster: Any = SimpleNamespace(groups={}, settings=None)
    owed = [Scrubber(cluster)._due_files for _ in range(50)]
    assert min(owed) < 0.5 < max(owed)


@pytest.mark.parametrize("error", [OSError("too many open files"), RuntimeError("closed")])
async def test_a_file_that_cannot_be_read_now_holds_up_no_other(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.groups[1].error = error
    world.groups[1].log.corruption_found = world.groups[2].log.corruption_found = True
    assert len(await world.until(CHECK_SECONDS)) == 6
    assert "group 1: " in caplog.text and str(error) in caplog.text


def damage_document(segment: int, offset: int, topic: str = "t") -> dict[str, Any]:
    return {
        "group": 1,
        "segment": segment,
        "topic": topic,
        "partition": 0,
        "first_offset": offset,
        "last_offset": offset,
        "given_up": False,
        "problem": "!",
    }


async def test_the_ranges_of_the_file_that_was_read_are_logged_whatever_others_have(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(interval_ms=1000 * HOUR_MS)
    damaged = [damage_document(1, each) for each in range(40)]
    damaged += [damage_document(4, each) for each in range(100, 125)]
    monkeypatch.setattr(scrub, "group_damage", lambda cluster, number, group: damaged if number == 1 else [])
    world.groups[1].rotten.add(4)
    world.groups[1].log.corruption_found = True
    await world.until(CHECK_SECONDS)
    lines = [each for each in caplog.messages if "log file 4" in each]
    assert len(lines) == scrub.MAX_LOGGED_RANGES + 1 and len(caplog.messages) == len(lines)
    assert lines[0] == "t-0: offset 100 is damaged (log group 1, log file 4)"
    assert lines[-1] == "log group 1, log file 4: 5 more ranges are damaged"


async def test_a_log_line_has_the_repair_of_damage_and_its_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = World(interval_ms=1000 * HOUR_MS)
    damaged = [damage_document(2, 7), damage_document(3, 9), damage_document(9, 11, "u")]
    monkeypatch.setattr(damage, "group_damage", lambda cluster, number, group: damaged if number == 1 else [])
    still: set[int] = {3}
    monkeypatch.setattr(NoDamage, "is_damaged", lambda self, sequence: sequence in still, raising=False)
    await world.until(CHECK_SECONDS)
    assert caplog.messages == []
    damaged = [damage_document(2, 7) | {"last_offset": 8}, *damaged[1:]]
    await world.until(2 * CHECK_SECONDS)
    assert caplog.messages == [], "a range that has grown"
    damaged = []
    await world.until(4 * CHECK_SECONDS)
    assert caplog.messages == [
        "t-0: offsets 7 to 8 are no longer damaged (log group 1, log file 2): the log file verifies",
        "t-0: offset 9 is no longer damaged (log group 1, log file 3): the records are deleted",
        "u-0: offset 11 is no longer damaged (log group 1, log file 9): the log file was deleted",
    ]


async def test_a_line_names_what_was_repaired_and_from_which_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where it was found and repaired between two checks."""
    caplog.set_level("INFO")
    world = World(interval_ms=1000 * HOUR_MS)
    await world.until(CHECK_SECONDS)
    damaged = [damage_document(2, 7), damage_document(2, 9, "u") | {"last_offset": 12}]
    monkeypatch.setattr(damage, "group_damage", lambda cluster, number, group: damaged if number == 1 else [])
    repair = world.groups[1].read_repair.segment_repair
    repair.on_corrupt(2)
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "WARNING",
            "t-0: offset 7, u-0: offsets 9 to 12 are damaged (log group 1, log file 2): requesting them from "
            "other nodes",
        )
    ]
    caplog.clear()
    damaged = []
    repair.on_repaired(2, [2, 3 + (5 << 32)])
    assert [(each.levelname, each.getMessage()) for each in caplog.records] == [
        (
            "INFO",
            "t-0: offset 7, u-0: offsets 9 to 12 are no longer damaged (log group 1, log file 2): repaired "
            "from nodes 2, 3",
        )
    ]


async def test_damage_is_repaired_at_once_when_a_leader_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrub, "POLL_SECONDS", 0)
    world = World(interval_ms=1000 * HOUR_MS)
    group = world.groups[1]
    group.log.corruption_found, group.leader_id = True, 0
    polls = 0

    def monotonic() -> float:
        nonlocal polls
        polls += 1
        if polls == 10:
            group.leader_id = 2
        return polls / 1000

    world.scrubber._monotonic = monotonic
    running = asyncio.ensure_future(world.scrubber.run())
    await until(lambda: world.read)
    running.cancel()
    assert polls >= 10 and world.now == 0 and not group.log.corruption_found


async def test_a_cluster_finds_and_mends_corruption_by_itself(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "CHECK_SECONDS", 0.05)
    cluster = await start_cluster(3, lockstep_data_groups="1", lockstep_scrub_interval_ms="500")
    await cluster.settled()
    leading, writer = await cluster.create("t")
    for _ in range(60):
        assert (await writer.produce("t", batch(bytes(100_000)))).error_code == 0
    node = next(each for each in cluster.brokers if each != leading)
    group = cluster.brokers[node].groups[1]
    await cluster.until(lambda: len(group.log.cleanable_segments()) > 0, "a file below two checkpoints")
    sequence = group.log.cleanable_segments()[0].sequence
    frames = group.log.snapshot_frames(1, 20, 1 << 30)
    path = next((cluster.directory / str(node)).rglob(f"groups/1/{sequence:016d}.segment"))
    with path.open("r+b") as file:
        file.seek(500_000)
        (byte,) = file.read(1)
        file.seek(500_000)
        file.write(bytes([byte ^ 0xFF]))
    await cluster.until(lambda: group.log.scrub(sequence) is None, "the file is whole again")
    assert all(map(same, frames, group.log.snapshot_frames(1, 20, 1 << 30)))
