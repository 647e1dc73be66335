"""Numbers that nothing could be played with are refused."""

from typing import Any

import pytest

from lockstep.player.core.settings import Bound, PlayerSettings
from tests.support.cases import each_case


def test_the_defaults_are_playable() -> None:
    chosen = PlayerSettings()
    assert chosen.batch.size_bytes < 4 << 20  # what gRPC takes
    assert chosen.normal.entries >= chosen.batch.entries


@each_case(("entries", "size_bytes"), [(0, 1), (1, 0)])
def test_a_bound_holds_something(entries: int, size_bytes: int) -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        Bound(entries, size_bytes)


@each_case(
    ("wrong", "text"),
    [
        ({"heartbeat_ms": 0}, "begin at 1"),
        ({"slow_overflows": 0}, "begin at 1"),
        ({"silent_heartbeats": 1}, "give a target two"),
        ({"stuck_heartbeats": 1}, "give a target two"),
        ({"backoff_ms": 0}, "a backoff of 0 to 5000"),
        ({"backoff_ms": 10, "longest_backoff_ms": 9}, "a backoff of 10 to 9"),
        ({"dummy_every": -1}, "a dummy every -1"),
    ],
)
def test_wrong_numbers(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PlayerSettings(**wrong)
