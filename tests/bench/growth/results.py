"""Steps of growth, as they are kept, for tests."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.growth.axes import BY_NAME, FULL
from bench.growth.steps import path_of
from tests.bench.outcomes import FACTS


def write_steps(directory: Path, axis: str, figures: dict[int, dict[str, float]]) -> None:
    for value, each in figures.items():
        step: dict[str, Any] = {
            **FACTS,
            "axis": axis,
            "value": value,
            "lengths": asdict(FULL),
            "figures": each,
            "started": f"2026-01-01T00:00:{value % 60:02}Z",
        }
        path_of(directory, BY_NAME[axis], value).write_text(json.dumps(step))
