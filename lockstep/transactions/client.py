"""The transaction client: executes transactions against an application's state until the log takes them.

Owns the feeds of the assigned partitions, the tries under way and their bound, and who is told what. A
transaction is executed, appended, and executed again after a refusal as soon as the feed has applied what
stood in its way. What the log answers is never guessed: a try of which nobody knows is fenced, and the feed,
read up to the fence, says whether it is there.

Invariants: the high-water marks of a try are taken before it is executed; a try whose fate is open is never
followed by another one; callbacks of one try come in the order refusal, completion, application.

The application's functions run on the event loop, or in `threads` where they block.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, Self
from uuid import uuid4

from lockstep.transactions.feed import Feed, FeedEnded
from lockstep.transactions.log import (
    Append,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    Elsewhere,
    Log,
    Part,
)
from lockstep.transactions.model import (
    Appended,
    Application,
    Committed,
    Draft,
    Expired,
    NotAppended,
    NotApplied,
    PartitionDraft,
    Refusal,
    RefusedForGood,
    Transaction,
)
from lockstep.transactions.pending import Monitor, Pending
from lockstep.transactions.remote import RemoteLog

MAX_OUTSTANDING: Final = 64
TIMEOUT_S: Final = 120.0
FENCE_TIMEOUT_S: Final = 30.0
"""For settling what became of a try when its time is over."""
UNTOLD_PAUSE_S: Final = 0.05
"""Before it is executed again, where a refusal does not say what to wait for."""

_log = logging.getLogger("lockstep.transactions")


class _Run:
    """How far one transaction is, for when it is interrupted."""

    __slots__ = ("deadline", "offsets", "open")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.open: Pending | None = None
        """The try that is under way, its fate not known."""
        self.offsets: Mapping[int, int] | None = None
        """It is in the log."""


class TransactionClient:
    """Transactions on one topic. Use it as `async with TransactionClient(bootstrap, topic, application)`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        application: Application,
        *,
        partitions: Iterable[int] | None = None,
        max_outstanding: int = MAX_OUTSTANDING,
        timeout_s: float = TIMEOUT_S,
        create: int = 0,
        threads: Executor | None = None,
        log: Log | None = None,
    ) -> None:
        """
        Args:
            bootstrap: HOST:PORT of a broker, several with commas between them.
            topic: with `lockstep.locks=true`.
            partitions: those that are fed to the application; all by default. See `assign`.
            max_outstanding: transactions under way at a time; `execute` and `submit` wait for room.
            timeout_s: how long a transaction is tried, where `execute` is not told.
            create: make the topic with so many partitions if it is not there.
            threads: where the application's plain functions run, if they block; on the event loop by default.
            log: another log than that topic: a double of `lockstep.testing`.
        """
        if max_outstanding < 1:
            raise ValueError(f"max_outstanding={max_outstanding}: at least 1")
        self.client_id = uuid4().hex
        self._log = RemoteLog(bootstrap, topic, self.client_id, create) if log is None else log
        self._application = application
        self._wanted = None if partitions is None else list(partitions)
        self._timeout_s = timeout_s
        self._threads = threads
        self._room = asyncio.Semaphore(max_outstanding)
        self._monitor = Monitor(self.client_id)
        self._partition_count = 0
        self._feeds: dict[int, Feed] = {}
        self._feeding: dict[int, asyncio.Task[None]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._assigning = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect and begin to feed. Raises ClientError, ValueError (partitions), what `assign` raises."""
        try:
            self._partition_count = await self._log.open()
            await self.assign(range(self._partition_count) if self._wanted is None else self._wanted)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the feeds and what is under way: Expired or NotApplied. `flush` waits for it."""
        self._closed = True
        await asyncio.sleep(0)  # who is cancelled before it began can tell nobody
        tasks = [*self._running, *self._feeding.values()]
        for task in tasks:
            task.cancel()
        for feed in self._feeds.values():
            feed.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._feeds.clear()
        self._feeding.clear()
        await self._log.close()

    # -- partitions -------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        """Of the topic."""
        return self._partition_count

    @property
    def partitions(self) -> list[int]:
        """Those that are fed to the application."""
        return sorted(self._feeds)

    async def assign(self, partitions: Iterable[int]) -> None:
        """Feed these partitions from now on, and no others. What waits for one that is given up fails.

        Raises ValueError for a partition that is not there, and what `Application.high_water_mark` raises.
        """
        async with self._assigning:  # two feeds of one partition would apply it twice
            await self._assign(partitions)

    async def _assign(self, partitions: Iterable[int]) -> None:
        wanted = sorted(set(partitions))
        for partition in wanted:
            if not 0 <= partition < self._partition_count:
                raise ValueError(f"partition {partition}: the topic has 0 to {self._partition_count - 1}")
        given_up = [self._feeding.pop(each) for each in set(self._feeding) - set(wanted)]
        for partition in set(self._feeds) - set(wanted):
            self._feeds.pop(partition).abandon()
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        for partition in wanted:
            if partition not in self._feeds:
                feed = Feed(self._log, self._application, partition, self._call_whole, self._on_applied)
                await feed.begin()
                if self._closed:
                    raise ValueError("the client is closed")
                self._feeds[partition] = feed
                self._feeding[partition] = asyncio.create_task(feed.run(), name=f"feed {partition}")

    def high_water_mark(self, partition: int) -> int:
        """The offset up to which the partition is applied. KeyError where it is not assigned."""
        return self._feeds[partition].mark

    def stalled(self) -> dict[int, BaseException]:
        """The partitions whose feed has stopped, and what stopped it."""
        return {each.partition: each.stalled_by for each in self._feeds.values() if each.stalled_by}

    def resume(self, partition: int) -> None:
        """Let a stalled feed try again what it is stalled at. KeyError where it is not assigned."""
        self._feeds[partition].resume()

    async def caught_up(self, timeout_s: float | None = None) -> None:
        """Wait until everything is applied that is committed by now, in every assigned partition.

        Raises TimeoutError: a feed is stalled, maybe, or no broker answers; without `timeout_s` it waits on.
        FeedEnded: a partition was given up meanwhile, or the client closed.
        """
        feeds = list(self._feeds.values())
        async with asyncio.timeout(timeout_s):
            ends = await asyncio.gather(*(self._log.end(feed.partition) for feed in feeds))
            await asyncio.gather(*(feed.reached(end - 1) for feed, end in zip(feeds, ends, strict=True)))

    # -- transactions -----------------------------------------------------------------------------------

    async def execute(self, transaction: Transaction, *, timeout_s: float | None = None) -> Appended | None:
        """Execute until it is appended, and applied here. None: `execute` said that nothing is to be done.

        Raises:
            RefusedForGood, NotAppended: it is not in the log, and will not be.
            Expired: `timeout_s` is over; see its `is_known`.
            NotApplied: `timeout_s` is over; it is in the log, the application has not applied it yet.
            Exception: whatever `transaction.execute` raised.
        """
        return await (await self.submit(transaction, timeout_s=timeout_s))

    async def submit(
        self, transaction: Transaction, *, timeout_s: float | None = None
    ) -> asyncio.Task[Appended | None]:
        """Begin to execute it, once there is room; the task ends as `execute` does.

        Raises NotAppended where the client is closed, Expired where there is no room within `timeout_s`.
        """
        deadline = asyncio.get_running_loop().time() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.acquire()
        except TimeoutError:
            await self._tell(transaction.on_expiration, True)
            raise Expired("no room for it in time", is_known=True) from None
        if self._closed:
            self._room.release()
            raise NotAppended("the client is closed")
        task = asyncio.create_task(self._run(transaction, deadline))
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def pending(self) -> int:
        """How many transactions are under way."""
        return len(self._running)

    async def flush(self) -> None:
        """Wait for all that are under way now, however they end."""
        if self._running:
            await asyncio.wait(set(self._running))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._room.release()
        if not task.cancelled():
            task.exception()  # told by the callbacks already, where nobody awaits it

    async def _run(self, transaction: Transaction, deadline: float) -> Appended | None:
        run = _Run(deadline)
        try:
            try:
                if self._closed:
                    raise Expired("the client was closed", is_known=True)
                return await self._tried(transaction, run)
            except asyncio.CancelledError:
                if not self._closed:
                    raise
                offsets = run.offsets or (run.open and run.open.offsets)
                if offsets:
                    raise NotApplied("the client was closed", offsets) from None
                raise Expired("the client was closed", is_known=run.open is None) from None
        except NotApplied:
            raise
        except Expired as error:
            await self._tell(transaction.on_expiration, error.is_known)
            raise
        except Exception as error:
            await self._tell(transaction.on_exception, error)
            raise

    async def _tried(self, transaction: Transaction, run: _Run) -> Appended | None:
        tries = 0
        while True:
            tries += 1
            append = await self._executed(transaction)
            if append is None:
                await self._tell(transaction.on_completion, False)
                return None
            pending = self._monitor.register(transaction, append)
            try:
                run.open = pending
                found = await self._append(pending, run.deadline)
                run.open = None
                if found is not None and not isinstance(found, Refusal):
                    run.offsets = found
                    await self._complete(pending)
                    await self._applied(found, run.deadline)
                    return Appended(found, tries)
            finally:
                self._monitor.forget(pending)
            if found is not None:
                await self._tell(transaction.on_refusal, found)
                if found.is_final:
                    raise RefusedForGood(found)
                await self._caught_up_with(found, append, run.deadline)

    async def _executed(self, transaction: Transaction) -> Append | None:
        """The application's answer to the present state."""
        marks = {partition: feed.mark for partition, feed in self._feeds.items()}
        partition = transaction.partition(self._partition_count)
        draft = Draft(partition, self._partition_count)
        wanted = await self._call(transaction.execute, draft)
        if wanted is False:
            return None
        return append_of(draft, self._monitor, marks)

    async def _append(self, pending: Pending, deadline: float) -> Mapping[int, int] | Refusal | None:
        """Offsets, a refusal, or None: not there, and may be tried again. Raises Expired, NotAppended."""
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise Expired("its time was over before it could be tried again", is_known=True)
        try:
            return await self._log.append(pending.append, left_s)
        except AppendRefused as error:
            return error.refusal
        except AppendFailed as error:
            raise NotAppended(str(error)) from None
        except AppendExpired as error:
            raise Expired(str(error), is_known=True) from None
        except AppendUnknown as error:
            return await self._settled(pending, error)

    async def _settled(self, pending: Pending, problem: AppendUnknown) -> Mapping[int, int] | None:
        """After a fence the feed tells. Raises Expired where there cannot be one, NotApplied."""
        self._monitor.generation += 1
        append = pending.append
        try:
            async with asyncio.timeout(FENCE_TIMEOUT_S):
                ends = await self._log.fence(append, FENCE_TIMEOUT_S)
                for partition, end in ends.items():
                    feed = self._feed(partition)
                    await feed.reached(end - 1)
                    if pending.seen:
                        continue
                    if feed.began > append.parts[partition].hwm:
                        raise FeedEnded(f"the feed of partition {partition} began behind it")
                    return None  # all of it is there, or nothing
        except (AppendUnknown, TimeoutError, FeedEnded) as error:
            text = f"{problem}; {error or 'it could not be settled'}"
            if not pending.seen:
                raise Expired(text, is_known=False) from None
            if pending.seen.keys() < append.parts.keys():
                await self._complete(pending)
                raise NotApplied(text, pending.offsets) from None
        return pending.offsets

    async def _applied(self, offsets: Mapping[int, int], deadline: float) -> None:
        try:
            async with asyncio.timeout_at(deadline):
                for partition, offset in offsets.items():
                    await self._feed(partition).reached(offset)
        except (TimeoutError, FeedEnded) as error:
            raise NotApplied(
                f"appended at {dict(offsets)}: {error or 'not applied in time'}", offsets
            ) from None

    async def _caught_up_with(self, refusal: Refusal, append: Append, deadline: float) -> None:
        """Until what stood in its way is applied."""
        try:
            feed = self._feed(refusal.partition if refusal.partition >= 0 else min(append.parts))
            async with asyncio.timeout_at(deadline):
                offset = refusal.conflict_offset
                if offset is None:
                    offset = await self._log.end(feed.partition) - 1
                    if feed.mark >= offset:  # behind an open transaction, maybe: nothing says when it passes
                        await asyncio.sleep(UNTOLD_PAUSE_S)
                await feed.reached(offset)
        except FeedEnded as error:
            raise NotAppended(str(error)) from None
        except TimeoutError:
            raise Expired(f"refused, and not caught up in time: {refusal.text}", is_known=True) from None

    # -- callbacks --------------------------------------------------------------------------------------

    async def _on_applied(self, entry: Committed) -> None:
        pending = self._monitor.seen(entry)
        if pending is not None:
            await self._complete(pending)
            await self._tell(pending.transaction.on_application, entry)

    async def _complete(self, pending: Pending) -> None:
        if pending.completing is None:
            pending.completing = asyncio.ensure_future(self._tell(pending.transaction.on_completion, True))
        await asyncio.shield(pending.completing)

    async def _tell(self, function: Callable[..., Any], *arguments: object) -> None:
        """A transaction's callback; what it raises changes nothing."""
        try:
            await self._call(function, *arguments)
        except Exception as error:
            try:
                await self._call(self._application.on_exception, -1, -1, error)
            except Exception:
                _log.exception("on_exception failed, too")

    async def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            if self._threads is not None and not inspect.iscoroutinefunction(function):
                loop = asyncio.get_running_loop()
                result = await loop.run_in_executor(self._threads, function, *arguments)
            else:
                result = function(*arguments)
            return await result if isinstance(result, Awaitable) else result
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The application's own: a feed that takes it for an end would stand still, and nobody knew.
            raise RuntimeError(f"{function!r} was cancelled") from error

    async def _call_whole(self, function: Callable[..., Any], *arguments: object) -> Any:
        """For feeds: a thread cannot be stopped, and nothing may be applied beside what it applies."""
        if self._threads is None or inspect.iscoroutinefunction(function):
            return await self._call(function, *arguments)
        calling = asyncio.ensure_future(self._call(function, *arguments))
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            await asyncio.gather(calling, return_exceptions=True)
            raise

    def _feed(self, partition: int) -> Feed:
        feed = self._feeds.get(partition)
        if feed is None:
            raise FeedEnded(f"partition {partition} is not assigned to this client")
        return feed


def append_of(draft: Draft, monitor: Monitor, marks: Mapping[int, int]) -> Append:
    """A draft as something to be appended. Raises NotAppended for what cannot be."""
    written = {number: part for number, part in draft.parts.items() if part.records}
    if not written:
        raise NotAppended("the transaction has no record")
    for number, part in draft.parts.items():
        if number not in marks:
            raise NotAppended(f"partition {number} is not assigned to this client")
        if number not in written and (
            part.write_locks or part.append_locks or part.expected_offset is not None
        ):
            raise NotAppended(f"partition {number}: only read locks go without a record there")
    elsewhere = {
        number: Elsewhere(marks[number], tuple(part.read_locks))
        for number, part in draft.parts.items()
        if number not in written and part.read_locks
    }
    first = draft.partition if draft.partition in written else min(written)
    return Append(
        monitor.next_request(),
        {
            number: _part(part, marks[number], elsewhere if number == first else {})
            for number, part in sorted(written.items())
        },
    )


def _part(draft: PartitionDraft, mark: int, elsewhere: Mapping[int, Elsewhere]) -> Part:
    return Part(
        tuple(draft.records),
        mark,
        tuple(draft.write_locks),
        tuple(draft.read_locks),
        tuple(draft.append_locks),
        draft.expected_offset,
        elsewhere,
    )
