"""The judge of conditional appends: legal and illegal histories by hand, a short cut, planted mistakes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests import go_driver
from compat_tests.kafka_jars import ToolchainMissing, skip_or_fail
from tests.campaigns import conditional_history, evidence, linearizable
from tests.campaigns.conditional_rounds import Options, Outcome, run_round
from tests.campaigns.linearizable import control

Document = dict[str, Any]


@pytest.fixture(autouse=True)
def go() -> Iterator[None]:
    try:
        conditional_history.program()
    except ToolchainMissing as missing:
        skip_or_fail(str(missing))
    yield


def record(hwm: int = -1, **conditions: Any) -> Document:
    return {"hwm": hwm, **conditions}


W: Document = {"write": ["l"]}
R: Document = {"read": ["l"]}
A: Document = {"append": ["l"]}


def stored(offset: int, *records: Document, partition: int = 0) -> Document:
    return {"partition": partition, "records": list(records), "stored": offset}


def refused(*records: Document, **said: Any) -> Document:
    line = {"error": 44, "reason": "LOCK", "record": 0, "partition": 0, "exact": True, **said}
    return {"partition": 0, "records": list(records), "refused": line}


def held(conflict: int, *records: Document, hwm: int = -1, mode: str = "W", **said: Any) -> Document:
    return refused(*records, lock="l", mode=mode, hwm=hwm, conflict_offset=conflict, **said)


def ahead(hwm: int, stable: int) -> Document:
    said = {"error": 87, "reason": "AHEAD", "exact": False, "hwm": hwm, "last_stable_offset": stable}
    return refused(record(hwm, **W), **said)


def unexpected(expected: int, error: int, **said: Any) -> Document:
    said = {"reason": "EXPECTED_OFFSET", "error": error, "exact": error == 44, "expected": expected, **said}
    return refused(record(expected=expected), **said)


def read(seen: int, partition: int = 0) -> Document:
    return {"partition": partition, "seen": seen}


def elsewhere(partition: int, hwm: int = -1) -> Document:
    return {"elsewhere": {"partition": partition, "hwm": hwm, "read": "l"}}


def at(call: int, end: int | None, operation: Document) -> Document:
    return {"call": call, "return": end, **operation}


def in_turn(*operations: Document) -> list[Document]:
    return [at(10 * turn, 10 * turn + 5, each) for turn, each in enumerate(operations)]


def judged(directory: Path, operations: list[Document]) -> Document:
    path = directory / "history.json"
    numbered = [{"client": number, **each} for number, each in enumerate(operations)]
    path.write_text(json.dumps({"operations": numbered}))
    return conditional_history.judge(path)


PLAIN, HELD = record(), stored(0, record(**W))
SKEW = [
    at(0, 9, stored(0, record(**W, **elsewhere(1)), partition=0)),
    at(1, 9, stored(0, record(**W, **elsewhere(0)), partition=1)),
]
LEGAL: dict[str, list[Document]] = {
    "read on and asked again": in_turn(HELD, held(0, record(**W)), read(1), stored(1, record(0, **W))),
    "appends meet no condition": in_turn(stored(0, record(**A)), stored(1, record(**A)), stored(2, PLAIN)),
    "an append is a raise": in_turn(stored(0, record(**A)), held(0, record(**R), mode="R")),
    "a read raises nothing": in_turn(stored(0, record(**R)), stored(1, record(**W))),
    "offsets tell the order": [at(0, 9, stored(1, record(0, **W))), at(1, 8, HELD)],
    "an answer that nobody heard": [at(0, None, HELD), at(1, 2, held(0, record(**W)))],
    "a mark is a batch's last offset": in_turn(
        stored(0, record(**W), PLAIN), held(1, record(0, **W), hwm=0), stored(2, record(1, **W))
    ),
    "records of one request": in_turn(stored(0, record(**W, request="c"), record(**W, request="c"))),
    "records of two requests": in_turn(
        stored(0, PLAIN), held(0, record(**W, request="c"), record(**W, request="d"), record=1)
    ),
    "a batch conflicts with itself": in_turn(held(-1, record(**W), record(**W), record=1)),
    "expected offsets": in_turn(
        stored(0, PLAIN, PLAIN),
        unexpected(1, 44, conflict_offset=1),
        unexpected(3, 87),
        stored(2, record(expected=2), record(expected=3)),
    ),
    "too far ahead": in_turn(HELD, ahead(1, 1), ahead(5, 1)),
    "not committed yet": [at(0, 9, HELD), at(1, 2, ahead(0, 0)), at(3, 9, stored(1, record(0, **W)))],
    "elsewhere": in_turn(
        stored(0, record(**W), partition=1),
        held(0, record(**elsewhere(1)), mode="R", partition=1),
        stored(0, record(**elsewhere(1, hwm=0))),
    ),
}
ILLEGAL: dict[str, list[Document]] = {
    "a stale write": in_turn(HELD, stored(1, record(**W))),
    "a stale read lock": in_turn(HELD, stored(1, record(**R))),
    "a stale read lock elsewhere": in_turn(HELD, stored(0, record(**elsewhere(0)), partition=1)),
    "a stale write among appends": in_turn(stored(0, record(**A)), stored(1, record(**W))),
    "the first offset for a mark": in_turn(stored(0, record(**W), PLAIN), stored(2, record(0, **W))),
    "write skew": SKEW,
    "the second record's lock": in_turn(HELD, stored(1, PLAIN, record(**W))),
    "a conflict within a batch": in_turn(stored(0, record(**W), record(**W))),
    "nobody had it": in_turn(stored(0, PLAIN), held(0, record(**W))),
    "refused who had read on": in_turn(HELD, held(0, record(0, **W), hwm=0)),
    "a wrong conflict": in_turn(HELD, stored(1, PLAIN), held(1, record(**W))),
    "refused before the raise": in_turn(held(0, record(**W)), HELD),
    "a refused batch raises": in_turn(
        stored(0, PLAIN), held(0, record(**W), record(**W), record=1), held(0, record(**W))
    ),
    "another record is to be refused": in_turn(HELD, held(0, record(**W), record(**W), record=1)),
    "refused for what was not asked": in_turn(HELD, held(0, record(**W), mode="R")),
    "refused for ever": in_turn(HELD, held(0, record(**W), error=87)),
    "an unknown reason": in_turn(HELD, refused(record(**W), reason="LOCKS_OFF", error=87)),
    "an estimate too low": in_turn(stored(0, PLAIN, record(**W)), held(0, record(**W), exact=False)),
    "an estimate beyond the end": in_turn(HELD, held(1, record(**W), exact=False)),
    "a gap": in_turn(HELD, stored(2, PLAIN)),
    "one offset twice": [at(0, 9, HELD), at(0, 9, stored(0, PLAIN))],
    "against the time": in_turn(stored(1, PLAIN), stored(0, PLAIN)),
    "read beyond the end": in_turn(HELD, read(2)),
    "ahead and taken": in_turn(HELD, stored(1, record(1, **W))),
    "ahead of what was read": in_turn(HELD, read(1), ahead(0, 0)),
    "ahead of what was acknowledged": in_turn(HELD, ahead(0, 0)),
    "ahead, and is not": in_turn(HELD, ahead(0, 1)),
    "ahead of more than there is": in_turn(HELD, ahead(3, 2)),
    "not at its offset": in_turn(stored(0, record(expected=1))),
    "expected, and refused": in_turn(HELD, unexpected(1, 44, conflict_offset=0)),
    "expected less, and refused for ever": in_turn(HELD, unexpected(0, 87)),
    "expected more, and refused for now": in_turn(HELD, unexpected(2, 44, conflict_offset=0)),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_history(name: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, LEGAL[name])
    assert verdict["result"] == "Ok", verdict
    assert verdict["estimates"] == 0 and verdict["operations"] == len(LEGAL[name])


@pytest.mark.parametrize("name", ILLEGAL)
def test_an_illegal_history(name: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, ILLEGAL[name])
    assert verdict["result"] == "Illegal"
    assert verdict["stuck"] and (tmp_path / "history.html").exists()


def test_partitions_are_judged_apart_but_where_a_lock_connects_them(tmp_path: Path) -> None:
    alone = in_turn(HELD, stored(0, PLAIN, partition=1), stored(0, PLAIN, partition=2))
    assert judged(tmp_path, alone)["parts"] == 3
    connected = [*alone, at(90, 95, stored(1, record(**elsewhere(2)), partition=0))]
    assert judged(tmp_path, connected)["parts"] == 2


def test_estimates_are_allowed_and_counted(tmp_path: Path) -> None:
    verdict = judged(tmp_path, in_turn(HELD, stored(1, PLAIN), held(1, record(**W), exact=False)))
    assert (verdict["result"], verdict["estimates"]) == ("Ok", 1)


@pytest.mark.parametrize(
    "operation",
    [
        {"records": [PLAIN]},
        {"seen": 1, "stored": 0, "records": [PLAIN]},
        {"seen": 1, "records": [PLAIN]},
        read(1, partition=4),
        stored(0, record(**elsewhere(9))),
        held(0, record(**W), record=1),
        stored(0, record(write=[str(number) for number in range(17)])),
    ],
)
def test_what_is_no_history_is_not_judged(tmp_path: Path, operation: Document) -> None:
    with pytest.raises(ValueError, match=r"history\.json: "):
        judged(tmp_path, in_turn(operation))


def test_the_judge_is_formatted_and_vetted() -> None:
    assert go_driver.complaints(Path(linearizable.__file__).parent / "porcupine") == ""


# --- with brokers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "histories", "operations"), [(1, 2, 400), (3, 2, 600)])
def test_a_short_cut(nodes: int, histories: int, operations: int) -> None:
    seed = random.SystemRandom().randrange(1 << 31)
    words = f"--histories {histories} --operations {operations} --nodes {nodes} --seed {seed}"
    print(f"repeat with: python -m tests.campaigns.linearizable {words} --lanes 1")
    outcome = run_round(Options(histories, operations, seed, nodes, lanes=1))
    assert outcome.problems == []
    assert outcome.verdicts == {"Ok": histories} and outcome.operations >= histories * operations
    assert outcome.kills + outcome.transfers >= 1
    assert min(outcome.counts["stored"], outcome.counts["refused LOCK"]) > histories * operations / 10
    assert outcome.estimates == 0, "so few locks are all known exactly"


@pytest.mark.parametrize("plant", ["a-restart-forgets", "locks-elsewhere-are-not-checked"])
def test_a_planted_mistake_is_found(plant: str) -> None:
    assert control(plant, seed=1)["illegal"] == 1


def test_a_history_with_any_fault_is_not_one_without() -> None:
    kinds = [(1, 0, 0), (0, 2, 0), (0, 0, 1)]
    figures = Outcome(faults=[*kinds, (3, 0, 1), (0, 0, 0), (0, 0, 0)]).figures()
    assert (figures["histories_with_a_kill"], figures["histories_without_a_fault"]) == (2, 2)


def test_resuming_counts_what_is_recorded_for_this_source(monkeypatch: pytest.MonkeyPatch) -> None:
    source = evidence.source_digest()
    size = {"operations_of_a_history": 1000, "nodes": 3}
    runs = [
        {"source": source, **size, "verdicts": {"Ok": 7, "Illegal": 1}},
        {"source": source, **size, "verdicts": {"Ok": 5}},
        {"source": source, **size, "nodes": 1, "verdicts": {"Ok": 100}},
        {"source": "another", **size, "verdicts": {"Ok": 100}},
        {"source": source, "operations_of_a_history": 300, "plants": {}},
    ]
    monkeypatch.setattr(evidence, "load_runs", lambda name: runs)
    assert linearizable._recorded(1000, 3) == 12
