"""Steps that are kept: lines, promises, and steps of before."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench.growth.axes import AXES, BY_NAME, FULL
from bench.growth.command import main
from bench.growth.steps import collect_steps, fit, fits, path_of
from bench.page import growth_plots as plots
from bench.page.document import page
from tests.bench.outcomes import FACTS
from tests.support.cases import each_case


def test_what_is_promised_to_stay_flat_is_judged_and_drawn(tmp_path: Path) -> None:
    names = {fitted.figure for fitted in BY_NAME["log_gib"].fitted}
    promised = {fitted.unit for fitted in BY_NAME["log_gib"].fitted if fitted.stays_flat}
    figures = {value: dict.fromkeys(names, 2.0) | {"start_s": 0.5 * value} for value in (1, 2, 5, 10)}
    write_steps(tmp_path, "log_gib", figures)
    result = collect_steps(tmp_path)
    verdicts = {row[1]: row[-1] for row in fits(result)}
    starts = "kill -9 to the first acknowledgement, s"
    assert verdicts.pop(starts) == "MISSED"
    assert {unit for unit, verdict in verdicts.items() if verdict == "met"} == promised - {starts}
    plots.draw(result, tmp_path / "picture.svg")
    assert "</svg>" in (tmp_path / "picture.svg").read_text()
    text = page([result])
    assert "3 of 4 goals of earlier steps are met" in text, "promised with the others"
    for value in (5, 10):
        path_of(tmp_path, BY_NAME["log_gib"], value).unlink()
    few = fits(collect_steps(tmp_path))
    assert {row[-1] for row in few} == {"too few steps"} and len(few) == len(promised)
    assert "## How cost grows" in text and "0.5 at 1" in text and "5 at 10" in text


def test_steps_of_before_the_log_was_written_to_have_no_such_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = BY_NAME["log_gib"]
    whole = dict.fromkeys([fitted.figure for fitted in log.fitted], 2.0)
    written = {"cpu_s_per_million_records", "p99_ms", "loaded_rss_mb"}
    before = {name: value for name, value in whole.items() if name not in written}
    units = {fitted.unit for fitted in log.fitted if fitted.figure in written}
    assert len(units) == 3
    words = ["--list", "--axis", "log_gib", "--out", str(tmp_path)]

    write_steps(tmp_path, "log_gib", dict.fromkeys(log.values, before))
    result = collect_steps(tmp_path)
    assert not units & {row[1] for row in fits(result)} and len(fits(result)) == len(log.fitted) - 3
    plots.draw(result, tmp_path / "picture.svg")
    text = page([result])
    assert "Nothing was written to the logs of 1, 2, 5, 10, 20 GiB after their reads" in text
    assert main(words) == 0
    said = capsys.readouterr()
    assert "0 of 5 steps are there; remaining: log_gib 1, log_gib 2" in said.err, "they are measured again"
    assert "random read, cold" in said.out, "what they have is shown meanwhile"

    write_steps(tmp_path, "log_gib", dict.fromkeys((2, 5, 10), whole))
    shown = {row[1]: row[2:4] for row in fits(collect_steps(tmp_path))}
    assert all(shown[unit] == ["2 at 2", "2 at 10"] for unit in units)
    assert shown["resident MB"] == ["2 at 1", "2 at 20"]
    assert "to the logs of 1, 20 GiB after" in page([collect_steps(tmp_path)])
    assert main(words) == 0 and "3 of 5 steps are there" in capsys.readouterr().err

    write_steps(tmp_path, "log_gib", dict.fromkeys(log.values, whole))
    assert "Nothing was written" not in page([collect_steps(tmp_path)])


def test_what_falls_without_a_trend_does_not_grow(tmp_path: Path) -> None:
    names = {fitted.figure for fitted in BY_NAME["log_gib"].fitted}
    starts = {1: 5.0, 2: 1.0, 5: 5.0, 10: 1.0}
    figures = {value: dict.fromkeys(names, 2.0) | {"start_s": took} for value, took in starts.items()}
    write_steps(tmp_path, "log_gib", figures)
    (row,) = (row for row in fits(collect_steps(tmp_path)) if "first acknowledgement" in row[1])
    assert (row[5], row[-1]) == ("no trend", "met")


def test_every_axis_begins_at_one_and_goes_as_far_as_is_promised() -> None:
    ends = {axis.name: axis.values[-1] for axis in AXES}
    assert ends == {"partitions": 10_000, "connections": 2_000, "groups": 1_000, "log_gib": 20}
    assert all(axis.values[0] == 1 and len(axis.values) >= 3 for axis in AXES)


@each_case(
    ("power", "word"),
    [(0.0, "flat"), (0.5, "below linear"), (1.0, "linear"), (2.0, "above linear"), (-0.5, "falls")],
)
def test_a_slope_is_the_power_and_has_a_name(power: float, word: str) -> None:
    line = fit([(x, 3.0 * x**power) for x in (1.0, 10.0, 100.0, 1000.0)])
    assert line is not None
    assert line.slope == pytest.approx(power, abs=1e-9)
    assert (line.word, line.points) == (word, 4)
    assert line.r_squared == pytest.approx(1.0)


def test_two_points_or_nothings_make_no_line() -> None:
    assert fit([(1.0, 1.0), (10.0, 2.0)]) is None
    assert fit([(1.0, 0.0), (10.0, 0.0), (100.0, 3.0)]) is None
    too_small = [(1.0, 0.001), (10.0, 0.001), (100.0, 0.001), (1000.0, 0.0)]
    assert fit(too_small) is None, "a step that was too small to measure is not left out of the line"
    scattered = fit([(1.0, 1.0), (10.0, 5.0), (100.0, 2.0), (1000.0, 50.0)])
    assert scattered is not None and scattered.r_squared > 0.5 and scattered.word == "below linear"
    scattered = fit([(1.0, 1.0), (10.0, 50.0), (100.0, 1.0), (1000.0, 50.0)])
    assert scattered is not None and 0 < scattered.r_squared < 0.5 and scattered.word == "no trend"


def write_steps(directory: Path, axis: str, figures: dict[int, dict[str, float]]) -> None:
    for value, each in figures.items():
        step: dict[str, Any] = {
            **FACTS,
            "axis": axis,
            "value": value,
            "lengths": asdict(FULL),
            "figures": each,
            "started": f"2026-01-01T00:00:{value % 60:02}Z",
        }
        path_of(directory, BY_NAME[axis], value).write_text(json.dumps(step))
