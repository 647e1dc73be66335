"""The micro-benchmarks' command: references, and what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kept import Unreadable
from bench.machine import facts
from bench.micro import command as micro
from bench.micro import follower, requests
from bench.micro.history import is_comparable_over_time, read
from bench.micro.raft import KEPT_ENTRIES, following_step, leading_step
from lockstep.storage.log.data_log import DataLog
from tests.bench.micro.records import LONG, MACHINE, PYTHON, SHORT


def test_references_are_measured_before_the_others_and_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([1.0, 3.0, 7.0, 4.0, 12.0])
    monkeypatch.setattr(micro, "microseconds", lambda step: next(taken))
    steps: list[micro.Step] = [(PYTHON, lambda: None), (SHORT, lambda: None)]
    found = micro.bracket(steps, lambda: {"decode": next(taken)})
    assert found == pytest.approx({PYTHON: 2.0, SHORT: 6.0, "decode": 7.0})
    assert [name for name, _ in micro.reference_steps()] == [PYTHON, SHORT, LONG]
    assert all(is_comparable_over_time(name) for name, _ in micro.codec_steps())


def test_a_tree_with_changes_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history.jsonl"
    words = ["--record", "--history", str(path)]
    monkeypatch.setattr(micro, "measure_steps", lambda directory: pytest.fail("nothing is measured in vain"))
    monkeypatch.setattr(facts, "code_facts", lambda: {"commit": "a", "dirty": True})
    assert micro.main(words) == 1
    assert "commit them" in capsys.readouterr().err and not path.exists()
    path.write_text('{"comm')
    with pytest.raises(Unreadable, match=r"history\.jsonl is no history"):
        micro.main(words)
    path.unlink()
    monkeypatch.setattr(facts, "machine_facts", lambda directory: MACHINE)
    for commit, figure, status in (("a", 1.0, 0), ("b", 2.0, 1), ("c", 1.0, 0)):
        monkeypatch.setattr(facts, "code_facts", lambda commit=commit: {"commit": commit, "dirty": False})
        monkeypatch.setattr(micro, "measure_steps", lambda directory, figure=figure: {"decode": figure})
        assert micro.main(words) == status
    assert "SLOWER: decode: 2.00 us with b, 1.00 us before" in capsys.readouterr().err
    assert len(read(path)) == 3


def test_the_machines_speed_is_separated_from_the_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--record", "--history", str(tmp_path / "history.jsonl")]
    monkeypatch.setattr(facts, "machine_facts", lambda directory: MACHINE)
    for commit, reference, decode, status in (("a", 0.5, 1.0, 0), ("b", 1.0, 2.0, 0), ("c", 1.0, 3.0, 1)):
        steps = {LONG: reference, "decode": decode}
        monkeypatch.setattr(facts, "code_facts", lambda commit=commit: {"commit": commit, "dirty": False})
        monkeypatch.setattr(micro, "measure_steps", lambda directory, steps=steps: steps)
        assert micro.main(words) == status
    told = capsys.readouterr().err
    assert "the references take 2.00 times as long as usual" in told
    assert f"not judged: references, and what waits for the disk ({LONG})" in told
    assert "SLOWER: decode: 3.00 us with c, 2.00 us before, at the machine's speed of now" in told


def test_raft_steps_can_be_repeated_for_ever() -> None:
    lead, follow = leading_step(), following_step()
    count = KEPT_ENTRIES + 50
    assert [lead() for _ in range(count)] == list(range(2, count + 2))  # the first entry is the no-op
    assert [follow() for _ in range(count)] == list(range(count))


def test_a_follower_takes_every_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "BATCHES", 64)
    assert follower.follow(tmp_path, 8, 1, 2, 3) > 0
    log = DataLog.open(tmp_path, 1)
    frames = list(log.replay())
    log.close()
    assert [len(frame.directory) for frame in frames] == [8] * 8


async def test_whole_requests_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOG_BYTES", 8 << 20)
    monkeypatch.setattr(requests, "CLIENTS", 2)
    steps = await requests.request_steps(tmp_path, rounds=2)
    assert {name.split(",")[0].split(" of")[0] for name in steps} == {
        "Fetch", "Heartbeat", "OffsetCommit", "Metadata"
    }  # fmt: skip
    assert all(0 < each < 1e6 for each in steps.values()) and len(steps) == 7
    assert all(map(is_comparable_over_time, steps))
