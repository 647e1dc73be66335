"""The player's campaign in short, that it sees a planted mistake, and what its parts do."""

from __future__ import annotations

import random
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from compat_tests.kafka_jars import skip_or_fail
from lockstep.player_host import config
from tests.campaigns import evidence, player, player_processes
from tests.campaigns.player_nemesis import FAULTS, Nemesis
from tests.campaigns.player_processes import (
    BOUNDS,
    Options,
    Player,
    Process,
    group_config,
    players_of,
    targets_of,
)
from tests.campaigns.player_writers import KEYS, Drawn
from tests.lockstep.postgres import PostgresMissing


def short(words: str) -> tuple[dict[str, Any], list[str]]:
    seed = random.SystemRandom().randrange(2**31)
    words = f"{words} --seed {seed} --no-evidence"
    print(f"repeat with: python -m tests.campaigns.player {words}")
    try:
        return player.run(player.arguments(shlex.split(words)))
    except PostgresMissing as missing:
        skip_or_fail(str(missing))
        raise


@pytest.mark.timeout(900)
def test_three_targets_have_the_log_after_each_kind_of_fault() -> None:
    figures, problems = short("--records 2000 --kills 1 --rate 200 --sqlite 2 --postgres 1")
    assert problems == []
    assert all(figures["faults"][each] >= 1 for each in FAULTS)
    assert figures["records"] >= 2000 and figures["stopped_for_records"] > 0
    assert len(figures["applied"]) == 3 and min(figures["applied"].values()) > 500
    assert 20 < figures["player_rss_mib"]["while_one_is_stopped"] < 200


@pytest.mark.timeout(900)
def test_a_log_group_is_in_one_order_everywhere() -> None:
    words = "--records 1500 --kills 2 --rate 200 --sqlite 3 --postgres 0 --faults kill_target kill_broker"
    figures, problems = short(rf"{words} --order=log\ group")
    assert problems == []
    assert figures["faults"]["kill_broker"] >= 2 and figures["in_one_order"] > 1000


@pytest.mark.timeout(900)
def test_a_target_whose_mark_is_apart_from_its_data_is_found() -> None:
    words = (
        "--records 500 --kills 8 --rate 100 --sqlite 1 --postgres 0 --nodes 1 --faults kill_target --plant"
    )
    _, problems = short(words)
    assert any("more than once" in each for each in problems), problems


class Telling(Player):
    """A player that says it plays these partitions of two."""

    def __init__(self, directory: Path, *partitions: int) -> None:
        super().__init__("p", "127.0.0.1:1", {}, directory)
        self._partitions = partitions

    def _logs(self) -> list[dict[str, Any]]:
        return [{"partition": each, "is_playing": each in self._partitions} for each in range(2)]


def test_players_may_share_the_partitions_from_the_beginning(tmp_path: Path) -> None:
    def told(*each: tuple[int, ...]) -> bool:
        return player.all_are_played([Telling(tmp_path, *partitions) for partitions in each])

    assert told((0, 1), ()) and told((1,), (0,)) and told((0, 1), (1,))
    assert not told((), ()) and not told((1,), (1,)) and not told((0,), ())


def program(directory: Path, text: str, may_end: bool = False) -> Process:
    """That runs this."""
    (directory / "planted_program.py").write_text(text)
    made = Process("x", [], directory, may_end)
    made._words = [made._words[0], str(directory / "planted_program.py")]
    return made


@pytest.mark.parametrize(
    ("status", "may_end", "is_strange"), [(1, True, False), (1, False, True), (0, True, True)]
)
def test_a_process_that_ends_by_itself_is_started_again(
    tmp_path: Path, status: int, may_end: bool, is_strange: bool
) -> None:
    process = program(tmp_path, f"print('no broker'); raise SystemExit({status})", may_end)
    process.start()
    assert process._process is not None
    process._process.wait(30)
    process.look()
    assert process._process.pid and (bool(process.strange), process.ended) == (
        is_strange,
        [] if is_strange else ["no broker"],
    )
    process.kill9()


def test_a_killed_or_stopped_process_is_restored_once(tmp_path: Path) -> None:
    process = program(tmp_path, "import time; time.sleep(600)")
    process.go_on()
    process.end()
    assert not process.is_up and process.rss_bytes() == 0
    process.start()
    assert process._process is not None
    first = process._process.pid
    process.restart()
    assert process.is_up and process._process.pid == first
    process.stop()
    assert not process.is_up
    process.look()
    process.go_on()
    assert process.is_up and process.rss_bytes() > 0
    process.stop()
    process.kill9()
    process.look()
    assert not process.is_up
    process.restart()
    process.go_on()
    assert process.is_up and process.strange == []
    process.end()
    assert not process.is_up and len(process.strange) == 1, "it does not end cleanly, and that is told"


def test_players_understand_what_they_are_given(tmp_path: Path) -> None:
    stores = {"sqlite-0": "sqlite:///x", "postgres-0": "postgresql://x"}
    targets = targets_of(stores, Options("raw", tmp_path))
    players = players_of("b:1", "t", targets, Options("raw", tmp_path))
    beside = config.parse(group_config("t", targets, Options("raw", tmp_path)).read_text())
    assert (beside.order, beside.topic, set(beside.targets)) == ("log group", "t", set(stores))
    read = [config.parse((tmp_path / f"{each.name}.toml").read_text()) for each in players]
    assert len({each.player for each in read}) == len({each.listen for each in read}) == 2
    for each in read:
        assert {name: target.address for name, target in each.targets.items()} == {
            target.name: target.address for target in targets
        }
        assert each.settings.catchup.entries == BOUNDS["catchup"]["entries"]
        assert (each.transport, each.topic, each.claims.lease_ms) == ("raw", "t", 2000)
    assert tomllib.loads(player_processes.toml({"a": {"b": {"c-d": 'x"'}}})) == {"a": {"b": {"c-d": 'x"'}}}


def test_records_are_for_some_for_all_and_for_nobody() -> None:
    drawn = Drawn("p", "t", ["a", "b", "c"], "seed")
    made = [drawn.record() for _ in range(2000)]
    seen = {each["headers"][0][1].count(b",") if each["headers"][0][1] else None for each in made}
    assert seen == {None, 0, 1, 2}
    assert len({each["value"] for each in made} - {None}) > 1800 and any(
        each["value"] is None for each in made
    )
    assert all(0 <= int(each["key"]) < KEYS for each in made)
    again = Drawn("p", "t", ["a", "b", "c"], "seed")
    assert [again.record() for _ in range(50)] == made[:50]


def test_each_fault_comes_once_in_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("tests.campaigns.player_nemesis.time.monotonic", lambda: now)
    done: list[str] = []

    def fault(name: str) -> Callable[[Nemesis], bool]:
        def act(self: Nemesis) -> bool:
            done.append(name)
            return len(done) != 3  # there is nobody to do it to: it comes again

        act.__name__ = f"_{name}"
        return act

    for name in FAULTS:
        monkeypatch.setattr(Nemesis, f"_{name}", fault(name))
    brokers: Any = None
    nemesis = Nemesis(brokers, [], [], FAULTS, random.Random(3))
    while nemesis.rounds < 2:
        nemesis.act()
        now += 0.5
    assert nemesis.counts == dict.fromkeys(FAULTS, 2)
    assert done.pop(2) and sorted(done[:6]) == sorted(done[6:]) == sorted(FAULTS)


def test_only_a_sound_run_of_this_source_that_is_as_large_is_on_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = player.arguments(["--records", "100", "--kills", "5"])
    digest = evidence.source_digest(packages=evidence.WITH_PLAYER)
    assert digest != evidence.source_digest()
    run = {"source": digest, "nodes": 3, "sqlite": 4, "postgres": 4, "transport": "grpc", "problems": []}
    run |= {"records": 100, "kills": 5, "faults": dict.fromkeys(FAULTS, 5)}
    runs: list[dict[str, Any]] = []
    monkeypatch.setattr(evidence, "load_runs", lambda _: runs)
    for change in (
        {"source": "x"},
        {"nodes": 1},
        {"postgres": 3},
        {"transport": "raw"},
        {"problems": ["x"]},
        {"records": 99},
        {"kills": 4},
        {"faults": {**dict.fromkeys(FAULTS, 5), "kill_broker": 4}},
    ):
        runs[:] = [{**run, **change}]
        assert not player.on_record(options)
    runs[:] = [run]
    assert player.on_record(options)
