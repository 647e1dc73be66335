"""How far a pipeline has come, on standard error, a line every few seconds.

Owns: the lines' shape and pace. Does not: decide anything; results go to standard output.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

EVERY_S = 2.0


class Progress:
    """Rows so far, of all that there will be if that is known."""

    def __init__(
        self, name: str, rows: int | None = None, *, quiet: bool = False, out: TextIO | None = None
    ) -> None:
        self._name = name
        self._rows = rows
        self._quiet = quiet
        self._out = out or sys.stderr
        self._began = self._said = time.monotonic()
        self._begun_at: int | None = None
        self._waits = False
        """A line says already that nothing has come."""

    def at(self, rows: int, more: str = "") -> None:
        """Say it, if it is time to. The rate is of this process: what an earlier one did is not counted."""
        if self._begun_at is None:
            self._begun_at = rows
        now = time.monotonic()
        if now - self._said < EVERY_S:
            return
        self._said = now
        if rows > self._begun_at:
            self._say(rows, more)
        elif not self._waits:
            self._waits = True
            self.note("no rows yet")

    def end(self, rows: int, more: str = "") -> None:
        """The last line, at once."""
        self._say(rows, more)

    def note(self, text: str) -> None:
        """A line of its own, at once."""
        if not self._quiet:
            print(f"{self._name}: {text}", file=self._out, flush=True)

    def _say(self, rows: int, more: str) -> None:
        elapsed = max(time.monotonic() - self._began, 1e-6)
        of = f" of {self._rows:,}" if self._rows is not None else ""
        rate = (rows - (self._begun_at or 0)) / elapsed
        self.note(f"{rows:,}{of} rows, {rate:,.0f}/s{', ' + more if more else ''}")
