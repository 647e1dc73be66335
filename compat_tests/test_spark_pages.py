"""The programs of the README, docs/spark.md and docs/spark_sink.md run as they are pasted."""

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
_README = re.compile(r"^```python spark\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PAGES = ("spark.md", "spark_sink.md")
_TIMEOUT_S = 600
"""For one program, whose JVM starts in half a minute, or in minutes on busy processors."""

pytestmark = pytest.mark.timeout(3 * _TIMEOUT_S + 60)


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
        for topic in ("parcels", "orders"):
            _run([*command, "produce", topic, "-K:"], broker, tmp_path, "ann:three apples\nbob:two pears\n")
        shown = ""
        for page, blocks in (
            (ROOT / "README.md", _README),
            *((ROOT / "docs" / each, _PYTHON) for each in _PAGES),
        ):
            program = "".join(blocks.findall(page.read_text()))
            (tmp_path / f"{page.stem}.py").write_text(program.replace("localhost:9092", broker.bootstrap))
            shown += _run([python, f"{page.stem}.py"], broker, tmp_path)
        copies = [
            _run([*command, "consume", topic, "--from-beginning", "--committed", "-K:"], broker, tmp_path)
            for topic in ("parcels-copy", "orders-copy")
        ]
    assert shown.count("three apples") == 2
    assert copies == ["ann:three apples\nbob:two pears\n"] * 2
