"""One step for real: the log evicted, started again and read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.growth import work
from bench.growth.axes import BY_NAME, QUICK, RATE
from bench.growth.command import main
from bench.sessions.jobs import RoundFailed
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


def test_a_step_is_measured_once_and_the_remaining_ones_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--quick", "--axis", "groups", "--most", "10", "--repeats", "1"]
    words += ["--out", str(tmp_path / "steps"), "--directory", str(tmp_path)]
    assert main([*words, "--limit", "1"]) == 0
    assert "1 of 2 steps are there; remaining: groups 10" in capsys.readouterr().err
    (path,) = (tmp_path / "steps").iterdir()
    kept = path.read_text()
    figures = json.loads(kept)["figures"]
    assert figures["rss_mb"] > 10 and figures["cpu_s_per_million_records"] > 0
    assert 0 <= figures["requests_per_s"] <= RATE and 0 < figures["p50_ms"] <= figures["p99_ms"]
    assert main([*words, "--limit", "0"]) == 0 and path.read_text() == kept
    cells_of_other_machines = json.loads(kept)
    cells_of_other_machines["machine"]["kernel"] = "1.0"
    path.write_text(json.dumps(cells_of_other_machines))
    assert main(words) == 1, "no step of another machine is added to"
    assert "groups 1 was measured elsewhere: kernel differ" in capsys.readouterr().err
    path.write_text(kept)
    # without --quick the step is another one
    assert main([*words[1:], "--list"]) == 0
    assert "0 of 2 steps are there" in capsys.readouterr().err
