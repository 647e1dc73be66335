"""The one command: what is wrong with the machine is told, and what no command can do is refused."""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from bench import __main__ as command
from bench import argument_types
from bench.exit_status import SIGNALS, not_now
from tests.support.cases import each_case


def test_problems_of_the_machine_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(words: list[str]) -> NoReturn:
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr(command, "command_of", lambda word: full)
    assert command.main(["micro"]) == 1
    assert "FAILED: [Errno 28] No space left on device: 'a.json'" in capsys.readouterr().err


@each_case(
    ("words", "said"),
    [
        ("headline --rounds 0", "argument --rounds: '0' is no number of 1 and up"),
        ("latency --seconds -1", "argument --seconds: '-1' is no number above 0"),
        ("nodes3 --heap lots", "argument --heap: 'lots' is no size"),
        ("quick --directory /nowhere/x", "argument --directory: there is no directory /nowhere/x"),
        ("profile --out /proc/nope", "argument --out: /proc/nope cannot be made"),
        ("micro --directory /nowhere/x", "there is no directory"),
        ("logstore --seconds 0", "no number above 0"),
        ("spark --rounds 0", "no number of 1 and up"),
        ("latency --require n3.produce.flush>=1", "ratios: produce.flush, produce.cross"),
        ("growth --repeats 0", "no number of 1 and up"),
        ("full --only nothing", "--only nothing: no such workload; see --list"),
        ("full --nodes 7", "argument --nodes: invalid choice: 7"),
        ("full --workloads /nowhere/x", "there is no directory"),
        ("nothing", "'full'"),
        ("--quick full", "'full' comes first"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_before_anything_is_measured(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_unwinds_and_a_second_one_does_not_cut_that_short(
    number: signal.Signals,
    handlers: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    unwound: list[str] = []

    def tool(words: list[str]) -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        finally:
            for each in SIGNALS:
                os.kill(os.getpid(), each)
            time.sleep(0.01)
            unwound.append("yes")
        return 0

    def not_handled(*_: object) -> None:
        unwound.append("no")

    monkeypatch.setattr(command, "command_of", lambda word: tool)
    for each in SIGNALS:
        signal.signal(each, not_handled)
    with pytest.raises(SystemExit) as ended_with:
        command.main(["baselines"])
    assert unwound == ["yes"] and ended_with.value.code == 128 + number
    assert f"ended by {number.name}: what was under way is not kept" in capsys.readouterr().err
    assert {signal.getsignal(each) for each in SIGNALS} == {not_handled}, "as before"


def test_what_was_ignored_stays_ignored(handlers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def tool(words: list[str]) -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.01)
        return 7

    monkeypatch.setattr(command, "command_of", lambda word: tool)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert command.main(["baselines"]) == 7


def test_a_signal_waits_until_a_session_has_tidied_up(handlers: None) -> None:
    told: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append("told"))
    with not_now():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        assert told == []
    assert told == ["told"]


@each_case(
    ("type_", "good", "bad"),
    [
        (argument_types.limit, ["0", "40"], ["-1", "two"]),
        (argument_types.count, ["1", "40"], ["0", "-1", "two", "1.5", ""]),
        (argument_types.positive, ["0.5", "3"], ["0", "-1", "nan", "inf", "long"]),
        (argument_types.heap, ["512M", "1g"], ["lots", "512", "0M", "-1G"]),
    ],
)
def test_numbers(type_: Callable[[str], object], good: list[str], bad: list[str]) -> None:
    for text in good:
        assert str(type_(text)) in (text, f"{text}.0")
    for text in bad:
        with pytest.raises(argparse.ArgumentTypeError):
            type_(text)


def test_directories(tmp_path: Path) -> None:
    assert (
        argument_types.existing_directory(str(tmp_path)) == argument_types.results(str(tmp_path)) == tmp_path
    )
    new = tmp_path / "a" / "b"
    assert argument_types.results(str(new)) == new
    assert list(tmp_path.iterdir()) == [], "it is made when there is a result"
    with pytest.raises(argparse.ArgumentTypeError, match="there is no directory"):
        argument_types.existing_directory(str(new))
    with pytest.raises(argparse.ArgumentTypeError, match="cannot be written to"):
        argument_types.existing_directory("/proc/self")
    file = tmp_path / "file"
    file.write_text("")
    for wrong in (file, file / "below", Path("/proc/nope")):
        with pytest.raises(argparse.ArgumentTypeError, match=r"no directory|cannot be made"):
            argument_types.results(str(wrong))


def test_the_words_again_are_those_that_were_given() -> None:
    options = argparse.Namespace(quick=True, flame=False, rounds=2, seconds=None, policy=["os"], nodes=(1, 3))
    names = ("quick", "flame", "rounds", "seconds", "policy", "nodes", "heap")
    found = argument_types.words(options, names)
    assert found == ["--quick", "--rounds", "2", "--policy", "os", "--nodes", "1", "--nodes", "3"]


def test_rounds_and_trees(tmp_path: Path) -> None:
    assert argument_types.rounds("1000") == 1000
    assert argument_types.tree(str(Path(__file__).parents[2]))
    refused: list[tuple[Callable[[str], object], str]] = [
        (argument_types.rounds, "1001"),
        (argument_types.rounds, "0"),
        (argument_types.tree, str(tmp_path)),
        (argument_types.tree, str(tmp_path / "nowhere")),
        (argument_types.existing_directory, ""),
        (argument_types.results, ""),
    ]
    for type_, text in refused:
        with pytest.raises(argparse.ArgumentTypeError):
            type_(text)
