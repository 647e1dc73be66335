"""The player's figures beside the seed's."""

from __future__ import annotations

import pytest

from bench.player import tables
from bench.player.points import OPEN
from bench.player.ratios import SEED
from tests.bench.player.results import player_result


def test_the_seeds_bounds_stand_beside_our_highest() -> None:
    result = player_result()
    average = next(seen for seen in SEED if seen.figure == "9a")
    assert tables.seen_here(result, average, OPEN) == pytest.approx(0.4)
    assert tables.calm_rate(tables.sustained_rates(result)[2]) == 100.0
    slow = [(25.0, {"player_mean_ms": 0.1, "per_s": 20.0})]
    assert tables.calm_rate(slow) == 0.0, "a rate that was not kept does not count"
    text = tables.summary(result)
    assert "11,260.00" in text and "9,000.00" in text and "60,000" in text
    assert "off" in text and "499" in text
