"""Seed 001's experiments: what is planned, and one store that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.logstore.experiments import FULL, NAMES, QUICK, Run, perform, plan
from bench.logstore.replicas import Load, Store, written_between
from bench.settings import FLUSH, OS


def test_the_plan_has_every_figure_and_the_naive_store_beside_ours() -> None:
    runs = plan(FULL, frozenset(NAMES), (FLUSH, OS))
    assert {run.experiment for run in runs} == set(NAMES)
    naive = [run for run in runs if run.store.naive]
    assert {run.experiment for run in naive} == {"7a"}
    assert len(naive) == 2 * len(FULL.payload_bytes)
    volumes = {(run.load.requests, run.load.payload_bytes) for run in naive}
    ours = {(run.load.requests, run.load.payload_bytes) for run in runs if run.experiment == "7a"}
    assert volumes == ours
    assert all(run.store.replicas == 3 for run in runs if run.experiment != "7d")
    assert {run.experiment for run in plan(QUICK, frozenset({"7b"}), (OS,))} == {"7b"}


@pytest.mark.parametrize("naive", [False, True])
def test_three_replicas_commit_what_a_client_offers(tmp_path: Path, naive: bool) -> None:
    load = Load(512, 4, 2_000, 20.0, 0.0, requests=100)
    run = Run("7a", Store(naive=naive, recycle=False, segment_bytes=1 << 20), load)
    ((_, figures),) = perform([run], tmp_path, 0)
    assert figures.get("requests") == 100, figures
    for replica in figures["replicas"]:
        assert replica["bytes_per_payload_byte"]["log"] > (2.0 if naive else 1.0)
        assert replica["bytes_per_payload_byte"]["log"] < (2.6 if naive else 1.6)
    assert not any(tmp_path.iterdir())


def test_a_store_that_has_run_for_long_is_measured(tmp_path: Path) -> None:
    primed, store = 12 << 20, Store(replicas=1, segment_bytes=1 << 20, kept_bytes=2 << 20)
    load = Load(4096, 32, 2_000, 40.0, 0.0, requests=150)
    ((_, figures),) = perform([Run("7b", store, load)], tmp_path, primed)
    assert figures.get("requests") == 150, figures
    assert figures["log_bytes"] > primed + figures["total_payload_bytes"], "both are in the log"


def test_the_writes_of_a_replica_are_per_payload_byte_and_commit() -> None:
    before = {"commit_index": 5, "flushes": 9, "written": {"log": 100, "index": 0}}
    after = {"commit_index": 15, "flushes": 19, "written": {"log": 1200, "index": 10}}
    told = written_between(before, after, 1000)
    assert told["flushes_per_commit"] == 1.0
    assert told["bytes_per_payload_byte"] == {"log": 1.1, "index": 0.01}
