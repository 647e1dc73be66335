"""The transaction client for threads: the same transactions without asyncio.

Owns a thread with an event loop, on which the client lives, and the threads in which the application's
functions run, so that they may block. Several partitions are applied side by side, each in its own order.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Self, TypeVar

from lockstep.kafka_client.connection import ClientError
from lockstep.kafka_client.security import Properties
from lockstep.transactions.calls import DEADLOCK_TEXT, IN_APPLICATION
from lockstep.transactions.client import MAX_OUTSTANDING, TIMEOUT_S, TransactionClient
from lockstep.transactions.log import Log
from lockstep.transactions.model import Appended, Application, TransactionError
from lockstep.transactions.transaction import Transaction

T = TypeVar("T")

CANCEL_TIMEOUT_S: Final = 1.0
"""The longest wait of `close` for what is still under way."""


class BlockingTransactionClient:
    """The blocking form of `TransactionClient`, method by method. Not to be called from the application's own
    functions, but for queries and `submit`.

    Use it as `with BlockingTransactionClient(bootstrap, topic, application) as client`.
    """

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
        threads: int = 16,
        log: Callable[[], Log] | None = None,
        properties: Properties | None = None,
    ) -> None:
        """Same as `TransactionClient`. `threads`: how many of the application's functions may run at a time.
        `log` is called on the client's loop."""
        self._application = application
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="lockstep-application")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lockstep-client", daemon=True)

        async def made() -> TransactionClient:
            return TransactionClient(
                bootstrap,
                topic,
                application,
                partitions=partitions,
                max_outstanding=max_outstanding,
                timeout_s=timeout_s,
                create=create,
                threads=self._executor,
                log=None if log is None else log(),
                properties=properties,
            )

        self._make = made
        self._client: TransactionClient | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect and subscribe. Raises as `TransactionClient.open`."""
        self._thread.start()
        try:
            self._client = self._wait(self._make())
            self._wait(self._client.open())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        """Same as `TransactionClient.close`: a second call, or one on a client that was never open, does
        nothing."""
        if self._client is not None:
            self._wait(self._client.close())
        self._end()

    @property
    def client_id(self) -> str:
        return self._require_open.client_id

    @property
    def partition_count(self) -> int:
        return self._require_open.partition_count

    @property
    def partitions(self) -> list[int]:
        return self._require_open.partitions

    def assign(self, partitions: Iterable[int]) -> None:
        self._wait(self._require_open.assign(partitions))

    def high_water_mark(self, partition: int) -> int:
        return self._require_open.high_water_mark(partition)

    def stalled_partitions(self) -> dict[int, BaseException]:
        return self._require_open.stalled_partitions()

    def resume(self, partition: int) -> None:
        self._loop.call_soon_threadsafe(self._require_open.resume, partition)

    def caught_up(self, timeout_s: float | None = None) -> None:
        """Raises TimeoutError as `TransactionClient.caught_up`."""
        self._wait(self._require_open.caught_up(timeout_s))

    def execute(self, transaction: Transaction, *, timeout_s: float | None = None) -> Appended | None:
        """Raises as `TransactionClient.execute`."""
        if IN_APPLICATION.get():
            raise RuntimeError(DEADLOCK_TEXT)
        return self._wait(self._require_open.execute(transaction, timeout_s=timeout_s))

    def submit(self, transaction: Transaction, *, timeout_s: float | None = None) -> Future[Appended | None]:
        """Same as `TransactionClient.submit`; the future ends as `execute` does."""
        task = self._wait(self._require_open.submit(transaction, timeout_s=timeout_s))

        async def outcome() -> Appended | None:
            return await task

        return asyncio.run_coroutine_threadsafe(outcome(), self._loop)

    def pending_count(self) -> int:
        return self._require_open.pending_count()

    def flush(self) -> None:
        self._wait(self._require_open.flush())

    @property
    def _require_open(self) -> TransactionClient:
        if self._client is None:
            raise RuntimeError("the client is not open: use it in a with block, or call open()")
        return self._client

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except (KeyboardInterrupt, concurrent.futures.CancelledError):
            future.cancel()
            raise
        except (ClientError, TransactionError) as error:
            # its text is enough: a traceback of the client's loop would not help
            raise error.with_traceback(None) from None

    def _end(self) -> None:
        self._client = None
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._wait(_until_idle())  # threads that still wait for something here would wait for ever
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._loop.close()


async def _until_idle() -> None:
    """Give other tasks a little time to end; then cancel them."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, waiting = await asyncio.wait(others, timeout=CANCEL_TIMEOUT_S)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
