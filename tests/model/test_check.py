"""What TLC says is understood, and a mistake in a model is found: what `make model` rests on."""

from __future__ import annotations

import re

import pytest

from tests.model import tlc
from tests.model.check import caught
from tests.model.player_runs import WITHOUT_TERMS, lively, player
from tests.model.runs import DAY, NIGHT, PLANTS, disk, raft
from tests.model.test_traces import require_tlc

MODULES = ("SharedLogRaft", "LogDisk", "LogPlayer")
FINISHED = """Model checking completed. No error has been found.
5 states generated, 4 distinct states found, 0 states left on queue.
The depth of the complete state graph search is 3."""
VIOLATED = """Error: Invariant NoFalseAlarm is violated.
1,234 states generated, 567 distinct states found, 8 states left on queue."""

NEVER = """Error: Temporal properties were violated.
44 states generated, 29 distinct states found, 0 states left on queue."""


def test_a_finished_search_is_complete() -> None:
    outcome = tlc.judge(FINISHED, 1.0)
    assert (outcome.states, outcome.distinct, outcome.depth) == (5, 4, 3)
    assert outcome.complete and not outcome.violated and not outcome.failure


def test_a_broken_rule_has_a_name() -> None:
    outcome = tlc.judge(VIOLATED, 1.0)
    assert outcome.violated == "NoFalseAlarm"
    assert (outcome.states, outcome.distinct) == (1234, 567)
    assert not outcome.complete


def test_a_search_that_was_cut_short_is_no_verdict() -> None:
    outcome = tlc.judge("Progress(3): 10 states generated (10 s/min), 9 distinct states found", 1.0)
    assert not outcome.complete
    assert outcome.failure == "TLC did not finish"
    assert "exception" in tlc.judge("Error: TLC threw an unexpected exception.", 1.0).failure


def test_a_violated_property_is_reported_by_its_name() -> None:
    outcome = tlc.judge(NEVER, 1.0, ["AllIsDelivered"])
    assert outcome.violated == "AllIsDelivered"
    assert not outcome.complete and not outcome.failure


def test_every_rule_of_the_models_is_broken_by_some_mistake() -> None:
    rules = {rule for run in DAY.values() for rule in (*run.invariants, *run.properties)}
    broken = {rule for plant in PLANTS.values() for rule in plant.breaks}
    assert rules == broken


def test_plants_are_those_the_models_know() -> None:
    texts = "".join((tlc.MODEL / f"{name}.tla").read_text() for name in MODULES)
    known = set(re.findall(r'Plant (?:=|/=) "(\w+)"', texts))
    assert known == set(PLANTS) - {WITHOUT_TERMS}
    constants = {name: plant.configuration.constants for name, plant in PLANTS.items()}
    assert constants[WITHOUT_TERMS]["Fenced"] == "FALSE"
    assert all(each["Plant"] == f'"{name}"' for name, each in constants.items() if name != WITHOUT_TERMS)


def test_configurations_name_every_constant() -> None:
    for run in (*DAY.values(), *NIGHT.values()):
        text = (tlc.MODEL / f"{run.module}.tla").read_text()
        declared = text[text.index("CONSTANTS") : text.index("VARIABLES")]
        for name in run.constants:
            assert len(name) == 1 or re.search(rf"\b{name}\b", declared), name
    with pytest.raises(KeyError):
        raft(MaxTerms=2)


@pytest.mark.java
def test_tlc_finds_a_mistake_and_passes_the_model_without_it() -> None:
    require_tlc()
    plant = PLANTS["marker_promises_early"]
    assert caught(plant, tlc.check(plant.configuration, heap_mib=500, timeout_s=120))
    right = tlc.check(disk(Cells=4, MaxLength=1), heap_mib=500, timeout_s=120)
    assert right.complete
    assert right.distinct > 20


@pytest.mark.java
def test_tlc_finds_that_a_player_needs_terms_and_delivers_with_them() -> None:
    require_tlc()
    plant = PLANTS[WITHOUT_TERMS]
    assert caught(plant, tlc.check(plant.configuration, heap_mib=500, timeout_s=240))
    assert tlc.check(player(), heap_mib=500, timeout_s=240).complete
    right = tlc.check(lively(Length=1, Routes="{{1}}"), heap_mib=500, timeout_s=240)
    assert right.complete
    assert right.distinct > 20
