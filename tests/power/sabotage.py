"""`python -m tests.power.sabotage serve ...`: Lockstep that flushes files and no directory, for one test."""

from __future__ import annotations

import sys

from lockstep.cli import main
from lockstep.storage.log.file_system import RealFileSystem


def forget_directories() -> None:
    """From now on no name is flushed by the log."""
    RealFileSystem.fsync_dir = lambda self, path: None  # type: ignore[method-assign]


if __name__ == "__main__":
    forget_directories()
    sys.exit(main())
