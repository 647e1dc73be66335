"""What the page says of the player."""

from __future__ import annotations

from bench.figures.ratios import compare
from bench.page.document import page
from bench.player.command import Player
from bench.player.ratios import GOALS, RATIOS
from bench.player.sessions import STALLED
from bench.player.stalled import MISSED_MEMORY, OTHERS_CALM, OTHERS_STALLED
from tests.bench.kinds.made import made
from tests.bench.outcomes import FACTS
from tests.bench.player.results import player_result


def test_a_run_of_the_target_that_stands_still_has_a_section_of_its_own() -> None:
    assert (made(Player).kind, made(Player, STALLED).kind) == ("player", "player_stalled")
    result = player_result()
    names = (OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY)
    whole = [each for each in result["sessions"][2]["blocks"] if each["name"] in names]
    sessions = [{**result["sessions"][2], "blocks": whole}]
    alone = result | FACTS | {"kind": "player_stalled", "command": "c", "sessions": sessions}
    text = page([alone | {"comparison": compare(sessions, [], GOALS, RATIOS)}])
    assert "a fourth target is stopped" in text and "from 60 MB to 70 MB at most" in text
    assert "1.10" in text and "met" in text


def test_the_page_has_everything_that_was_measured() -> None:
    kept = {"kind": "player", "command": "python -m bench player", "notes": ["slow"], "failures": ["lost"]}
    text = page([{**player_result(), **FACTS, **kept}])
    assert "two_level" in text and "- slow" in text and "- lost" in text
    assert "apply delay, average, 20 targets, 10 KB, open loop, to plain Kafka" in text
