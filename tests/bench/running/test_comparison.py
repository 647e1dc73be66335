"""One comparison as a command: failures of sessions and sources, its words again, and what is required."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from bench.figures.ratios import Goal
from bench.machine import facts
from bench.one_node.goals import GOALS, RATIOS
from bench.running import comparison
from bench.running.comparison import required_goals
from bench.sessions.cluster import NODE_HEAP
from bench.sessions.jobs import Block
from bench.sessions.session import Session
from tests.bench.sessions.told import Told, told_block


def test_a_client_library_that_fails_ends_a_session_and_not_the_run() -> None:
    class Closed(Told):
        def close(self) -> None:
            closed.append(self)

        def log_tail(self) -> str:
            return "its log"

        def unproven_blocks(self) -> list[str]:
            return []

        def outcome(self) -> Block:
            return {"blocks": self.blocks}

    closed: list[Session] = []

    def measure(number: int, each: Closed) -> None:
        if number == 0:
            raise KafkaException("no answer")
        told_block(each)

    sessions, failures = comparison.run_sessions([0, 1], lambda number: Closed(10), measure)
    assert len(closed) == 2 and [len(each["blocks"]) for each in sessions] == [0, 1]
    assert len(failures) == 1 and "no answer" in failures[0]


def test_sources_that_change_while_a_run_lasts_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digests = iter(["a", "a", "a", "b"])
    monkeypatch.setattr(facts, "sources", lambda: next(digests))
    monkeypatch.setattr(facts, "machine_facts", lambda parent: {})
    options = argparse.Namespace(directory=tmp_path, quick=True)
    same = comparison.perform(options, lambda parent: ([], []))
    assert same is not None and same["failures"] == []
    changed = comparison.perform(options, lambda parent: ([], ["session 1: broke"]))
    assert changed is not None
    assert changed["failures"][0] == "session 1: broke" and "sources changed" in changed["failures"][1]


def test_what_a_command_line_requires_is_of_its_own_ratios_and_goals() -> None:
    parser = argparse.ArgumentParser()
    options = argparse.Namespace(require=["goals", "memory.median<=7", "goals"])
    found = required_goals(parser, options, RATIOS, GOALS)
    assert found == [*GOALS, Goal("memory.median", "<=", 7.0), *GOALS]
    with pytest.raises(SystemExit):
        required_goals(parser, options, {}, GOALS)
    two = argparse.Namespace(require=["produce.flush>=2", "produce.flush<=9"])
    with pytest.raises(SystemExit):
        required_goals(parser, two, RATIOS, GOALS)


def test_the_command_line_says_what_is_compiled_and_names_no_tree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = argparse.Namespace(
        subject="lockstep", vs="self", quick=True, rounds=2, seconds=None, baseline_tree=tmp_path, heap="1G"
    )
    monkeypatch.delenv("LOCKSTEP_NATIVE", raising=False)
    words = "python -m bench latency --subject lockstep --vs self --quick --baseline-tree BEFORE --rounds 2"
    assert comparison.command_line(["python -m bench", "latency"], options) == f"{words} --heap 1G"
    monkeypatch.setenv("LOCKSTEP_NATIVE", "1")
    options.heap = NODE_HEAP
    assert comparison.command_line(["python -m bench", "latency"], options) == f"LOCKSTEP_NATIVE=1 {words}"
