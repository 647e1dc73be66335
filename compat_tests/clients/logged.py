"""What a Python client writes to its log: for some it is all that they tell of a failure."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Lines(logging.Handler):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def logged(name: str, level: int = logging.WARNING) -> Iterator[list[str]]:
    """What a logger, and those below it, write from that level on while the block runs."""
    logger, handler = logging.getLogger(name), _Lines(level)
    logger.addHandler(handler)
    before = logger.level
    logger.setLevel(level)
    try:
        yield handler.lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
