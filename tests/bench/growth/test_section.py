"""What the page says of growth: what disturbed it."""

from __future__ import annotations

from pathlib import Path

from bench.growth.axes import BY_NAME
from bench.growth.steps import collect_steps
from bench.page.document import page
from tests.bench.growth.results import write_steps


def test_steps_beside_other_work_are_named(tmp_path: Path) -> None:
    quiet = dict.fromkeys([fitted.figure for fitted in BY_NAME["groups"].fitted], 1.0)
    noisy = quiet | {"foreign_cpu_share": 1.1}
    write_steps(tmp_path, "groups", {1: quiet | {"foreign_cpu_share": 0.1}, 10: noisy, 100: quiet})
    assert "Other work disturbed these steps: 10 consumer groups with a member each (110%)." in page(
        [collect_steps(tmp_path)]
    )


def test_rounds_that_are_far_apart_are_named(tmp_path: Path) -> None:
    flat = dict.fromkeys([fitted.figure for fitted in BY_NAME["groups"].fitted], 1.0)
    write_steps(tmp_path, "groups", {1: flat, 10: flat, 100: flat})
    result = collect_steps(tmp_path)
    assert "far apart" not in page([result])
    step = result["steps"]["groups"][1]
    step["rounds"] = [{"p99_ms": 0.67}, {"p99_ms": 194.3}]
    assert "p99 ms at 10 consumer groups with a member each: 0.67 and 194." in page([result])
