"""The progress lines of a benchmark, on standard error: results alone go to standard output."""

from __future__ import annotations

import sys


def log_progress(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
