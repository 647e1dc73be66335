"""Blocks of delays, run: Kafka's modes against a broker, and LogPlayer's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.player.delays import Blocks
from bench.player.points import CLOSED, GRPC, OPEN, PLAIN, RAW, REMOTE, SMOKE, STORED, TRANSACTIONS, Point


@pytest.mark.parametrize(("system", "loop"), [(PLAIN, CLOSED), (PLAIN, OPEN), (TRANSACTIONS, CLOSED)])
def test_consumers_get_their_shards_parts(session: Any, system: str, loop: str) -> None:
    blocks, point = Blocks(session, SMOKE), Point(3, 2)
    for _ in range(2):  # the topics are used again: from their ends on
        blocks.kafka(system, loop, point)
    for block in session.blocks:
        figures = block["figures"]
        assert figures["writes"] > 0 and figures["samples"] >= 2
        assert figures["append_p50_ms"] > 0 and 0 < figures["apply_p50_ms"] <= figures["apply_max_ms"]
        assert "player_p50_ms" not in figures


def test_two_level_kafka_plays_the_log_in_transactions(session: Any) -> None:
    Blocks(session, replace(SMOKE, two_level_transactions=12)).two_level(2)
    (block,) = session.blocks
    figures = block["figures"]
    assert block["name"] == "two_level_closed_t2_k3"
    assert (figures["writes"], figures["samples"]) == (12, 24)
    assert 0 < figures["player_mean_ms"] < figures["apply_mean_ms"]


@pytest.mark.parametrize(("system", "loop"), [(GRPC, OPEN), (RAW, CLOSED), (REMOTE, OPEN), (STORED, CLOSED)])
def test_the_players_targets_get_their_parts(session: Any, system: str, loop: str) -> None:
    block = Blocks(session, SMOKE).log_player(system, loop, Point(3, 2))
    figures = block["figures"]
    assert figures["writes"] > 0 and figures["samples"] >= 2
    assert 0 < figures["player_mean_ms"] < figures["apply_mean_ms"]
    assert figures["player_cpu_us"] > 0
