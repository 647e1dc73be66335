"""Log levels of this process under Kafka's names, by logger.

Owns: which loggers there are (ours; the topmost is called `root`, as in Kafka) and their levels. Levels are
those of Python's logging; a change lasts until the process ends, as in Kafka. Does not: make loggers.
"""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
_TOP: Final = "lockstep"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's names, the most verbose first. Python has no TRACE: below DEBUG."""


def levels() -> dict[str, str]:
    """The level in force of every logger, by name."""
    found = {ROOT: _name_of(logging.getLogger(_TOP).getEffectiveLevel())}
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if name.startswith(f"{_TOP}.") and isinstance(logger, logging.Logger):
            found[name] = _name_of(logger.getEffectiveLevel())
    return found


def set_level(name: str, level: str | None) -> None:
    """Change one logger that `levels` names; None: as its parent's again."""
    logger = logging.getLogger(_TOP if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name_of(number: int) -> str:
    found = [name for name, least in LEVELS.items() if least <= number]
    return found[-1] if found else "TRACE"
