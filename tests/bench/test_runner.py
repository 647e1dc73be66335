"""The runner: failures of sessions and sources, its words again, what is required, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from bench import runner
from bench.figures.ratios import Goal
from bench.kinds.contention import Contention
from bench.kinds.headline import Headline
from bench.kinds.nodes3 import Nodes3
from bench.kinds.one_node import GOALS, OneNode
from bench.machine import facts
from bench.machine.device import NoBlockDevice
from bench.player.command import Player
from bench.runner import Measurement, command_line, mirror_rounds
from bench.sessions.jobs import Block
from tests.bench.kinds.results import made
from tests.bench.sessions.told import Told, told_block


class _Session(Told):
    def close(self) -> None:
        self.closed = True

    def log_tail(self) -> str:
        return "its log"

    def unproven_blocks(self) -> list[str]:
        return []

    def outcome(self) -> Block:
        return {"blocks": self.blocks}


class _Kind(Measurement[int, _Session]):
    """Two sessions, of which the first may fail."""

    name = "x"
    first_fails = False
    problems: tuple[str, ...] = ()
    late: tuple[str, ...] = ()

    def plan(self) -> list[int]:
        return [0, 1]

    def session(self, planned: int) -> _Session:
        return _Session(10)

    def measure(self, planned: int, session: _Session) -> None:
        if planned == 0 and self.first_fails:
            raise KafkaException("no answer")
        told_block(session)

    def figures(self, measured: Any) -> dict[str, Any]:
        return {"rows": [{"found": len(each["blocks"])} for each in measured], "failures": [*self.problems]}

    def table(self, result: dict[str, Any]) -> str:
        return "a table"

    def missed_goals(self, result: dict[str, Any]) -> list[str]:
        return [*self.late]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(facts, "machine_facts", lambda parent: {"cpus": 2})
    monkeypatch.setattr(facts, "sources", lambda: "a")
    return ["--quick", "--out", str(tmp_path / "kept"), "--directory", str(tmp_path)]


def _kept(words: list[str]) -> dict[str, Any]:
    (path,) = Path(words[2]).glob("*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    path.unlink()
    return found


def test_what_was_measured_is_kept_and_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(_Kind, words) == 0
    result = _kept(words)
    assert (result["kind"], result["rows"], result["failures"]) == ("x", [{"found": 1}] * 2, [])
    assert result["command"] == "python -m bench x --quick" and result["sizes"]["name"] == "quick"
    assert capsys.readouterr().out == "a table\n"
    assert runner.main(_Kind, [*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"found": 1}] * 2


def test_a_client_library_that_fails_ends_a_session_and_not_the_run(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Kind, "first_fails", True)
    assert runner.main(_Kind, words) == 1
    result = _kept(words)
    assert [each["found"] for each in result["rows"]] == [0, 1]
    assert len(result["failures"]) == 1 and "no answer" in result["failures"][0]
    assert "its log" in capsys.readouterr().err


def test_problems_fail_a_run_and_goals_are_missed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Kind, "late", ("p50 is 2",))
    assert runner.main(_Kind, words) == 3
    monkeypatch.setattr(_Kind, "problems", ("too few",))
    assert runner.main(_Kind, words) == 1


def test_sources_that_change_while_a_run_lasts_are_a_failure(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = iter("ab")
    monkeypatch.setattr(facts, "sources", lambda: next(digests))
    assert runner.main(_Kind, words) == 1
    assert "sources changed" in _kept(words)["failures"][0]


def test_where_nothing_can_be_measured_nothing_is_kept(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(parent: Path) -> Any:
        raise NoBlockDevice("no disk")

    monkeypatch.setattr(facts, "machine_facts", fails)
    assert runner.main(_Kind, words) == 1
    assert not Path(words[2]).exists()


def test_what_a_command_line_requires_is_of_its_own_ratios_and_goals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    require = [f"--require={each}" for each in ("goals", "memory.median<=7", "goals")]
    assert made(OneNode, "all", *require).required == [*GOALS, Goal("memory.median", "<=", 7.0), *GOALS]
    for kind, words, said in (
        (Nodes3, ["--require", "memory.median<=7"], "ratios: produce.flush.g1"),
        (OneNode, ["all", "--require", "produce.flush>=2", "--require", "produce.flush<=9"], "2 bounds"),
        (OneNode, ["latency", "--baseline-tree", str(Path(__file__).parents[2])], "goes with --vs self"),
        (
            Headline,
            ["--nodes", "3", "--row", "consume"],
            "three nodes are measured in latency and produce only",
        ),
    ):
        with pytest.raises(SystemExit, match="2"):
            made(kind, *words)
        assert said in capsys.readouterr().err


def test_the_command_line_lists_compiled_modules_without_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(kind: type[Measurement[Any, Any]], *words: str) -> str:
        return command_line(kind.command_word(), kind.options, made(kind, *words).chosen)

    monkeypatch.delenv("LOCKSTEP_NATIVE", raising=False)
    root = str(Path(__file__).parents[2])
    words = ["latency", "--vs", "self", "--quick", "--rounds", "2", "--policy", "flush"]
    kept = "python -m bench latency --vs self --quick --rounds 2 --baseline-tree BEFORE --policy flush"
    assert said(OneNode, *words, "--baseline-tree", root, "--out", root) == kept
    monkeypatch.setenv("LOCKSTEP_NATIVE", "1")
    assert said(Nodes3, "--heap", "512M") == "LOCKSTEP_NATIVE=1 python -m bench nodes3"
    monkeypatch.delenv("LOCKSTEP_NATIVE")
    assert said(Player, "delays", "backlogs", "--heap", "1G") == (
        "python -m bench player delays backlogs --heap 1G"
    )
    accounts = ["--accounts", "3", "--accounts", "10", "--clients", "4"]
    assert said(Contention, *accounts) == "python -m bench contention --clients 4 --accounts 3 --accounts 10"


def test_every_second_round_is_mirrored() -> None:
    assert mirror_rounds([1, 2, 3], 3) == [1, 2, 3, 3, 2, 1, 1, 2, 3]
