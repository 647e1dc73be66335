"""The subscriptions of the partitions that are assigned to a client.

Owns: the subscriptions and their tasks. Invariant: a partition has at most one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from lockstep.transactions.calls import Calls
from lockstep.transactions.log import Log
from lockstep.transactions.model import Committed, SubscriptionClosed
from lockstep.transactions.subscription import Subscription


class Subscriptions:
    """Begins without a subscription; see `assign`."""

    def __init__(self, log: Log, calls: Calls, on_applied: Callable[[Committed], Awaitable[None]]) -> None:
        self._log = log
        self._calls = calls
        self._on_applied = on_applied
        self._subscriptions: dict[int, Subscription] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._assigning = asyncio.Lock()
        self._is_closed = False

    @property
    def hwms(self) -> dict[int, int]:
        """Partition -> high-water mark."""
        return {partition: subscription.hwm for partition, subscription in self._subscriptions.items()}

    def of(self, partition: int) -> Subscription:
        """Raises SubscriptionClosed."""
        subscription = self._subscriptions.get(partition)
        if subscription is None:
            raise SubscriptionClosed(f"partition {partition} is not assigned to this client")
        return subscription

    def stalled_partitions(self) -> dict[int, BaseException]:
        """The partitions whose subscription has stopped, and what stopped it."""
        return {each.partition: each.stalled_by for each in self._subscriptions.values() if each.stalled_by}

    def is_subscription_task(self, task: asyncio.Task[object] | None) -> bool:
        """Returns whether the task is a subscription's: then it waits for the caller."""
        return task in self._tasks.values()

    async def assign(self, partitions: Iterable[int]) -> None:
        """Subscribes to these partitions and no others. Raises SubscriptionClosed where the client is closed,
        and the errors of `Subscription.begin`."""
        requested = sorted(set(partitions))
        async with self._assigning:  # two subscriptions of one partition would apply it twice
            await self._abandon(set(self._subscriptions) - set(requested))
            for partition in requested:
                if partition not in self._subscriptions:
                    await self._begin(partition)

    async def _begin(self, partition: int) -> None:
        subscription = Subscription(self._log, self._calls, partition, self._on_applied)
        await subscription.begin()
        if self._is_closed:
            raise SubscriptionClosed("the client is closed")
        self._subscriptions[partition] = subscription
        self._tasks[partition] = asyncio.create_task(subscription.run(), name=f"subscription {partition}")

    async def _abandon(self, partitions: Iterable[int]) -> None:
        tasks = []
        for partition in partitions:
            self._subscriptions.pop(partition).abandon()
            tasks.append(self._tasks.pop(partition))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def caught_up(self) -> None:
        """Waits until all records that are committed at the call are applied. Raises SubscriptionClosed,
        SubscriptionStalled."""
        subscriptions = list(self._subscriptions.values())
        ends = await asyncio.gather(
            *(self._log.end(subscription.partition) for subscription in subscriptions)
        )
        wait_until_applied = (
            subscription.wait_until_applied(end - 1, is_patient=False)
            for subscription, end in zip(subscriptions, ends, strict=True)
        )
        await asyncio.gather(*wait_until_applied)

    async def close(self) -> None:
        """Ends all subscriptions permanently."""
        self._is_closed = True
        await self._abandon(list(self._subscriptions))
