"""The player's measurements: workload, what targets note, ratios, tables, pictures; runs against a broker."""

from __future__ import annotations

import json
from array import array
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench.figures.ratios import BASELINE, SUBJECT, compare
from bench.load.latency import quantiles
from bench.load.wire import WrongAnswer
from bench.page.document import page
from bench.player import tables
from bench.player.command import kind_of, main, notes
from bench.player.noted import Noted, WrongDelivery, delays, parts_wanted
from bench.player.points import (
    CLOSED,
    FULL,
    GRPC,
    LOOPS,
    OPEN,
    PLAIN,
    RAW,
    TRANSACTIONS,
    TWO_LEVEL,
    Point,
    block_name,
)
from bench.player.ratios import BOUND_MB, GOALS, RATIOS, SEED, ratio_name
from bench.player.sessions import (
    BACKLOGS,
    DELAYS,
    KAFKA,
    LOCKSTEP,
    ONE,
    PARTS,
    STALLED,
    SUSTAINED,
    plan_sessions,
)
from bench.player.stalled import MISSED_MEMORY, OTHERS_CALM, OTHERS_STALLED
from bench.player.workload import (
    HEAD_BYTES,
    KEY_VALUE_BYTES,
    NEVER,
    Shape,
    SplitByKey,
    head_of,
    split,
    target_names,
    transaction,
)
from bench.sessions.jobs import Block
from bench.settings import FLUSH
from protocol.records.record import Record

S = 1_000_000_000


# --- the workload -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("targets", "keys"), [(20, 1), (20, 10), (2, 10), (15, 10), (5, 5)])
def test_parts_are_the_whole_transaction_once_and_everybody_gets_equally_much(
    targets: int, keys: int
) -> None:
    shape, received = Shape(targets, keys), [0] * targets
    for number in range(targets * keys):
        whole = transaction(number, 7, keys)
        assert len(whole) == HEAD_BYTES + keys * KEY_VALUE_BYTES
        assert head_of(whole) == (number, 7, NEVER)
        parts = split(whole, targets, 9)
        assert sorted(parts) == sorted(shape.targets_of(number)) and len(parts) == min(keys, targets)
        assert all(head_of(part) == (number, 7, 9) for part in parts.values())
        bodies = [part[HEAD_BYTES:] for part in parts.values()]
        cut = [
            body[at : at + KEY_VALUE_BYTES] for body in bodies for at in range(0, len(body), KEY_VALUE_BYTES)
        ]
        assert b"".join(sorted(cut)) == whole[HEAD_BYTES:]
        for target, part in parts.items():
            received[target] += (len(part) - HEAD_BYTES) // KEY_VALUE_BYTES
    assert received == [keys * keys] * targets


def test_the_player_splits_by_name_and_tells_when_it_began() -> None:
    choice = SplitByKey(target_names(3))
    choice.dispatched_ns = 11
    parts = choice(Record(0, 0, None, transaction(1, 5, 2), []))
    assert list(parts) == ["target-2", "target-0"]
    assert head_of(parts["target-0"] or b"") == (1, 5, 11)


# --- what targets note --------------------------------------------------------------------------------------


def _noted(*numbers: int, dispatched_ns: int = 2 * S) -> Noted:
    noted = Noted()
    for number in numbers:
        part = split(transaction(number, (number + 1) * S, 1), 1, dispatched_ns)[0]
        noted.note(part, (number + 1) * S + 4_000_000)
    return noted


def test_delays_are_of_what_was_sent_in_the_window() -> None:
    found = delays([_noted(0, 1, 2), _noted(1)], 2 * S, 3 * S)
    assert (found["samples"], found["apply_mean_ms"], found["player_p99_ms"]) == (2, 4.0, 4.0)
    undispatched = delays([_noted(0, dispatched_ns=NEVER)], 0, 2 * S)
    assert "player_mean_ms" not in undispatched and undispatched["apply_p50_ms"] == 4.0
    with pytest.raises(WrongAnswer):
        delays([_noted(0)], 5 * S, 6 * S)


@pytest.mark.parametrize("numbers", [(0, 2), (0, 1, 1, 2), (1, 0, 2), (0, 1, 2, 3), ()])
def test_a_target_that_lost_doubled_or_reordered_something_is_found(numbers: tuple[int, ...]) -> None:
    _noted(0, 1, 2).check(0, Shape(1, 1), 3)
    with pytest.raises(WrongDelivery):
        _noted(*numbers).check(0, Shape(1, 1), 3)


def test_what_is_waited_for_is_what_is_checked() -> None:
    shape = Shape(20, 3)
    wanted = [parts_wanted(target, shape, 50) for target in range(20)]
    assert sum(wanted) == 150
    assert wanted[3] == sum(3 in split(transaction(number, 0, 3), 20, 0) for number in range(50))


# --- plans, ratios, tables ----------------------------------------------------------------------------------


def test_sessions_alternate_and_what_is_measured_once_is_in_the_first() -> None:
    plan = plan_sessions(frozenset(PARTS), 2)
    assert [each.kind for each in plan] == [LOCKSTEP, KAFKA, KAFKA, LOCKSTEP, ONE]
    assert [SUSTAINED in each.parts for each in plan] == [True, False, False, False, False]
    assert [each.first for each in plan if each.kind == KAFKA] == [True, False]
    assert [each.kind for each in plan_sessions(frozenset({BACKLOGS}), 2)] == [ONE]
    assert [each.kind for each in plan_sessions(frozenset({SUSTAINED}), 2)] == [LOCKSTEP]
    assert KAFKA in {each.kind for each in plan_sessions(frozenset({DELAYS}), 1)}


def test_every_point_of_the_seeds_figures_has_a_goal_at_equal_rates() -> None:
    assert {Point(each, 10) for each in (2, 5, 10, 20)} <= {*FULL.points}
    assert {Point(20, each) for each in (1, 10)} <= {*FULL.points}
    names = {goal.ratio for goal in GOALS}
    assert names <= RATIOS.keys() and len(names) == len(GOALS)
    assert {ratio_name(PLAIN, "p99", OPEN, point) for point in FULL.points} <= names
    of_one_node = {"throughput", "stalled.p99", "stalled.memory"}
    assert all(f".{OPEN}." in name or name in of_one_node for name in names)


def _block(name: str, apply_ms: float, player_ms: float | None = None, per_s: float = 8.0) -> Block:
    figures: dict[str, float] = {"per_s": per_s, "append_mean_ms": apply_ms / 2}
    for figure in ("mean", "p50", "p90", "p99"):
        figures[f"apply_{figure}_ms"] = apply_ms
        if player_ms is not None:
            figures[f"player_{figure}_ms"] = player_ms
    return {"name": name, "policy": FLUSH, "figures": figures, "proven": True}


def _result() -> dict[str, Any]:
    ours = [
        _block(block_name(system, loop, point), 2.0, 0.2 + point.targets / 100)
        for point in FULL.points
        for loop in LOOPS
        for system in (GRPC, RAW)
    ]
    ours += [
        _block("sustained_t2_r25", 2.0, 0.2, 25.0),
        _block("sustained_t2_r100", 2.0, 0.3, 100.0),
        _block("sustained_t2_r400", 2.0, 0.5, 400.0),
    ]
    kafkas = [
        _block(block_name(system, loop, point), apply_ms)
        for point in FULL.points
        for loop in LOOPS
        for system, apply_ms in ((PLAIN, 5.0), (TRANSACTIONS, 30.0))
    ]
    kafkas.append(_block(block_name(TWO_LEVEL, CLOSED, Point(20, 10)), 9000.0))
    rest: list[Block] = [
        {"name": "throughput", "figures": {"records": 10, "records_per_s": 60_000.0, "mb_per_s": 60.0}},
        {
            "name": "recovery100",
            "figures": {"missed": 100, "recovery_s": 0.1, "reconnect_s": 0.05, "entries_per_s": 1000.0},
        },
        *(
            {
                "name": f"dummies{every}",
                "figures": {"entries": 500, "dummies": 2, "read_again": again, "start_s": 0.1},
            }
            for every, again in ((0, 499), (10, 7))
        ),
    ]
    rest += [
        {
            "name": name,
            "figures": {"apply_mean_ms": 1.0, "apply_p50_ms": 1.0, "apply_p99_ms": p99, "per_s": 50.0},
        }
        for name, p99 in ((OTHERS_CALM, 2.0), (OTHERS_STALLED, 2.2))
    ]
    memory = {"missed": 1_000_000, "calm_mb": 60.0, "most_mb": 70.0, "grown_mb": 10.0}
    rest.append({"name": MISSED_MEMORY, "figures": memory})
    rest = [{**block, "policy": FLUSH, "proven": True} for block in rest]
    sessions = [
        {"side": side, "memory": {}, "blocks": blocks}
        for side, blocks in ((SUBJECT, ours), (BASELINE, kafkas), (SUBJECT, rest))
    ]
    return {
        "sessions": sessions,
        "axes": asdict(FULL),
        "comparison": compare(sessions, [], GOALS, RATIOS),
        "subject": LOCKSTEP,
        "baseline": KAFKA,
    }


def _facts() -> dict[str, Any]:
    machine = {"processor": "p", "cpus": 2, "memory_gb": 8, "kernel": "6", "disk": {"device": "d"}}
    machine |= {"file_system": "ext4", "python": "3", "java": "j", "kafka": "4"}
    return {"machine": machine, "code": {"dirty": False, "commit": "c" * 40}, "started": "now"}


def test_goals_are_judged_against_the_baseline_of_the_same_point() -> None:
    rows = {row["ratio"]: row for row in _result()["comparison"]}
    assert len(rows) == len(RATIOS)
    name = ratio_name(PLAIN, "mean", OPEN, Point(20, 10))
    assert (rows[name]["value"], rows[name]["met"]) == (pytest.approx(0.4), True)
    assert not rows[ratio_name(PLAIN, "p99", OPEN, Point(20, 10))]["met"]
    assert rows[ratio_name(TRANSACTIONS, "mean", OPEN, Point(10, 10))]["met"]
    assert "met" not in rows[ratio_name(PLAIN, "mean", CLOSED, Point(20, 10))]
    assert rows["throughput"]["value"] == pytest.approx(1.2) and rows["throughput"]["met"]
    assert rows["stalled.p99"]["value"] == pytest.approx(1.1) and rows["stalled.p99"]["met"]
    assert rows["stalled.memory"]["value"] == pytest.approx(10 / BOUND_MB) and rows["stalled.memory"]["met"]


def test_a_run_of_the_target_that_stands_still_has_a_section_of_its_own() -> None:
    assert (kind_of(frozenset(PARTS)), kind_of(frozenset({STALLED}))) == ("player", "player_stalled")
    result = _result()
    names = (OTHERS_CALM, OTHERS_STALLED, MISSED_MEMORY)
    whole = [each for each in result["sessions"][2]["blocks"] if each["name"] in names]
    sessions = [{**result["sessions"][2], "blocks": whole}]
    alone = result | _facts() | {"kind": "player_stalled", "command": "c", "sessions": sessions}
    text = page([alone | {"comparison": compare(sessions, [], GOALS, RATIOS)}])
    assert "a fourth target is stopped" in text and "from 60 MB to 70 MB at most" in text
    assert "1.10" in text and "met" in text


def test_an_open_loop_that_was_too_slow_is_told() -> None:
    result = _result()
    assert notes(result["sessions"], result["axes"]) == []
    (said,) = notes([{"blocks": [_block("transactions_open_t2_k10", 30.0, per_s=7.0)]}], result["axes"])
    assert said == "transactions_open_t2_k10: 7.0 transactions/s of 8"


def test_the_seeds_bounds_stand_beside_our_highest() -> None:
    result = _result()
    average = next(seen for seen in SEED if seen.figure == "9a")
    assert tables.seen_here(result, average, OPEN) == pytest.approx(0.4)
    assert tables.calm_rate(tables.sustained(result)[2]) == 100.0
    slow = [(25.0, {"player_mean_ms": 0.1, "per_s": 20.0})]
    assert tables.calm_rate(slow) == 0.0, "a rate that was not kept does not count"
    text = tables.summary(result)
    assert "11,260.00" in text and "9,000.00" in text and "60,000" in text
    assert "off" in text and "499" in text


def test_the_page_has_everything_that_was_measured() -> None:
    kept = {"kind": "player", "command": "python -m bench player", "notes": ["slow"], "failures": ["lost"]}
    text = page([{**_result(), **_facts(), **kept}])
    assert "two_level" in text and "- slow" in text and "- lost" in text
    assert "apply delay, average, 20 targets, 10 KB, open loop, to plain Kafka" in text


def test_a_picture_is_drawn_of_a_kept_result(tmp_path: Path) -> None:
    kept = tmp_path / "result.json"
    kept.write_text(json.dumps(_result()))
    assert main(["--plot", str(kept), "--picture", str(tmp_path / "p.svg")]) == 0
    assert "</svg>" in (tmp_path / "p.svg").read_text()
    kept.write_text(json.dumps({**_result(), "sessions": []}))
    assert main(["--plot", str(kept)]) == 0, "what was not measured is left out"


def test_quantiles_are_named_as_tables_want_them() -> None:
    assert {"mean_ms", "p50_ms", "p90_ms", "p99_ms"} <= quantiles(array("q", [1])).keys()
