"""The campaign of the bank, in short; and that it believes nothing that the bank does not show."""

from __future__ import annotations

import json

import pytest

from tests.campaigns.bank import judged, main


def test_the_short_cut(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--seconds", "8", "--every", "3", "--processes", "2", "--seed", "1", "--no-evidence"])
    done = json.loads(capsys.readouterr().out)
    assert (status, done["problems"]) == (0, [])
    assert done["kills"] >= 1 and done["transfers"] > 0 and done["before"] == done["after"] > 0


def test_what_is_wrong_is_seen() -> None:
    good = "one line\ntransfers=5 before=80 after=80\n"
    assert judged(0, good) == ({"transfers": 5, "before": 80, "after": 80}, [])
    for status, output in (
        (1, good),
        (0, good.replace("after=80", "after=79")),
        (0, good.replace("transfers=5", "transfers=0")),
        (0, good + "one more line"),
        (0, ""),
    ):
        assert judged(status, output)[1]
