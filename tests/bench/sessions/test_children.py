"""A command within another one is asked to end, and not killed."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from bench.sessions.children import run_child


def test_a_child_command_is_terminated_and_not_killed(handlers: None, tmp_path: Path) -> None:
    mark, ready = tmp_path / "mark", tmp_path / "ready"
    program = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path({str(mark)!r}).touch(), sys.exit(0)))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)\n"
    )

    def interrupt(number: int, frame: object) -> None:
        if not ready.exists():
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt):
        run_child([sys.executable, "-c", program], tmp_path)
    assert mark.exists()
    assert run_child([sys.executable, "-c", "raise SystemExit(3)"], tmp_path) == 3
