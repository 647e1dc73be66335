"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from bench.exit_status import SIGNALS


@pytest.fixture
def handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)
