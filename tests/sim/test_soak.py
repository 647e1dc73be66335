"""The campaign: what it records, what it takes for a failure, and that repeated seeds are compared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.campaigns import evidence
from tests.sim import soak

SHORT = ["--workload", "plain", "--set", "nodes=1", "--set", "safety_s=2"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the evidence of these runs goes."""
    monkeypatch.setattr(soak, "add_run", lambda name, figures: evidence.add_run(name, figures, tmp_path))
    monkeypatch.setattr(soak, "load_runs", lambda name: evidence.load_runs(name, tmp_path))
    return tmp_path


def _soak(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["soak", *arguments, *SHORT])
    return soak.main()


def test_fresh_seeds_follow_the_recorded_ones(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _soak(monkeypatch, "--seeds", "3", "--processes", "1") == 0
    assert _soak(monkeypatch, "--seeds", "2", "--processes", "1") == 0
    first, second = evidence.load_runs("sim", elsewhere)
    assert (first["first_seed"], first["last_seed"], second["first_seed"]) == (1, 3, 4)
    assert first["simulated_hours"] >= 0 and first["events"] > 0
    assert set(first) >= {"commit", "source", "machine", "faults", "wall_s", "violations", "seeds"}


def test_repeated_seeds_are_compared(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _soak(monkeypatch, "--repeat", "--seeds", "2") == 0
    assert evidence.load_runs("sim", elsewhere)[0]["equal_hashes"] == 2


def test_a_different_hash_and_a_violation_are_failures(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = {
        "seed": 1,
        "workload": "plain",
        "simulated_s": 1.0,
        "wall_s": 1.0,
        "cpu_s": 1.0,
        "events": 1,
        "faults": {"kill": 2},
        "rule": "",
        "violation": "",
    }

    def chunk(first: int, count: int, hash_seed: int, extra: list[str]) -> list[dict[str, Any]]:
        return [{**outcome, "seed": first, "trace_hash": str(hash_seed)}]

    monkeypatch.setattr(soak, "_chunk", chunk)
    assert _soak(monkeypatch, "--repeat", "--seeds", "1") == 1
    outcome["rule"], outcome["violation"] = "a rule", "a rule: broken"
    assert _soak(monkeypatch, "--seeds", "1") == 1
    assert evidence.load_runs("sim", elsewhere)[-1]["violations"][0]["rule"] == "a rule"


def test_a_simulator_that_ends_early_is_a_finding() -> None:
    (outcome,) = soak._chunk(1, 1, 0, ["--set", "nodes=many"])
    assert outcome["rule"] == "the simulator runs"
