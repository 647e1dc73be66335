"""One step for real: the log evicted, started again and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.growth import work
from bench.growth.axes import BY_NAME, QUICK
from bench.sessions.failures import RoundFailed
from bench.sessions.session import LockstepSession
from bench.settings import QUICK as SIZES


def test_a_log_starts_again_and_is_read_at_random_places(tmp_path: Path) -> None:
    session = LockstepSession(SIZES, tmp_path)
    try:
        figures = work.step(session, BY_NAME["log_gib"], 2, QUICK)
        topic = session.blocks[0]["topic"]
        assert figures["bytes"] == pytest.approx(2 * QUICK.fill_bytes_per_unit, rel=0.01)
        assert figures["start_s"] > 0 and 0 < figures["read_p50_ms"] <= figures["read_p99_ms"]
        assert 0 < figures["device_read_p50_ms"] <= figures["device_read_p99_ms"]
        assert {fitted.figure for fitted in BY_NAME["log_gib"].fitted} <= set(figures)
        assert figures["cpu_s_per_million_records"] > 0 and figures["p99_ms"] >= figures["p50_ms"] > 0
        assert figures["loaded_rss_mb"] > 10
        filled, loaded = session.blocks
        written = [block["figures"]["total_records"] for block in (filled, loaded)]
        assert min(written) > 0
        assert session.end_offsets(topic, 1)[0] > sum(written), "one log, and what its start wrote"
        with pytest.raises(RoundFailed, match="error code 1"):
            session.job("random_read", topic=topic, end_offset=10**9, reads=3)
    finally:
        session.close()
    assert not session.unproven_blocks()
