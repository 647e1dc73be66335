"""The player's picture."""

from __future__ import annotations

import json
from pathlib import Path

from bench import runner
from bench.player.command import Player
from tests.bench.player.results import player_result


def test_a_picture_is_drawn_of_a_kept_result(tmp_path: Path) -> None:
    kept = tmp_path / "result.json"
    kept.write_text(json.dumps(player_result()))
    assert runner.main(Player, ["--plot", str(kept), "--picture", str(tmp_path / "p.svg")]) == 0
    assert "</svg>" in (tmp_path / "p.svg").read_text()
    kept.write_text(json.dumps({**player_result(), "sessions": []}))
    assert runner.main(Player, ["--plot", str(kept)]) == 0, "what was not measured is left out"
