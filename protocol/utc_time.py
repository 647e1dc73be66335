"""Timestamps as text: ISO 8601, in UTC, with a Z, to the millisecond.

One format for log lines and for what the tools print, so that both can be compared and sorted as text.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def utc_time(timestamp_ms: int) -> str:
    """`2026-11-28T09:52:26.288Z`; outside of the years 1 to 9999, which ISO 8601 cannot express, the
    number."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
