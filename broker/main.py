"""The broker as one process: `lockstep serve`.

Owns: `run` (signals, log lines, the one line on stdout, the exit status). Invariants: one line on stdout
reports that clients are served; the reason why the broker cannot start is on stderr; a failed flush ends the
process at once, because no later response could be trusted. Does not: start or stop anything itself
(`server.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Final

from lockstep.broker.network.listeners import allow_many_files
from lockstep.broker.node.data_directory import describe_os_error
from lockstep.broker.process.heap import keep_large_blocks_apart, share_arenas, trim_heap
from lockstep.broker.process.process_output import drain_output, log_to_stderr, queued_output
from lockstep.broker.server import Broker, CannotStart, ContradictorySettings
from lockstep.broker.settings.config import Settings
from lockstep.broker.settings.properties import ConfigError
from lockstep.build_info import VERSION
from lockstep.storage.types import CorruptLog, NewerFormat, StorageError

log = logging.getLogger("lockstep")

REMOVED_WAIT_SECONDS: Final = 1.0
"""The time in which a removed node redirects clients before it ends."""
SERVICE_POLL_INTERVAL_SECONDS: Final = 0.2
"""Interval of the checks whether a node that waits for others serves."""
EXIT_BAD_START: Final = 1
EXIT_WRONG_SETTING: Final = 2
EXIT_FATAL: Final = 70

Companion = Callable[[Broker], contextlib.AbstractAsyncContextManager[object]]
"""A context that runs beside a broker: entered when it serves, left before it stops."""


def run(settings: Settings, companion: Companion | None = None) -> None:
    """Serve until SIGTERM or SIGINT. Prints one line on stdout when ready; log lines go to stderr.

    Raises SystemExit with a status other than 0 where it cannot start; the reason is on stderr.
    """
    keep_large_blocks_apart()
    share_arenas()
    allow_many_files()
    with queued_output(), log_to_stderr():
        _run(settings, companion)


def _run(settings: Settings, companion: Companion | None) -> None:
    """Raises SystemExit."""
    for warning in settings.warnings:
        log.warning("%s", warning)
    ready = threading.Event()
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(_serve_until_stopped(settings, companion, ready))
    except (CannotStart, ConfigError, CorruptLog, NewerFormat, StorageError, OSError) as error:
        after_ready = ready.is_set() and not isinstance(error, CannotStart)
        advice = " (docs/operating.md, A damaged log)" if isinstance(error, CorruptLog) else ""
        log.critical(
            "%s: %s%s",
            "ended by an error" if after_ready else "cannot start",
            describe_os_error(error) if isinstance(error, OSError) else error,
            advice,
        )
        raise SystemExit(EXIT_FATAL if after_ready else _exit_status(error)) from None


def _exit_status(error: BaseException) -> int:
    """The exit status of a failed start: 1 where a later one may work, 2 where none can with the settings."""
    is_temporary = error.is_temporary if isinstance(error, ConfigError) else True
    if isinstance(error, ContradictorySettings) or not is_temporary:
        return EXIT_WRONG_SETTING
    return EXIT_BAD_START


async def _serve_until_stopped(
    settings: Settings, companion: Companion | None, ready: threading.Event
) -> None:
    """Sets `ready` once the ready line is printed."""
    stop_requested = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    broker = Broker(settings, on_fatal=_end_process)
    await broker.start()
    # The objects of now live as long as the process: the garbage collector may skip them.
    gc.collect()
    gc.freeze()
    trim_heap()  # a replay's peak
    try:
        async with contextlib.nullcontext() if companion is None else companion(broker):
            await broker.wait_until_serving()
            if not broker.is_excluded:
                print(ready_line(broker), flush=True)
                ready.set()
            reporting = asyncio.ensure_future(_report_service(broker))
            await _wait_for_end(broker, stop_requested)
            reporting.cancel()
            log.info("stopping")
    finally:
        node = broker.assembly.node
        never_part = node is not None and node.removed.is_set() and not node.was_part
        await broker.stop()
    log.info("stopped")
    if node is not None and node.too_old:
        raise CannotStart(node.too_old)
    if never_part:
        raise CannotStart("this node was removed from the cluster while it was down")


def ready_line(broker: Broker) -> str:
    """The one line on stdout; of a node that cannot serve yet with the reason, and without the word ready."""
    advertised = broker.separately_advertised
    state = "started, listening for" if broker.waits_for else "ready, serving"
    text = f"Lockstep {VERSION} {state} clients on {broker.bootstrap_servers}"
    text += f", data in {_display_path(broker.settings.log_dirs)}"
    text += f", advertised to clients as {' and '.join(advertised)}" if advertised else ""
    return text + (f", waits for {broker.waits_for}" if broker.waits_for else "")


async def _report_service(broker: Broker) -> None:
    """Logs when a node of a cluster serves that had to wait for others, which the ready line has reported."""
    has_waited = False
    while True:
        if not broker.waits_for:
            break
        has_waited = True
        await asyncio.sleep(SERVICE_POLL_INTERVAL_SECONDS)
    if has_waited:
        log.info("serving clients now: a majority of the nodes is reached, and every log group has a leader")


async def _wait_for_end(broker: Broker, stop_requested: asyncio.Event) -> None:
    """Wait for a stop signal, or for the exclusion of this node and a moment to redirect clients."""
    excluded = asyncio.ensure_future(broker.wait_until_excluded())
    stop_wait = asyncio.ensure_future(stop_requested.wait())
    await asyncio.wait({excluded, stop_wait}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({stop_wait}, timeout=REMOVED_WAIT_SECONDS if excluded.done() else None)
    for each in (excluded, stop_wait):
        each.cancel()


def _end_process(failure: BaseException) -> None:
    """Ends the process at once: no acknowledgement, flush or response may follow."""
    too_old = isinstance(failure, NewerFormat)
    reason = "" if too_old else ", the log cannot be trusted any more"
    log.critical("stopping at once%s: %s", reason, failure)
    drain_output()
    os._exit(EXIT_BAD_START if too_old else EXIT_FATAL)


def _new_loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


def _display_path(directory: str) -> str:
    return directory if directory.startswith(("/", ".")) else f"./{directory}"
