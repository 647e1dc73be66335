"""The target in Go: what is checked in of its generated code is what player.proto gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests import go_target
from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail


@pytest.mark.timeout(900)  # the tools may have to be built
def test_its_generated_code_is_that_of_the_proto(tmp_path: Path) -> None:
    try:
        go_target.generate(tmp_path)
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
    made, kept = (
        {path.name: path.read_text() for path in folder.iterdir()}
        for folder in (tmp_path, go_target.GENERATED)
    )
    assert made == kept, "run `python -m compat_tests.go_target`"
