"""What a benchmark says while it runs, on standard error: results alone go to standard output."""

from __future__ import annotations

import sys


def log_progress(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)
