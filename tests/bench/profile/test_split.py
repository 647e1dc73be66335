"""One node's group commits, sampled for real."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.page.document import page
from bench.profile import stages
from bench.profile.split import measure_split
from bench.profile.stages import APPEND, FLUSH_THREAD, PARSE
from bench.settings import FLUSH
from tests.bench.outcomes import FACTS


def _may_trace() -> bool:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not scope.exists() or scope.read_text().strip() == "0"


@pytest.mark.skipif(not _may_trace(), reason="this user may not look into other processes (ptrace_scope)")
def test_one_node_is_sampled_for_real_and_the_page_tells_of_it(tmp_path: Path) -> None:
    found = measure_split(1, FLUSH, "latency16", 3.0, tmp_path, None)
    assert found["commits"] > 10 and 1 <= found["writes_per_commit"] <= 16
    loop = sum(taken for stage, taken in found["per_commit_us"].items() if stage != FLUSH_THREAD)
    assert loop == pytest.approx(found["commit_us"])
    assert {PARSE, APPEND} & set(found["per_commit_us"])
    result = {
        "kind": "profile",
        "command": "python -m bench profile --split",
        **FACTS,
        "failures": [],
        "splits": [found],
    }
    text = page([result])
    assert "## Where the time of a group commit goes" in text and "one group commit" in text
    assert set(stages.MEANING) == {*stages.STAGES, FLUSH_THREAD}
