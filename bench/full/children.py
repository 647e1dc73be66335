"""A command of the benchmarks' own, run by another one. Invariant: it is asked to end, so that its brokers
are ended with it; a process that is killed leaves them behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PATIENCE_S = 90.0


def run_child(command: Sequence[str], directory: Path) -> int:
    """Run it to its end, what it prints on standard error; its exit status. Whatever interrupts the wait
    ends the command first."""
    child = subprocess.Popen(command, cwd=directory, stdout=sys.stderr)
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        raise
