"""What the log tells of disks that are full, once or again and again."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.broker.maintenance import full_disks
from lockstep.broker.maintenance.full_disks import FullDisks

FULL, ROOM = "the disk is full", "the disk has space again"


class Group:
    """A log group whose disk is full, or not, as it is told."""

    def __init__(self) -> None:
        self.log = SimpleNamespace(
            disk_full=False,
            disk_failures=0,
            write_error="",
            yield_room=lambda yielding: None,
            retry_space=self.retry,
        )
        self.installer = SimpleNamespace(is_out_of_space=False)
        self.group_id = 1
        self.retried = 0

    def retry(self) -> None:
        self.retried += 1

    def fill(self) -> None:
        self.log.disk_full = True
        self.log.disk_failures += 1


class World:
    """One node; `on_status` are its log lines about full disks, in short."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog = caplog
        self.groups: dict[int, Any] = {1: Group(), 2: Group()}
        self.enforced = 0
        self.failure: Exception | None = None
        self.disks = FullDisks(lambda: self.groups, self._enforce)

    async def _enforce(self) -> None:
        self.enforced += 1
        if self.failure is not None:
            raise self.failure

    def on_status(self) -> list[str]:
        texts = [record.getMessage() for record in self._caplog.records]
        self._caplog.clear()
        return [text.partition(";")[0].removeprefix("log group ") for text in texts]


@pytest.fixture
def world(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> World:
    async def free_nothing(group: object) -> int:
        return 0

    monkeypatch.setattr(full_disks, "free_on_full_disk", free_nothing)
    return World(caplog)


async def test_each_full_disk_is_logged(world: World) -> None:
    group = world.groups[1]
    for _ in range(3):
        group.fill()
        await world.disks.check()
        await world.disks.check()
        assert world.on_status() == [f"1: {FULL}"]
        group.log.disk_full = False
        await world.disks.check()
        assert world.on_status() == [f"1: {ROOM}"]
    assert group.retried == 6
    assert world.enforced == 3


async def test_a_disk_that_was_full_between_two_checks_is_logged(world: World) -> None:
    """Somebody was refused: a disk that fills and is freed within a second left no line."""
    group = world.groups[2]
    group.fill()
    group.log.disk_full = False
    await world.disks.check()
    await world.disks.check()
    assert world.on_status() == [f"2: {FULL}", f"2: {ROOM}"]


async def test_a_disk_that_goes_on_failing_has_no_room_again(world: World) -> None:
    group = world.groups[1]
    for is_full in (True, False, True, False):
        group.fill()
        group.log.disk_full = is_full
        await world.disks.check()
    assert world.on_status() == [f"1: {FULL}"]


async def test_a_group_that_moved_away_and_back_is_logged_again(world: World) -> None:
    former = world.groups[1]
    former.fill()
    await world.disks.check()
    world.groups.pop(1)
    await world.disks.check()
    world.groups[1] = Group()
    await world.disks.check()
    world.groups[1].fill()
    await world.disks.check()
    assert world.on_status() == [f"1: {FULL}"] * 2


async def test_writes_that_fail_are_logged_once_and_tried_again_and_are_no_full_disk(world: World) -> None:
    group = world.groups[2]
    for _ in range(2):
        group.log.write_error = "7.index: [Errno 5] Input/output error"
        for _ in range(3):
            await world.disks.check()
        (text,) = [record.getMessage() for record in world._caplog.records]
        assert "though the disk is not full: 7.index: [Errno 5] Input/output error" in text
        world.on_status()
        group.log.write_error = ""
        await world.disks.check()
        assert world.on_status() == ["2: the files of the log are written again"]
    assert group.retried == 6 and not world.enforced


async def test_what_keeps_a_full_disk_from_being_freed_is_logged_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(group: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(full_disks, "free_on_full_disk", fail)
    world.failure = OSError(5, "Input/output error")
    world.groups[1].fill()
    for _ in range(3):
        await world.disks.check()
    assert world.on_status() == [
        f"1: {FULL}",
        "1: retention is delayed: [Errno 5] Input/output error",
        "1: no log file can be freed: [Errno 5] Input/output error",
    ]


async def test_a_failure_does_not_end_the_looks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            world.failure = None
        elif looks == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("lockstep.broker.maintenance.full_disks.asyncio.sleep", sleep)
    world.failure = RuntimeError("cannot schedule new futures after shutdown")
    world.groups[1].fill()
    with pytest.raises(KeyboardInterrupt):
        await world.disks.run()
    assert world.on_status() == [f"1: {FULL}", "the check for full disks failed"]
    assert world.groups[1].retried == 1
