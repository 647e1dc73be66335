"""A short cut of `python -m tests.sim.plants`: a few quick plants are caught, unplanted runs are clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.faces import Plant
from tests.sim.options import Options, override
from tests.sim.plants import PLANTS
from tests.sim.plants.__main__ import caught
from tests.sim.run import run_seed
from tests.sim.workloads import WORKLOADS
from tests.support.cases import each_case

QUICK = (
    ("vote-before-hard-state", "a vote that is not on the disk"),
    ("vote-forgotten", "hard state goes back"),
    ("prevote-off", "a term is raised without PreVote"),
    ("older-term-counted", "an older term's entry is committed by counting"),
    ("acknowledged-before-flush", "an acknowledged entry that is not on the disk"),
    (
        "straight-commit-before-flush",
        "committed without a majority of disks|an acknowledged entry that is not on the disk",
    ),
    ("straight-commit-of-many", "acknowledged, not committed|committed without a majority of disks"),
    ("tail-answered-early", "acknowledged, not committed|what is acknowledged is there"),
    ("end-of-log-served", "an end that is not committed|machines"),
    ("buffer-used-again", "bytes|wrong bytes read"),
    ("fast-sequences-not-recorded", "a producer is forgotten|machines|twice"),
    ("fast-replies-after-loss", "the fast path answers"),
    ("ended-in-two-frames", "half of a transaction has ended"),
    ("open-transactions-ignored", "last stable offset"),
    ("version-without-a-node", "no node stops without a disk fault"),
    ("last-record-cleaned", "the last value of each key"),
    ("lock-notes-left-out", "machines"),
    ("old-marks-forgotten", "no conditional append against its condition"),
    ("player-start-late", "each stream brings what is due, in order, once"),
    ("player-end-early", "each stream brings what is due, in order, once"),
    ("player-group-frame-left-out", "each stream brings what is due, in order, once"),
    ("player-target-term-not-checked", "nothing is taken from an older stream"),
)
SEEDS = 6
RULES = Path(__file__).resolve().parents[2] / "docs" / "storage_rules.md"


@pytest.mark.tier(name="rest")
@pytest.mark.parametrize(("name", "rule"), QUICK)
def test_a_quick_plant_is_caught(name: str, rule: str) -> None:
    row = caught(PLANTS[name], 1, SEEDS)
    assert row["caught"], row
    assert row["rule"] in rule.split("|")
    assert row["without_the_plant"] == "no violation"


@each_case("plant", PLANTS.values(), ids=list(PLANTS))
def test_a_plant_is_described_and_its_options_exist(plant: Plant) -> None:
    assert plant.source
    assert plant.what
    assert plant.workload is None or plant.workload in WORKLOADS
    override(Options(), plant.overrides)
    with plant.apply():
        pass
    assert "specs" not in plant.source, "no document of the project"
    if plant.source.startswith(f"{RULES.parent.name}/"):
        assert plant.source.startswith(f"docs/{RULES.name}: ")
        assert f"`sim:{plant.name}`" in RULES.read_text(encoding="utf-8")


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_an_unplanted_run_is_clean(workload: str) -> None:
    outcome = run_seed(7, workload=workload, overrides={"safety_s": 20})
    assert not outcome.rule, outcome.violation


def test_a_plant_that_is_never_caught_is_reported() -> None:
    harmless = Plant(
        "harmless", "nothing is changed", PLANTS["vote-forgotten"].apply, rules=("no such rule",)
    )
    row = caught(harmless, 1, 1)
    assert not row["caught"]
