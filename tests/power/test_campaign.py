"""A short cut of the power-loss campaign and of its control, which shows that it can fail."""

from __future__ import annotations

import contextlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from compat_tests.kafka_jars import skip_or_fail
from tests.campaigns import evidence
from tests.power import campaign
from tests.power.disk import why_not
from tests.power.nodes import Node

LIE_THAT_SHOWS = 3
"""A seed whose loss takes everything that was not flushed."""


def possible() -> None:
    reason = why_not()
    if reason is not None:
        skip_or_fail(reason)


def batch(words: list[str], seed: int) -> campaign.Batch:
    return campaign.one_batch(campaign.parse([*words, "--no-evidence"]), seed, 1)


def test_a_broker_loses_nothing_acknowledged_when_the_power_goes() -> None:
    possible()
    seed = random.SystemRandom().randrange(2**31)
    print(f"repeat with: python -m tests.power --runs 1 --losses 1 --seed {seed}")
    found = batch(["--losses", "1", "--clients", "confluent,aiokafka"], seed)
    assert found.problems == []
    figures = found.figures(1)
    assert figures["power_losses"] >= 2
    assert figures["records"]["acknowledged"] >= 40
    assert figures["records"]["read_back"] >= figures["records"]["acknowledged"]


def test_on_disks_that_lie_the_same_broker_is_seen_to_lose(capsys: pytest.CaptureFixture[str]) -> None:
    possible()
    words = ["--control", "--seed", str(LIE_THAT_SHOWS), "--clients", "confluent,aiokafka", "--no-evidence"]
    assert campaign.main(words) == 0
    assert "the lie was seen" in capsys.readouterr().out


def test_a_broker_that_leaves_flushing_to_the_system_is_seen_to_lose_and_not_judged() -> None:
    possible()
    words = ["--set", "log.flush=os", "--losses", "0", "--clients", "confluent"]
    found = batch(words, LIE_THAT_SHOWS)
    assert found.lost > 0
    assert found.figures(1)["judged"] is False


def test_a_broker_that_flushes_no_directory_is_seen_to_lose() -> None:
    possible()
    command = f"{sys.executable} -m tests.power.sabotage"
    assert batch(["--command", command, "--losses", "0", "--clients", "confluent"], LIE_THAT_SHOWS).lost > 0


def test_a_control_that_sees_no_loss_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign.Batch, "go", lambda self, runs: None)
    assert campaign.main(["--control", "--no-evidence"]) == 1


def test_a_problem_ends_the_campaign_with_one_unless_nothing_was_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(campaign.Batch, "go", lambda self, runs: self.problems.append("lost"))
    assert campaign.main(["--runs", "1", "--no-evidence"]) == 1
    assert campaign.main(["--runs", "1", "--no-evidence", "--set", "log.flush=os"]) == 0
    three = ["--runs", "1", "--no-evidence", "--nodes", "3", "--set", "log.flush=os"]
    assert campaign.main([*three, "--scope", "one"]) == 1
    assert campaign.main([*three, "--scope", "all"]) == 0


def test_only_runs_of_the_same_source_and_shape_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = campaign.parse(["--nodes", "3", "--scope", "one"])
    entry: dict[str, Any] = {**campaign.shape(arguments), "source": "here", "runs": 5}
    others: list[dict[str, Any]]
    others = [
        {"nodes": 1},
        {"scope": "all"},
        {"disk": "lies"},
        {"settings": ["a=b"]},
        {"command": "x"},
        {"source": "there"},
    ]
    entries = [entry, *({**entry, **other} for other in others), entry]
    monkeypatch.setattr(evidence, "source_digest", lambda: "here")
    monkeypatch.setattr(evidence, "load_runs", lambda name: entries)
    assert campaign.on_record(arguments) == 10


class _NoDisk:
    path = Path("disk")


def test_several_nodes_know_each_other_and_one_is_started_as_ever(tmp_path: Path) -> None:
    def words(peers: str) -> list[str]:
        node = Node(2, peers, _NoDisk(), {}, directory=tmp_path, command=None)  # type: ignore[arg-type]
        with contextlib.closing(node):
            return node._command()

    assert "--peers" not in words("")
    three = words("1@h:1,2@h:2,3@h:3")
    assert three[three.index("--node-id") + 1] == "2"
    assert three[three.index("--peers") + 1] == "1@h:1,2@h:2,3@h:3"
    assert three[three.index("--data-dir") + 1] == str(Path("disk") / "data")
