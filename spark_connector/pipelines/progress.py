"""The progress of a pipeline on standard error, a line every few seconds.

Owns: the lines' shape and pace. Does not: decide anything; results go to standard output.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

EVERY_S = 2.0


class ProgressReporter:
    """Reports the rows so far, with the total where it is known."""

    def __init__(
        self, name: str, rows: int | None = None, *, quiet: bool = False, out: TextIO | None = None
    ) -> None:
        self._name = name
        self._rows = rows
        self._quiet = quiet
        self._out = out or sys.stderr
        self._began = self._reported_at = time.monotonic()
        self._first_rows: int | None = None
        self._is_waiting = False
        """A line has reported already that nothing has come."""

    def at(self, rows: int, more: str = "") -> None:
        """Reports `rows`, if it is time to. The rate is that of this process alone."""
        if self._first_rows is None:
            self._first_rows = rows
        now = time.monotonic()
        if now - self._reported_at < EVERY_S:
            return
        self._reported_at = now
        if rows > self._first_rows:
            self._write_line(rows, more)
        elif not self._is_waiting:
            self._is_waiting = True
            self.note("no rows yet")

    def end(self, rows: int, more: str = "") -> None:
        """The last line, at once."""
        self._write_line(rows, more)

    def note(self, text: str) -> None:
        """A line of its own, at once."""
        if not self._quiet:
            print(f"{self._name}: {text}", file=self._out, flush=True)

    def _write_line(self, rows: int, more: str) -> None:
        elapsed = max(time.monotonic() - self._began, 1e-6)
        of = f" of {self._rows:,}" if self._rows is not None else ""
        rate = (rows - (self._first_rows or 0)) / elapsed
        self.note(f"{rows:,}{of} rows, {rate:,.0f}/s{', ' + more if more else ''}")
