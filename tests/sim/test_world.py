"""Whole runs: the same seed is the same history, faults happen, and what is planted is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest

from lockstep import extension
from lockstep.broker.produce.compiled_fast_path import CompiledFastPath
from lockstep.broker.produce.produce_fast_path import ProduceFastPath
from lockstep.storage.log.data_log import DataLog
from tests.campaigns.evidence import ROOT
from tests.sim.options import FAULTS, Options, override
from tests.sim.run import run_seed
from tests.sim.workloads.fast_path import FastProduce
from tests.sim.world import World

FAST_PATHS = (
    ProduceFastPath,
    pytest.param(
        CompiledFastPath,
        marks=pytest.mark.skipif(extension.load()[0] is None, reason="`make extension` builds it"),
    ),
)
ONE = {"nodes": 1, "safety_s": 20}


def test_a_seed_is_one_history_whatever_the_hash_seed() -> None:
    command = [sys.executable, "-m", "tests.sim", "--seed", "7", "--set", "safety_s=20", "--json"]
    hashes = set()
    for hash_seed in ("0", "1234"):
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        outcome = json.loads(done.stdout)
        assert (done.returncode, outcome["rule"]) == (0, ""), outcome["violation"]
        hashes.add(outcome["trace_hash"])
    assert len(hashes) == 1
    assert len(hashes.pop()) >= 16


@pytest.mark.parametrize("path", FAST_PATHS)
@pytest.mark.parametrize("seed", range(3))
def test_the_fast_path_is_the_same_history(
    seed: int, path: type[ProduceFastPath], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastProduce, "path_type", path)
    appended = Counter[bool]()
    real = FastProduce.append

    def append(self: FastProduce, *batch: Any) -> Any:
        reply = real(self, *batch)
        appended[reply is not None] += 1
        return reply

    monkeypatch.setattr(FastProduce, "append", append)
    with_it, without = (
        run_seed(seed, "appends", {"safety_s": 15, "think_ms": 50, "fast_path": on}) for on in (True, False)
    )
    assert not with_it.rule, with_it.violation
    assert with_it.trace_hash == without.trace_hash
    assert appended[True] > 2 * appended[False] > 0


def test_another_seed_is_another_history() -> None:
    assert run_seed(1, "plain", ONE).trace_hash != run_seed(2, "plain", ONE).trace_hash


def test_one_voter_survives_what_happens_to_it() -> None:
    faults: Counter[str] = Counter()
    for seed in range(12):
        outcome = run_seed(seed, "plain", ONE)
        assert not outcome.rule, f"seed {seed}: {outcome.violation}"
        faults.update(outcome.faults)
    assert {"kill", "power loss", "cut mid-write", "pause", "failed flush", "full disk"} <= set(faults)


def test_a_flush_that_flushes_nothing_is_found() -> None:
    def flush(log: DataLog) -> None:
        log.flushed_index = log.last_index

    with patch.object(DataLog, "flush", flush):
        assert any(run_seed(seed, "plain", ONE).rule for seed in range(10))


def test_three_voters_survive_what_happens_to_them() -> None:
    faults: Counter[str] = Counter()
    for seed in range(8):
        outcome = run_seed(seed, "plain", {"nodes": 3, "safety_s": 20})
        assert not outcome.rule, f"seed {seed}: {outcome.violation}"
        faults.update(outcome.faults)
    assert {"isolate leader", "partition", "clog", "transfer", "replace disk"} <= set(faults)


def test_a_world_is_freed_when_its_run_is_over() -> None:
    worlds: list[weakref.ref[World]] = []
    made = World.__init__

    def remember(world: World, *arguments: Any) -> None:
        made(world, *arguments)
        worlds.append(weakref.ref(world))

    with patch.object(World, "__init__", remember):
        run_seed(1, "plain", {"nodes": 3, "safety_s": 5})
    assert [world() for world in worlds] == [None]


def test_an_exception_in_the_product_is_found() -> None:
    with patch.object(DataLog, "idle", lambda log: 1 // 0):
        assert run_seed(1, "plain", ONE).rule == "no node stops without a disk fault"


def test_options_are_read_by_their_type() -> None:
    options = override(Options(), {"nodes": "5", "loss": "0.2", "rot": "true", "faults": "kill, pause"})
    assert (options.nodes, options.loss, options.rot, options.faults) == (5, 0.2, True, ("kill", "pause"))
    for name, value in (("node", "5"), ("faults", "kil"), ("nodes", "many")):
        with pytest.raises(ValueError):
            override(Options(), {name: value})
    assert len(FAULTS) == len(set(FAULTS))


def test_the_command_prints_what_repeats_a_run() -> None:
    command = [sys.executable, "-m", "tests.sim", "--seed", "3", "--workload", "plain"]
    done = subprocess.run(
        [*command, "--set", "nodes=1", "--set", "safety_s=5"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "seed 3, workload plain"
    assert "safety_s=5" in lines[1]
    assert sum(line.startswith("trace hash = ") for line in lines) == 1
    assert lines[-1] == (
        "again: python -m tests.sim --seed 3 --workload plain --set nodes=1 --set safety_s=5"
    )
