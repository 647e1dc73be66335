"""Whether a member still led when it was asked: by its lease, by later answers, or not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.storage import read_index
from lockstep.storage.raft.raft import Raft
from lockstep.storage.read_index import ReadIndex
from lockstep.storage.replica import Replica
from tests.storage.cluster import Cluster


class World:
    """A replica as a test says it is; every turn of the loop is a look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(read_index, "POLL_SECONDS", 0)
        self.now_ms = 1000
        self.contact_ms = 0
        self.lease = False
        self.raft = SimpleNamespace(
            term=3, contact_ms=lambda now_ms: self.contact_ms, has_lease=lambda now_ms: self.lease
        )
        self.replica = SimpleNamespace(
            raft=self.raft, is_serving=True, stopped=False, now_ms=lambda: self.now_ms
        )
        self.read_index = ReadIndex(cast(Replica, self.replica), asyncio.get_running_loop())

    async def looks(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_what_was_sent_later_is_to_be_answered(world: World) -> None:
    first = world.read_index.confirm_leadership()
    world.now_ms += 5
    second = world.read_index.confirm_leadership()
    world.contact_ms = 1000
    await world.looks()
    assert not first.done(), "sent in the same millisecond, perhaps before"
    world.contact_ms = 1001
    await world.looks()
    assert first.result() and not second.done()
    world.contact_ms = 2000
    assert await second
    third = world.read_index.confirm_leadership()
    assert await third, "asked after a pause"


async def test_a_renewed_lease_confirms_reads(world: World) -> None:
    asked = world.read_index.confirm_leadership()
    await world.looks()
    assert not asked.done()
    world.lease = True
    assert await asked


@pytest.mark.parametrize(("what", "now"), [("is_serving", False), ("stopped", True), ("term", 5)])
async def test_a_leadership_that_is_over_is_not_confirmed(world: World, what: str, now: Any) -> None:
    asked = [world.read_index.confirm_leadership() for _ in range(2)]
    asked[0].cancel()  # whoever asked waits no more
    setattr(world.raft if what == "term" else world.replica, what, now)
    world.contact_ms, world.lease = 9999, True
    assert await asked[1] is False


async def test_of_real_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was held up, as far as its lease says; then one that is cut off."""
    cluster = Cluster(tmp_path)
    await cluster.start()
    leader = await cluster.leader()
    with monkeypatch.context() as held_up:
        held_up.setattr(Raft, "has_lease", lambda raft, now_ms: False)
        assert await leader.read_index.confirm_leadership()
    for group in cluster.groups.values():
        assert group is leader or await group.read_index.confirm_leadership() is False
    cut_off = leader.raft.member_id
    cluster.lost = lambda sender, to, message: cut_off in (sender, to)
    await cluster.until(lambda: not leader.has_lease)
    assert await asyncio.wait_for(leader.read_index.confirm_leadership(), 10) is False
    await cluster.stop()
    assert await leader.read_index.confirm_leadership() is False
