"""The transaction client: executes transactions against an application's state until the log takes them.

Owns the subscriptions of the assigned partitions, the tries under way and their limit, and the notifications
of callers. A transaction is executed, appended, and executed again after a rejection as soon as the
subscription has applied what stood in its way. The outcome of an append is never guessed: a try with an
unknown outcome is fenced, and the subscription, read up to the fence, shows whether the log has it.

Invariants: the high-water marks of a try are taken before it is executed; a try whose fate is open is never
followed by another one; callbacks of one try come in the order rejection, completion, application.

The application's functions run on the event loop, or in `threads` where they block.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Any, Final, Self
from uuid import uuid4

from lockstep.kafka_client.security import Properties
from lockstep.transactions.calls import DEADLOCK_TEXT, IN_APPLICATION, Calls
from lockstep.transactions.contention_backoff import ContentionBackoff
from lockstep.transactions.draft import Draft, append_of
from lockstep.transactions.log import (
    AppendAttempt,
    AppendExpired,
    AppendFailed,
    AppendRefused,
    AppendUnknown,
    Log,
)
from lockstep.transactions.model import (
    Appended,
    Application,
    Committed,
    Expired,
    NotAppended,
    NotApplied,
    Refusal,
    RefusedForGood,
    SubscriptionClosed,
)
from lockstep.transactions.monitor import Monitor, PendingAppend
from lockstep.transactions.remote import RemoteLog
from lockstep.transactions.subscriptions import Subscriptions
from lockstep.transactions.transaction import Transaction

MAX_OUTSTANDING: Final = 64
TIMEOUT_S: Final = 120.0
FENCE_TIMEOUT_S: Final = 30.0
"""The time for a fence that decides the outcome of an append attempt after its timeout."""
APPLIED_PAUSE_S: Final = 0.05
"""The pause before it is executed again, where no conflicting transaction has to be waited for."""


class _Run:
    """The progress of one transaction, for when it is interrupted."""

    __slots__ = ("deadline", "has_room", "offsets", "open")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.has_room = False
        """One of `max_outstanding` is its."""
        self.open: PendingAppend | None = None
        """The try that is under way, its fate not known."""
        self.offsets: Mapping[int, int] | None = None
        """Its offsets once it is in the log; None before."""


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
        properties: Properties | None = None,
    ) -> None:
        """
        Args:
            bootstrap: HOST:PORT of a broker, several with commas between them.
            topic: with `lockstep.locks=true`.
            partitions: those that are fed to the application; all by default. See `assign`.
            max_outstanding: transactions under way at a time; `execute` and `submit` wait for room.
            timeout_s: how long a transaction is tried, unless `execute` is given a time.
            create: the number of partitions of the topic, which is created if it does not exist.
            threads: where the application's plain functions run, if they block; on the event loop by default.
            log: another log than that topic: a double of `lockstep.testing`.
            properties: Kafka's client properties of TLS and SASL (docs/security.md); wrong ones raise
                ClientError.
        """
        if max_outstanding < 1 or create < 0:
            raise ValueError(f"max_outstanding={max_outstanding}, create={create}: at least 1, at least 0")
        self.client_id = uuid4().hex
        self._log = (
            RemoteLog(bootstrap, topic, self.client_id, create, properties=properties) if log is None else log
        )
        self._calls = Calls(application, threads)
        self._subscriptions = Subscriptions(self._log, self._calls, self._on_applied)
        self._requested_partitions = None if partitions is None else list(partitions)
        self._timeout_s = timeout_s
        self._max_outstanding = max_outstanding
        self._room = asyncio.Semaphore(max_outstanding)
        self._monitor = Monitor(self.client_id)
        self._contention_backoff = ContentionBackoff()
        self._partition_count = 0
        self._running: set[asyncio.Task[Any]] = set()
        self._completing: set[asyncio.Task[Any]] = set()
        """Each in an `on_completion`, for which the subscription waits."""
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect and subscribe. Raises ClientError, what `Application.on_open` and `assign` raise."""
        try:
            self._partition_count = await self._log.open()
            await self._calls.call(self._calls.application.on_open, self._log.topic_id)
            await self.assign(
                range(self._partition_count)
                if self._requested_partitions is None
                else self._requested_partitions
            )
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the subscriptions and what is under way: Expired or NotApplied. `flush` waits for it."""
        self._closed = True
        await asyncio.sleep(0)  # a task that is cancelled before it began notifies no caller
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._subscriptions.close()
        await self._log.close()

    # -- partitions -------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        """The number of the topic's partitions."""
        return self._partition_count

    @property
    def partitions(self) -> list[int]:
        """The partitions that are assigned to this client."""
        return sorted(self._subscriptions.hwms)

    async def assign(self, partitions: Iterable[int]) -> None:
        """Subscribes to these partitions, and no others. Waits for a revoked one fail.

        Raises ValueError for a partition that is not there, SubscriptionClosed where the client is closed,
        HighWaterMarkAhead, and what `Application.high_water_mark` raises.
        """
        needed = list(partitions)
        for partition in needed:
            if not 0 <= partition < self._partition_count:
                raise ValueError(f"partition {partition}: the topic has 0 to {self._partition_count - 1}")
        await self._subscriptions.assign(needed)

    def high_water_mark(self, partition: int) -> int:
        """The offset up to which the partition is applied. SubscriptionClosed where it is not assigned."""
        return self._subscriptions.of(partition).hwm

    def stalled_partitions(self) -> dict[int, BaseException]:
        """The partitions whose subscription has stopped, and what stopped it."""
        return self._subscriptions.stalled_partitions()

    def resume(self, partition: int) -> None:
        """Makes a stalled subscription retry what it is stalled at. Raises SubscriptionClosed where it is not
        assigned."""
        self._subscriptions.of(partition).resume()

    async def caught_up(self, timeout_s: float | None = None) -> None:
        """Waits until everything is applied that is committed at the call, in every assigned partition.

        Raises SubscriptionStalled, SubscriptionClosed: a partition was revoked meanwhile, or the client
        closed; TimeoutError, without `timeout_s` it waits for brokers for ever.
        """
        async with asyncio.timeout(timeout_s):
            await self._subscriptions.caught_up()

    # -- transactions -----------------------------------------------------------------------------------

    async def execute(self, transaction: Transaction, *, timeout_s: float | None = None) -> Appended | None:
        """Executes the transaction until it is appended and applied here. Returns None if `execute` returned
        False.

        Raises:
            RefusedForGood, NotAppended: it is not in the log, and will not be.
            Expired: `timeout_s` is over; see its `is_known`.
            NotApplied: `timeout_s` is over; it is in the log, the application has not applied it yet. No
                callback comes any more.
            RuntimeError: called by `apply` or a callback of the subscription, which would wait for itself.
            Exception: whatever `transaction.execute` raised.
        Resolving an append with an unknown outcome may take FENCE_TIMEOUT_S longer than `timeout_s`.
        """
        here = asyncio.current_task()
        if here in self._completing or self._subscriptions.is_subscription_task(here):
            raise RuntimeError(DEADLOCK_TEXT)
        return await (await self.submit(transaction, timeout_s=timeout_s))

    async def submit(
        self, transaction: Transaction, *, timeout_s: float | None = None
    ) -> asyncio.Task[Appended | None]:
        """Begin to execute it, once there is room; the task ends as `execute` does.

        Raises NotAppended where the client is closed, Expired where there is no room within `timeout_s`. The
        application's own functions do not wait for room, which others may have that wait for them: the task
        does.
        """
        if not isinstance(transaction, Transaction):
            raise TypeError(f"{transaction!r} is no Transaction")
        deadline = asyncio.get_running_loop().time() + (self._timeout_s if timeout_s is None else timeout_s)
        run = _Run(deadline)
        if not IN_APPLICATION.get():
            try:
                await self._take_room(run)
            except Expired:
                await self._calls.notify(transaction.on_expiration, True)
                raise
        if self._closed:
            self._leave(run)
            raise NotAppended("the client is closed: open a new one")
        task = asyncio.create_task(self._run(transaction, run))
        self._running.add(task)
        task.add_done_callback(partial(self._on_run_done, run))
        return task

    async def _take_room(self, run: _Run) -> None:
        try:
            async with asyncio.timeout_at(run.deadline):
                await self._room.acquire()
        except TimeoutError:
            raise Expired(
                f"no room for it in time: {self._max_outstanding} transactions were in flight "
                "(max_outstanding)",
                is_known=True,
            ) from None
        run.has_room = True

    def _leave(self, run: _Run) -> None:
        if run.has_room:
            run.has_room = False
            self._room.release()

    def pending_count(self) -> int:
        """The number of transactions that are not finished."""
        return len(self._running)

    async def flush(self) -> None:
        """Wait for all that are under way now, however they end."""
        if self._running:
            await asyncio.wait(set(self._running))

    def _on_run_done(self, run: _Run, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        self._leave(run)
        if not task.cancelled():
            task.exception()  # retrieved here; the callbacks have reported it

    async def _run(self, transaction: Transaction, run: _Run) -> Appended | None:
        try:
            try:
                if self._closed:
                    raise Expired("the client was closed", is_known=True)
                if not run.has_room:
                    await self._take_room(run)
                return await self._execute_until_appended(transaction, run)
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
            await self._calls.notify(transaction.on_expiration, error.is_known)
            raise
        except Exception as error:
            await self._calls.notify(transaction.on_exception, error)
            raise

    async def _execute_until_appended(self, transaction: Transaction, run: _Run) -> Appended | None:
        tries, refusal = 0, "not rejected"
        pause_s = self._contention_backoff.pause_s(random.random())
        if pause_s:
            await asyncio.sleep(pause_s)
        began = asyncio.get_running_loop().time()
        while True:
            tries += 1
            append = await self._execute(transaction)
            if append is None:
                await self._calls.notify(transaction.on_completion, False)
                return None
            pending = self._monitor.register(transaction, append)
            try:
                run.open = pending
                found = await self._append(pending, run.deadline, refusal)
                run.open = None
                if found is not None and not isinstance(found, Refusal):
                    run.offsets = found
                    self._contention_backoff.record(tries, asyncio.get_running_loop().time() - began)
                    await self._complete(pending)
                    await self._wait_until_applied(found, run.deadline)
                    return Appended(found, tries)
            finally:
                self._monitor.forget(pending)
            if found is not None:
                await self._calls.notify(transaction.on_refusal, found)
                if found.is_final:
                    raise RefusedForGood(found)
                refusal = found.text
                await self._caught_up_with(found, append, run.deadline)

    async def _execute(self, transaction: Transaction) -> AppendAttempt | None:
        """The append of the application from the present state."""
        hwms = self._subscriptions.hwms
        partition = transaction.partition(self._partition_count)
        draft = Draft(partition, self._partition_count)
        needed = await self._calls.call(transaction.execute, draft)
        if needed is False:
            return None
        return append_of(draft, self._monitor.next_request(), hwms)

    async def _append(
        self, pending: PendingAppend, deadline: float, before: str
    ) -> Mapping[int, int] | Refusal | None:
        """Offsets, a rejection, or None: not there, and may be tried again. Raises Expired, NotAppended."""
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise Expired(f"its time was over before it could be tried again: {before}", is_known=True)
        try:
            return await self._log.append(pending.append, left_s)
        except AppendRefused as error:
            return error.refusal
        except AppendFailed as error:
            raise NotAppended(str(error)) from None
        except AppendExpired as error:
            raise Expired(str(error), is_known=True) from None
        except AppendUnknown as error:
            return await self._resolve_unknown(pending, error)

    async def _resolve_unknown(
        self, pending: PendingAppend, problem: AppendUnknown
    ) -> Mapping[int, int] | None:
        """Decide by a fence and the subscription. Raises Expired where there cannot be one, NotApplied."""
        self._monitor.generation += 1
        append = pending.append
        try:
            async with asyncio.timeout(FENCE_TIMEOUT_S):
                ends = await self._log.fence(append, FENCE_TIMEOUT_S)
                for partition, end in ends.items():
                    subscription = self._subscriptions.of(partition)
                    await subscription.wait_until_applied(end - 1)
                    if pending.seen:
                        continue
                    if subscription.began > append.parts[partition].hwm:
                        raise SubscriptionClosed(f"the subscription of partition {partition} began behind it")
                    return None  # all of it is there, or nothing
        except (AppendUnknown, TimeoutError, SubscriptionClosed) as error:
            text = f"{problem}; {str(error) or 'it could not be settled'}"
            if not pending.seen:
                raise Expired(text, is_known=False) from None
            if pending.seen.keys() < append.parts.keys():
                await self._complete(pending)
                raise NotApplied(text, pending.offsets) from None
        return pending.offsets

    async def _wait_until_applied(self, offsets: Mapping[int, int], deadline: float) -> None:
        partition = -1
        try:
            async with asyncio.timeout_at(deadline):
                for partition, offset in offsets.items():
                    await self._subscriptions.of(partition).wait_until_applied(offset)
        except (TimeoutError, SubscriptionClosed) as error:
            cause = self._subscriptions.stalled_partitions().get(partition)
            why = f"partition {partition} is stalled: {cause!r}" if cause else str(error)
            why = why or "not applied in time, raise timeout_s or see stalled_partitions()"
            raise NotApplied(f"appended at {dict(offsets)}: {why}", offsets) from None

    async def _caught_up_with(self, refusal: Refusal, append: AppendAttempt, deadline: float) -> None:
        """Waits until the conflicting transaction is applied."""
        try:
            subscription = self._subscriptions.of(
                refusal.partition if refusal.partition >= 0 else min(append.parts)
            )
            async with asyncio.timeout_at(deadline):
                offset = refusal.conflict_offset
                if offset is None:
                    offset = await self._log.end(subscription.partition) - 1
                if append.hwm(subscription.partition) >= offset:
                    await asyncio.sleep(APPLIED_PAUSE_S)
                await subscription.wait_until_applied(offset)
        except SubscriptionClosed as error:
            raise NotAppended(str(error)) from None
        except TimeoutError:
            raise Expired(f"rejected, and not caught up in time: {refusal.text}", is_known=True) from None

    # -- callbacks --------------------------------------------------------------------------------------

    async def _on_applied(self, entry: Committed) -> None:
        pending = self._monitor.match(entry)
        if pending is not None:
            await self._complete(pending)
            await self._calls.notify(pending.transaction.on_application, entry)

    async def _complete(self, pending: PendingAppend) -> None:
        if pending.completing is None:
            task = asyncio.create_task(self._calls.notify(pending.transaction.on_completion, True))
            self._completing.add(task)
            task.add_done_callback(self._completing.discard)
            pending.completing = task
        await asyncio.shield(pending.completing)
