"""Calls the waiters of a log group: an error of one keeps nothing from the others."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lockstep.storage.waiters import Waiter

log_of_groups = logging.getLogger(__name__)


def call_waiters(waiters: Sequence[Waiter], error: BaseException | None) -> None:
    """Calls them in order, each with `error`. An error that one raises is logged."""
    for waiter in waiters:
        try:
            waiter(error)
        except Exception:
            log_of_groups.exception("a waiter failed")
