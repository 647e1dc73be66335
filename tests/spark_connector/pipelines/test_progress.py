"""Lines of progress: one that nothing has come yet, then rows and rate, each at its time."""

from __future__ import annotations

import io
import time

import pytest

from spark_connector.pipelines.progress import ProgressReporter


def test_waiting_is_printed_once_and_rows_every_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    out = io.StringIO()
    shown = ProgressReporter("archive", out=out)
    for rows in (0, 0, 0, 0, 50, 90):
        now += 2.0
        shown.at(rows)
    now += 0.5
    shown.at(95)
    shown.end(100)
    assert out.getvalue().splitlines() == [
        "archive: no rows yet",
        "archive: 50 rows, 5/s",
        "archive: 90 rows, 8/s",
        "archive: 100 rows, 8/s",
    ]
