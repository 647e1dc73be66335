"""What is given up while transactions are under way: partitions, and waiting for room.

In brackets: the tests of Waltz meant.
"""

from __future__ import annotations

import asyncio

import pytest

from lockstep.testing import RunningBroker
from lockstep.transactions import (
    Appended,
    Committed,
    Draft,
    Expired,
    NotAppended,
    NotApplied,
    Transaction,
    TransactionClient,
)
from tests.lockstep.transactions.accounts import Counters, locked_topic, until


class Write(Transaction):
    def __init__(self, number: int) -> None:
        self.number = number

    def execute(self, draft: Draft) -> None:
        draft.add(b"%d" % self.number, key=b"%d" % self.number)


class Held(Write):
    """Executes when it is let."""

    def __init__(self, number: int, gate: asyncio.Event) -> None:
        super().__init__(number)
        self.gate = gate
        self.executing = False

    async def execute(self, draft: Draft) -> None:  # type: ignore[override]
        self.executing = True
        await self.gate.wait()
        super().execute(draft)


async def test_a_partition_that_is_given_up_while_it_is_written_to(running: RunningBroker) -> None:
    """[testWriteToInactivePartition]: each transaction hears the truth, whichever it is."""
    topic, counters = await locked_topic(running.bootstrap_servers), Counters()
    async with TransactionClient(running.bootstrap_servers, topic, counters) as client:
        tasks: list[asyncio.Task[Appended | None]] = []
        for number in range(300):
            tasks.append(await client.submit(Write(number)))
            if number == 150:
                await until(lambda: sum(task.done() for task in tasks) >= 10)
                await client.assign([])
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert client.partitions == [] and client.pending_count() == 0
        await client.assign([0])
        await client.caught_up()
    kinds = {type(each) for each in ends}
    assert {Appended, NotAppended} <= kinds <= {Appended, NotAppended, NotApplied, Expired}
    there = {int(entry.value or b"-1") for entry in counters.applied}
    for number, end in enumerate(ends):
        if isinstance(end, Appended | NotApplied):
            assert number in there
        elif isinstance(end, NotAppended) or (isinstance(end, Expired) and end.is_known):
            assert number not in there
    assert len(there) == len(counters.applied), "none of them is there twice"


async def test_what_is_in_the_log_when_its_partition_is_given_up(running: RunningBroker) -> None:
    """It is said to be there, and applied once the partition is assigned again."""
    topic, counters, gate = await locked_topic(running.bootstrap_servers), Counters(), asyncio.Event()
    completed: list[int] = []

    class Stuck(Counters):
        async def apply(self, committed: Committed) -> None:  # type: ignore[override]
            await gate.wait()
            counters.apply(committed)

        def high_water_mark(self, partition: int) -> int:
            return counters.high_water_mark(partition)

    class Told(Write):
        def on_completion(self, is_appended: bool) -> None:
            assert is_appended
            completed.append(self.number)

    async with TransactionClient(running.bootstrap_servers, topic, Stuck()) as client:
        tasks = [await client.submit(Told(number)) for number in range(3)]
        await until(lambda: len(completed) == 3)
        await client.assign([])
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, NotApplied) for each in ends) and not counters.applied
        gate.set()
        await client.assign([0])
        await client.caught_up()
        offsets = [each.offsets[0] for each in ends if isinstance(each, NotApplied)]
        assert [entry.offset for entry in counters.applied] == sorted(offsets) == [0, 1, 2]


async def test_waiting_for_room_can_be_given_up(running: RunningBroker) -> None:
    """[testRegisterTimeout]: whoever does not get in leaves nothing behind, and takes nobody's place."""
    topic, counters, gate = await locked_topic(running.bootstrap_servers), Counters(), asyncio.Event()
    async with TransactionClient(running.bootstrap_servers, topic, counters, max_outstanding=2) as client:
        held = [Held(number, gate) for number in range(2)]
        tasks = [await client.submit(each) for each in held]
        await until(lambda: all(each.executing for each in held))
        late = [Held(number, gate) for number in range(2, 5)]
        for each in late:
            waiting = asyncio.create_task(client.submit(each))
            await asyncio.sleep(0.01)
            assert not waiting.done() and client.pending_count() == 2
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        with pytest.raises(Expired, match="no room") as raised:
            await client.submit(late[0], timeout_s=0.01)
        assert raised.value.is_known
        gate.set()
        assert all(await asyncio.gather(*tasks))
        assert not any(each.executing for each in late)
        async with asyncio.timeout(30):  # a place that is taken by nobody would be waited for
            again = await asyncio.gather(*(client.execute(Write(number)) for number in range(5, 15)))
        assert all(again) and len(counters.applied) == 12
