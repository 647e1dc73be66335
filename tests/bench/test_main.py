"""The one command: what is wrong with the machine is told, and what no command can do is refused."""

from __future__ import annotations

from typing import NoReturn

import pytest

from bench import __main__ as command


def test_what_is_wrong_with_the_machine_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(words: list[str]) -> NoReturn:
        raise OSError(28, "No space left on device", "a.json")

    monkeypatch.setattr(command, "command_of", lambda word: full)
    assert command.main(["micro"]) == 1
    assert "FAILED: [Errno 28] No space left on device: 'a.json'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("headline --rounds 0", "argument --rounds: '0' is no number of 1 and up"),
        ("latency --seconds -1", "argument --seconds: '-1' is no number above 0"),
        ("nodes3 --heap lots", "argument --heap: 'lots' is no size"),
        ("quick --directory /nowhere/x", "argument --directory: there is no directory /nowhere/x"),
        ("profile --split --out /proc/nope", "argument --out: /proc/nope cannot be made"),
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
