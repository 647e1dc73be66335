"""What a run says of itself: progress read from growing files, the verdict, kept files, the evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns import evidence
from tests.torture import kills, run
from tests.torture.clients import workers
from tests.torture.faults import Done
from tests.torture.progress import Progress
from tests.torture.session import Options, Session, keep

SECOND = 10**9


def lines(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)


def sends(count: int, *, every_s: float = 1.0) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [{"p": "w.1", "t": 0, "f": "producer", "idempotent": True}]
    for number in range(count):
        at, value = int(number * every_s * SECOND), f"w.1.{number}"
        begun = {"s": "invoke", "part": "torture-0", "key": "k", "v": value}
        events.append({"p": "w.1", "t": at, "f": "send", **begun})
        events.append({"p": "w.1", "t": at + 1000, "f": "send", "s": "ok", "v": value, "offset": number})
    return events


def polled(process: str, count: int) -> dict[str, Any]:
    found = [[number, f"w.1.{number}"] for number in range(count)]
    return {"p": process, "t": 100 * SECOND, "f": "poll", "records": {"torture-0": found}}


def test_progress_reads_on_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    text = lines(*sends(3))
    path.write_text(text[:-5])
    progress = Progress([path])
    progress.update()
    assert progress.acknowledged == 2
    with open(path, "a") as file:
        file.write(text[-5:])
    progress.update()
    progress.update()
    assert progress.acknowledged == 3


def test_a_group_or_an_assigning_worker_is_behind_until_it_had_everything(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    silent = {"p": "aio-subscribe.1", "t": 1, "f": "assign", "parts": {"torture-0": None}}
    path.write_text(
        lines(
            polled("confluent-assign.1", 3),
            polled("confluent-subscribe.1", 2),
            polled("confluent-subscribe:2.4", 4),
            silent,
        )
    )
    progress = Progress([path])
    progress.update()
    assert progress.behind({"torture-0": 4}) == {
        "confluent-assign": {"torture-0": 3},
        "aio-subscribe": {"torture-0": 0},
    }
    assert set(progress.behind({"torture-0": 3})) == {"aio-subscribe"}


def judged(directory: Path, *files: str) -> Session:
    events = directory / "events"
    events.mkdir()
    for number, text in enumerate(files):
        (events / f"{number}.jsonl").write_text(text)
    session = Session(Options(3, 60, 1, ()), directory, lambda text: None)
    session.outcome.faults.append(Done("kill", [1], True, ["torture-0"], 2 * SECOND, 3 * SECOND))
    session._judge()
    return session


def test_a_run_whose_events_agree_is_valid_and_its_gaps_are_reported(tmp_path: Path) -> None:
    outcome = judged(tmp_path, lines(*sends(10, every_s=1.5)), lines(polled("final-n1.1", 10))).outcome
    assert outcome.sound
    assert outcome.silences_s == [1.5]
    assert outcome.leader_silences_s() == [1.5]
    told = run.figures(outcome, 70.0)
    assert told["faults"][0]["longest_silence_s"] == 1.5
    assert run.report(told).startswith("seed 1: sound; 10 sent, 10 acknowledged")


def test_a_run_that_lost_something_is_not_sound_and_is_kept(tmp_path: Path) -> None:
    outcome = judged(tmp_path, lines(*sends(10)), lines(polled("final-n1.1", 9))).outcome
    assert not outcome.sound
    assert "NOT SOUND" in run.report(run.figures(outcome, 70.0))
    keep(tmp_path, tmp_path / "kept")
    assert sorted(path.name for path in (tmp_path / "kept" / "events").iterdir()) == ["0.jsonl", "1.jsonl"]


def test_only_sound_runs_of_this_source_and_shape_are_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    told = run.figures(judged(tmp_path / "a", lines(*sends(3)), lines(polled("final-n1.1", 3))).outcome, 1.0)
    here = tmp_path / "evidence"
    for change in ({}, {"nodes": 1}, {"seconds": 10.0}, {"anomalies": {"unseen": 1}}, {"target": "kafka"}):
        evidence.add_run("torture", {**told, **change}, here)
        evidence.add_run("kills3", {**told, "sort": "one", "kills": 5, **change}, here)
    monkeypatch.setattr(evidence, "EVIDENCE", here)
    runs = {name: evidence.load_runs(name, here) for name in ("torture", "kills3")}
    monkeypatch.setattr(evidence, "load_runs", lambda name: runs[name])
    workers_of = told["workers"]
    assert run.runs_on_record(3, 60, workers_of) == 1
    assert run.runs_on_record(3, 60, [*workers_of, "confluent-transactional"]) == 0
    assert kills.kills_on_record("one", 3) == 5 + 5 + 5  # a round has no length, and no other target
    assert kills.kills_on_record("all", 3) == 0
    monkeypatch.setattr(evidence, "source_digest", lambda: "another")
    assert run.runs_on_record(3, 60, workers_of) == 0


def test_workers_are_named_by_library_and_role(tmp_path: Path) -> None:
    workload = workers.Workload("here:1", "t", 3, tmp_path, rate=1, seed=1)
    for name in workers.LINE_UP:
        if not name.startswith("java"):
            assert "--role" in workers.command(name, workload)
    assert workers.is_consumer("java:assign+subscribe") and not workers.is_consumer("java:idempotent+plain")
    with pytest.raises(ValueError, match="pony"):
        workers.command("pony-assign", workload)
