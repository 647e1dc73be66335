"""The end of a benchmark: its exit status and, before it, the end of its brokers and the removal of their
files on the disk.

Invariants: the first signal unwinds, further ones are ignored meanwhile; a session's own tidying is not cut
in the middle. A signal that was ignored when the command began (`nohup`) stays ignored.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import NoReturn

EXIT_FAILED = 1
"""A round failed, a durability was not proven, or nothing can be measured here."""
EXIT_GOAL_MISSED = 3

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def report_failures(failures: Iterable[str]) -> int:
    """Say what failed; the exit status: EXIT_FAILED, or 0 where nothing did."""
    status = 0
    for failure in failures:
        log_progress(f"FAILED: {failure}")
        status = EXIT_FAILED
    return status


def _end(number: int, frame: FrameType | None) -> NoReturn:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    try:
        log_progress(
            f"ended by {signal.Signals(number).name}: what was under way is not kept, what was kept stays"
        )
    finally:
        sys.exit(128 + number)


@contextlib.contextmanager
def _signal_handler(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        for each, former in before.items():
            if former is not signal.SIG_IGN:
                signal.signal(each, handler)
        yield
    finally:
        for each, former in before.items():
            signal.signal(each, former)


def by_signals() -> contextlib.AbstractContextManager[None]:
    """Within it a signal raises SystemExit(128 + its number); afterwards all is as it was."""
    return _signal_handler(_end)


@contextlib.contextmanager
def not_now() -> Iterator[None]:
    """Signals wait until its end. Blocking them would not do: another thread would take them."""
    waiting: list[int] = []
    try:
        with _signal_handler(lambda number, frame: waiting.append(number)):
            yield
    finally:
        for number in waiting[:1]:
            signal.raise_signal(number)


def log_progress(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
