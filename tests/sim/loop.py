"""An asyncio event loop on a world's virtual time: one per life of a node, and one for the clients.

asyncio's own C tasks and futures run on it; only scheduling is replaced. All loops feed the world's one
heap, so what happens is decided by (time, order of scheduling) and nothing else.

- A callback takes no time, but what it asks of the disk does: `charge` makes the node busy, and whatever else
  it has to do waits (the rest of the turn, timers, messages).
- A paused node's events wait for its end of pause, in their order.
- A closed loop (its node crashed) drops all that was to run on it.
- `run_in_executor` runs the function in one piece at a later moment; what it takes, and a little more, passes
  until its future is done. An executor's workers are counted: one worker keeps the order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.world import World

TURN_CALLBACKS = 500
"""A turn that goes on and on is cut here, and a little time passes: whoever polls with sleep(0) gets on."""
TURN_CUT_US = 20

_set_running_loop = asyncio._set_running_loop


class Handle:
    """A callback to come. `cancel` is all that callers may do with it."""

    __slots__ = ("_args", "_callback", "_cancelled", "_when")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], when: float = 0.0) -> None:
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._when = when

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled

    def when(self) -> float:
        return self._when


class _Workers:
    """One executor's threads: how many there are, how many are at work, and what waits for one."""

    __slots__ = ("at_work", "count", "waiting")

    def __init__(self, count: int) -> None:
        self.count = count
        self.at_work = 0
        self.waiting: deque[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]]] = deque()


class SimLoop(asyncio.AbstractEventLoop):
    """See the module. `rate_ppm` is how fast its clock runs, in millionths: 1_000_000 is true time."""

    def __init__(self, world: World, rate_ppm: int = 1_000_000, offset_us: int = 0) -> None:
        self._world = world
        self._push = world.push
        self._rate_ppm = rate_ppm
        self._offset_us = offset_us
        self._ready: deque[Handle] = deque()
        self._waking = False
        self._closed = False
        self._busy_until_us = 0
        self.paused_until_us = 0
        self._job_us = -1
        """The time within the executor's job that runs just now; -1 while none does."""
        self._executors: dict[ThreadPoolExecutor | None, _Workers] = {}
        self.after_turn: Callable[[], None] | None = None
        """Called after each turn: the node looks at what has changed."""

    # -- time -------------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """World time as this loop's running callback sees it: later than the world's while it is busy."""
        if self._job_us >= 0:
            return self._job_us
        return max(self._world.now_us, self._busy_until_us)

    def local_us(self) -> int:
        """What this loop's clock shows."""
        return self.now_us * self._rate_ppm // 1_000_000 + self._offset_us

    def began_us(self) -> int:
        """What this loop's clock showed when the running callback, or job, began: nothing took time yet."""
        return self._world.now_us * self._rate_ppm // 1_000_000 + self._offset_us

    def time(self) -> float:
        return self.local_us() / 1e6

    def charge(self, duration_us: int) -> None:
        """The running callback, or job, takes this long."""
        if self._job_us >= 0:
            self._job_us += duration_us
        else:
            self._busy_until_us = max(self._busy_until_us, self._world.now_us) + duration_us

    # -- scheduling -------------------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args)
        if not self._closed:
            self._ready.append(handle)
            if not self._waking:
                self._waking = True
                self._push(self.now_us, self._wake, None)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.time() + delay, callback, *args)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(callback, args, when)
        if not self._closed:
            local_us = int(when * 1e6) + 1 - self._offset_us
            at_us = -(-local_us * 1_000_000 // self._rate_ppm)
            self._push(max(at_us, self.now_us), self.deliver, handle)
        return handle

    def deliver(self, handle: Handle) -> None:
        """Run a handle now, or when the node is neither paused nor busy. An event of the world's heap."""
        if self._closed or handle._cancelled:
            self._world.graveyard.append(handle)
            return
        free_us = max(self.paused_until_us, self._busy_until_us)
        if free_us > self._world.now_us:
            self._push(free_us, self.deliver, handle)
            return
        self._ready.append(handle)
        self._turn()

    def _wake(self, _: object) -> None:
        if self._closed:
            return
        free_us = max(self.paused_until_us, self._busy_until_us)
        if free_us > self._world.now_us:
            self._push(free_us, self._wake, None)
            return
        self._waking = False
        self._turn()

    def _turn(self) -> None:
        """Run what is ready, and what that makes ready, until it takes time."""
        world, ready = self._world, self._ready
        now_us = world.now_us
        left = TURN_CALLBACKS
        waking, self._waking = self._waking, True
        world.current = self
        _set_running_loop(self)
        try:
            while ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._callback(*handle._args)
                    left -= 1
                if self._busy_until_us > now_us or left <= 0 or self._closed:
                    break
        except BaseException as error:
            world.escaped(self, error)
        finally:
            _set_running_loop(None)
            world.current = None
        self._waking = waking
        if ready and not waking:
            self._waking = True
            self._push(max(self._busy_until_us, now_us + (TURN_CUT_US if left <= 0 else 0)), self._wake, None)
        if self.after_turn is not None:
            self.after_turn()

    # -- executors --------------------------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: ThreadPoolExecutor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        workers = self._executors.get(executor)
        if workers is None:
            count = 4 if executor is None else executor._max_workers
            workers = self._executors[executor] = _Workers(count)
        workers.waiting.append((func, args, future))
        if workers.at_work < workers.count:
            workers.at_work += 1
            self._push(self.now_us + self._world.thread_delay_us(), self._job, workers)
        return future

    def _job(self, workers: _Workers) -> None:
        """One worker takes the next job, or rests."""
        if self._closed:
            return
        now_us = self._world.now_us
        if self.paused_until_us > now_us:
            self._push(self.paused_until_us, self._job, workers)
            return
        if not workers.waiting:
            workers.at_work -= 1
            return
        func, args, future = workers.waiting.popleft()
        settle: tuple[Callable[..., None], Any]
        self._job_us = now_us
        self._world.current = self
        try:
            settle = (future.set_result, func(*args))
        except Exception as error:
            settle = (future.set_exception, error)
        except BaseException as error:
            self._world.escaped(self, error)
            settle = (future.set_exception, error)
        finally:
            end_us, self._job_us = self._job_us, -1
            self._world.current = None
        done = Handle(_settle, (future, *settle))
        self._push(end_us + self._world.thread_delay_us(), self.deliver, done)
        self._push(end_us, self._job, workers)
        if self.after_turn is not None:
            self.after_turn()

    # -- the rest of asyncio's face ---------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name or "task")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._world.current is self

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """The node is gone: nothing that was to run here ever does."""
        self._closed = True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not self._closed and error is not None:
            self._world.escaped(self, error)


def new_loop(world: World, rate_ppm: int = 1_000_000, offset_us: int = 0) -> SimLoop:
    """A loop; what asyncio's face has beyond it (sockets, processes, signals) there is not."""
    return SimLoop(world, rate_ppm, offset_us)  # type: ignore[abstract]


def _settle(future: asyncio.Future[Any], settle: Callable[[Any], None], outcome: object) -> None:
    if not future.done():
        settle(outcome)
