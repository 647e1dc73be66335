"""How a benchmark ends: signals unwind it, once, and wait for what must not be cut."""

from __future__ import annotations

import os
import signal
import time

import pytest

from bench import __main__ as command
from bench.exit_status import SIGNALS, not_now


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
