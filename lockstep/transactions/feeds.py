"""The feeds of the partitions that are assigned to a client.

Owns which there are, and their tasks. Invariant: never two of one partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from lockstep.transactions.calls import Calls
from lockstep.transactions.feed import Feed
from lockstep.transactions.log import Log
from lockstep.transactions.model import Committed, FeedEnded


class Feeds:
    """None at first; see `assign`."""

    def __init__(self, log: Log, calls: Calls, on_applied: Callable[[Committed], Awaitable[None]]) -> None:
        self._log = log
        self._calls = calls
        self._on_applied = on_applied
        self._feeds: dict[int, Feed] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._assigning = asyncio.Lock()
        self._is_closed = False

    @property
    def hwms(self) -> dict[int, int]:
        """Partition -> high-water mark."""
        return {partition: feed.hwm for partition, feed in self._feeds.items()}

    def of(self, partition: int) -> Feed:
        """Raises FeedEnded."""
        feed = self._feeds.get(partition)
        if feed is None:
            raise FeedEnded(f"partition {partition} is not assigned to this client")
        return feed

    def stalled(self) -> dict[int, BaseException]:
        """The partitions whose feed has stopped, and what stopped it."""
        return {each.partition: each.stalled_by for each in self._feeds.values() if each.stalled_by}

    def is_fed_by(self, task: asyncio.Task[object] | None) -> bool:
        """Whether the task is a feed's: then it waits for whoever asks."""
        return task in self._tasks.values()

    async def assign(self, partitions: Iterable[int]) -> None:
        """These and no others. Raises FeedEnded where it is closed, and what `Feed.begin` raises."""
        wanted = sorted(set(partitions))
        async with self._assigning:  # two feeds of one partition would apply it twice
            await self._give_up(set(self._feeds) - set(wanted))
            for partition in wanted:
                if partition not in self._feeds:
                    await self._begin(partition)

    async def _begin(self, partition: int) -> None:
        feed = Feed(self._log, self._calls, partition, self._on_applied)
        await feed.begin()
        if self._is_closed:
            raise FeedEnded("the client is closed")
        self._feeds[partition] = feed
        self._tasks[partition] = asyncio.create_task(feed.run(), name=f"feed {partition}")

    async def _give_up(self, partitions: Iterable[int]) -> None:
        tasks = []
        for partition in partitions:
            self._feeds.pop(partition).abandon()
            tasks.append(self._tasks.pop(partition))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def caught_up(self) -> None:
        """Wait for all that is committed by now. Raises FeedEnded, FeedStalled."""
        feeds = list(self._feeds.values())
        ends = await asyncio.gather(*(self._log.end(feed.partition) for feed in feeds))
        reached = (feed.reached(end - 1, is_patient=False) for feed, end in zip(feeds, ends, strict=True))
        await asyncio.gather(*reached)

    async def close(self) -> None:
        """End them all, for good."""
        self._is_closed = True
        await self._give_up(list(self._feeds))
