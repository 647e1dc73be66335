"""A grid with one tiny workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.full.grid import TINY, Grid


@pytest.fixture
def grid(tmp_path: Path) -> Grid:
    made = Grid(tmp_path)
    made.write(TINY)
    return made
