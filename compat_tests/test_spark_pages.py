"""The programs of docs/spark.md and docs/spark_sink.md run as they are pasted, one after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail
from compat_tests.spark_driver import installed
from compat_tests.targets import ROOT, LockstepTarget

_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIMEOUT_S = 600
"""For one program, whose JVM starts in half a minute, or in minutes on busy processors."""

pytestmark = pytest.mark.timeout(2 * _TIMEOUT_S + 60)


def _run(words: list[str], broker: LockstepTarget, directory: Path, stdin: str = "") -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LOCKSTEP_BOOTSTRAP": broker.bootstrap}
    done = subprocess.run(
        words,
        input=stdin,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


def test_the_programs_of_the_pages(tmp_path: Path) -> None:
    try:
        python = str(installed())
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
    command = [sys.executable, "-m", "lockstep"]
    with LockstepTarget(directory=tmp_path / "broker") as broker:
        _run([*command, "produce", "orders", "-K:"], broker, tmp_path, "ann:three apples\nbob:two pears\n")
        shown = ""
        for page in ("spark", "spark_sink"):
            program = "".join(_PYTHON.findall((ROOT / "docs" / f"{page}.md").read_text()))
            (tmp_path / f"{page}.py").write_text(program.replace("localhost:9092", broker.bootstrap))
            shown += _run([python, f"{page}.py"], broker, tmp_path)
        copied = _run(
            [*command, "consume", "orders-copy", "--from-beginning", "--committed", "-K:"], broker, tmp_path
        )
    assert shown.count("three apples") == 2
    assert copied == "ann:three apples\nbob:two pears\n"
