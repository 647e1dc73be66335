"""The read barrier over leaderships as a test tells them."""

from __future__ import annotations

import asyncio

from lockstep.broker.requests.read_barrier import take_read_barrier
from tests.support.cases import each_case


class FakeLeadership:
    """A leadership without a lease; each confirmation resolves when the test says so."""

    def __init__(self) -> None:
        self.is_lapsed = True
        self.confirmations: list[asyncio.Future[bool]] = []

    def confirm(self) -> asyncio.Future[bool]:
        self.confirmations.append(asyncio.get_running_loop().create_future())
        return self.confirmations[-1]


class World:
    def __init__(self, count: int = 1) -> None:
        self.leaderships = [FakeLeadership() for _ in range(count)]
        self.barrier = asyncio.ensure_future(take_read_barrier(self.lapsed))

    def lapsed(self) -> list[FakeLeadership]:
        return [each for each in self.leaderships if each.is_lapsed]

    async def turn(self) -> bool:
        """Returns whether the barrier is taken, after some turns of the loop."""
        for _ in range(3):
            await asyncio.sleep(0)
        return self.barrier.done()


async def test_with_a_lease_nothing_is_waited_for() -> None:
    world = World()
    world.leaderships[0].is_lapsed = False
    assert await world.turn()
    assert world.leaderships[0].confirmations == []


async def test_a_confirmation_is_enough() -> None:
    world = World()
    assert not await world.turn()
    world.leaderships[0].confirmations[0].set_result(True)
    assert await world.turn()
    assert len(world.leaderships[0].confirmations) == 1


@each_case("leads_again", [False, True])
async def test_a_leadership_that_ends_is_not_waited_for(leads_again: bool) -> None:
    world = World()
    (leadership,) = world.leaderships
    await world.turn()
    leadership.is_lapsed = leads_again
    leadership.confirmations[0].set_result(False)
    assert await world.turn() is not leads_again
    if leads_again:
        leadership.confirmations[1].set_result(True)
        assert await world.turn()


async def test_every_leadership_is_confirmed() -> None:
    world = World(3)
    world.leaderships[1].is_lapsed = False
    for place in (0, 2):
        assert not await world.turn()
        world.leaderships[place].confirmations[0].set_result(True)
    assert await world.turn()
    assert [len(each.confirmations) for each in world.leaderships] == [1, 0, 1]


async def test_a_leadership_that_lapses_meanwhile_is_confirmed_too() -> None:
    world = World(2)
    first, second = world.leaderships
    second.is_lapsed = False
    await world.turn()
    second.is_lapsed = True
    first.confirmations[0].set_result(True)
    assert not await world.turn()
    second.confirmations[0].set_result(True)
    assert await world.turn()
