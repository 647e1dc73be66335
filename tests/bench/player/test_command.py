"""The player's command: open loops that were too slow."""

from __future__ import annotations

from bench.player.command import notes
from tests.bench.player.results import delay_block, player_result


def test_an_open_loop_that_was_too_slow_is_told() -> None:
    result = player_result()
    assert notes(result["sessions"], result["axes"]) == []
    (said,) = notes([{"blocks": [delay_block("transactions_open_t2_k10", 30.0, per_s=7.0)]}], result["axes"])
    assert said == "transactions_open_t2_k10: 7.0 transactions/s of 8"
