"""Waiting for what a child process prints. Owns one function; knows nothing of clients."""

from __future__ import annotations

import select
from collections.abc import Iterable


def readable(descriptors: Iterable[int], timeout_s: float) -> list[int]:
    """Those with something to read, or at their end, as soon as there is one; none where `timeout_s` is over.

    Any descriptor will do: select() refuses those above 1023, which a long test run's processes have.
    """
    waits = select.poll()
    for descriptor in descriptors:
        waits.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in waits.poll(max(0.0, timeout_s) * 1000)]
