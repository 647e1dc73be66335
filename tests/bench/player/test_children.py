"""Processes that are told what to do: one that fails says why."""

from __future__ import annotations

from typing import Any

import pytest

from bench.sessions.children import Child
from bench.sessions.failures import RoundFailed


def test_a_child_that_fails_says_why(session: Any) -> None:
    job = {"bootstrap": session.target.bootstrap, "log": "nowhere", "topics": ["nowhere"]}
    with (
        Child("bench.player.kafka_player", job) as child,
        pytest.raises(RoundFailed, match="the kafka_player: "),
    ):
        child.next_response()
    with Child("bench.player.writer", {"way": "log"}) as child:
        with pytest.raises(RoundFailed, match="KeyError"):
            child.next_response()
        with pytest.raises(RoundFailed, match="the writer ended"):
            child.next_response()
