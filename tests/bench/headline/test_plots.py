"""The headline's picture."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.headline.plots import draw, panels_of, times_better
from tests.bench.headline.results import headline_result


def test_the_picture_has_every_ratio_and_right_is_better(tmp_path: Path) -> None:
    result = headline_result([90.0, 95.0], 100.0)
    memory = {"ratio": "memory", "title": "resident memory", "unit": "MB", "value": 0.1}
    result["comparison"].append(memory | {"subject": 1.0, "baseline": 10.0})
    drawn = [(title, [row["unit"] for row in rows]) for title, rows in panels_of(result).items()]
    assert [units for _, units in drawn] == [["requests/s"], ["requests/s"], ["MB"]]
    assert times_better(memory, 0.1) == pytest.approx(10.0)
    assert times_better(result["comparison"][0], 0.92) == 0.92
    draw(result, tmp_path / "headline.svg")
    assert "resident memory" in (tmp_path / "headline.svg").read_text()
