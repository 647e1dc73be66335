"""The thread stress of joining, for a moment; and that it sees a read that is wrong and a scrub that is."""

from __future__ import annotations

import pytest

from lockstep.storage.log.batch_reader import LogReader
from lockstep.storage.log.segment_compaction import SegmentRewriter
from lockstep.storage.types import ReadResult
from tests.storage.log.join_stress import run_round


@pytest.mark.parametrize("seed", [1, 2])
def test_threads_beside_joins_and_truncations_meet_no_problem(seed: int) -> None:
    found = run_round(seed, 200)
    assert not found.problems
    assert {"read", "scrub", "join", "append", "truncate", "checkpoint"} <= set(found.did)


def test_the_stress_sees_a_batch_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = LogReader.read

    def read(self: LogReader, partition: int, offset: int, *rest: int) -> ReadResult:
        found = real(self, partition, offset, *rest)  # type: ignore[arg-type]
        return ReadResult([bytes(buffer)[:-1] for buffer in found.buffers], found.total_bytes)

    monkeypatch.setattr(LogReader, "read", read)
    assert any("right" in each for each in run_round(1, 400).problems)


def test_the_stress_sees_damage_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SegmentRewriter, "_verify_segment", lambda self, held, throttle: None)
    assert any("do not verify" in each for each in run_round(1, 400).problems)
