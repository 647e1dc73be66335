"""A short cut of the extension's fuzz campaign, and that it sees a difference."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lockstep import extension
from lockstep.broker.produce.producer_state import Producer
from tests.campaigns import fuzz_fast_path
from tests.campaigns.fast_path_pair import FastPathPair, PathsDiffer
from tests.campaigns.fuzz_fast_path import Inputs, Run, run_chunk

NEEDS_EXTENSION = pytest.mark.skipif(extension.load()[0] is None, reason="`make extension` builds it")


@pytest.mark.tier(name="test")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_nearly_plain_requests_under_sanitizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz_fast_path, "CHUNK_INPUTS", 1_500)
    run = Run(tmp_path, seed=7, inputs=3_000)
    run.go(lambda text: None)
    assert run.problems == []
    assert run.has_sanitizers
    assert run.taken > 1_000
    again = Run(tmp_path, seed=8, inputs=3_000)
    assert again.resume()
    assert (again.seed, again.done, again.next_chunk) == (7, 3_000, 2)


@NEEDS_EXTENSION
def test_another_state_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Producer, "append", lambda *_: None)
    with pytest.raises(PathsDiffer, match="in Python"):
        run_chunk(1, 100, FastPathPair())


def test_a_seed_is_the_same_inputs() -> None:
    one, same, other = (Inputs(seed, lambda index, producer: 5) for seed in (1, 1, 2))
    drawn = [one.several() for _ in range(20)]
    assert drawn == [same.several() for _ in range(20)]
    assert drawn != [other.several() for _ in range(20)]


def test_sequences_go_on_from_zero_behind_the_largest() -> None:
    inputs = Inputs(5, lambda partition, producer: (1 << 31) - 2)
    assert all(inputs.several() for _ in range(100))
