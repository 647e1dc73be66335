"""The judge of the player's campaign: what is right is passed, and each planted fault is seen and named."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

from tests.campaigns.player_judge import Contents, Record, judge, order_differences, record_of, wanted
from tests.support.cases import each_case

TARGETS = ("a", "b", "c")


def records(count: int = 300) -> list[Record]:
    rng = random.Random(7)
    made = []
    for number in range(count):
        names = rng.sample(TARGETS, rng.choice((0, 1, 1, 2, 3)))
        value = None if rng.random() < 0.1 else b"v%d" % number
        made.append(Record(number % 2, 3 * (number // 2), b"k%d" % rng.randrange(20), value, names))
    return made


def problems(change: Callable[[dict[str, Contents]], object]) -> list[str]:
    right, count = wanted(records(), TARGETS)
    assert count == 300
    found = copy.deepcopy(right)
    change(found)
    return [each for name in TARGETS for each in judge(name, right[name], found[name])]


def twice(found: dict[str, Contents]) -> None:
    applied = found["b"].applied[1]
    applied.insert(8, applied[7])


def missing(found: dict[str, Contents]) -> None:
    del found["b"].applied[1][7]


def missing_at_the_end(found: dict[str, Contents]) -> None:
    del found["b"].applied[1][-1]


def order_changed(found: dict[str, Contents]) -> None:
    applied = found["b"].applied[1]
    applied[7], applied[8] = applied[8], applied[7]


def wrong_target(found: dict[str, Contents]) -> None:
    strangers = [each for each in found["a"].applied[1] if each not in found["b"].applied[1]]
    found["b"].applied[1].append(strangers[0])
    found["b"].applied[1].sort()


def wrong_partition(found: dict[str, Contents]) -> None:
    found["b"].applied[7].append((0, b"k"))


def another_key(found: dict[str, Contents]) -> None:
    offset, _ = found["b"].applied[1][7]
    found["b"].applied[1][7] = offset, None


def nothing_at_all(found: dict[str, Contents]) -> None:
    found["b"] = Contents()


def an_old_value(found: dict[str, Contents]) -> None:
    found["b"].values[min(found["b"].values)] = b"old"


def a_value_that_was_removed(found: dict[str, Contents]) -> None:
    found["b"].values[b"gone"] = b"old"


def a_value_less(found: dict[str, Contents]) -> None:
    del found["b"].values[min(found["b"].values)]


def another_log(found: dict[str, Contents]) -> None:
    found["b"].logs = {"cluster/one/1", "cluster/two/1"}


def test_what_is_right_is_passed() -> None:
    assert problems(lambda found: None) == []
    assert problems(lambda found: found["b"].logs.update({"cluster/one/0", "cluster/one/1"})) == []


@each_case(
    ("plant", "said"),
    [
        (twice, ["b, partition 1: 1 more than once"]),
        (missing, ["b, partition 1: 1 missing"]),
        (missing_at_the_end, ["b, partition 1: 1 missing"]),
        (order_changed, ["b, partition 1: in another order"]),
        (wrong_target, ["b, partition 1: 1 not for it"]),
        (wrong_partition, ["b, partition 7: 1 not for it"]),
        (another_key, ["b, partition 1: 1 missing", "b, partition 1: 1 not for it"]),
        (an_old_value, ["b: 1 keys have another value"]),
        (a_value_that_was_removed, ["b: 1 keys have another value"]),
        (a_value_less, ["b: 1 keys have another value"]),
        (another_log, ["b: two logs of one partition"]),
    ],
)
def test_each_planted_fault_is_seen(plant: Callable[[dict[str, Contents]], object], said: list[str]) -> None:
    found = problems(plant)
    assert len(found) == len(said), found
    assert all(text.startswith(start) for text, start in zip(found, said, strict=True)), found


def test_a_target_that_has_nothing_is_seen() -> None:
    assert len(problems(nothing_at_all)) == 3


def test_what_a_target_is_to_have() -> None:
    right, count = wanted(
        [
            Record(0, 0, b"x", b"1", ["a", "b"]),
            Record(1, 0, b"y", b"1", []),
            Record(0, 4, b"x", None, ["a"]),
            Record(0, 5, None, b"2", ["b"]),
        ],
        TARGETS,
    )
    assert count == 4
    assert right["a"] == Contents({0: [(0, b"x"), (4, b"x")]}, {})
    assert right["b"] == Contents({0: [(0, b"x"), (5, None)]}, {b"x": b"1"})
    assert (right["b"].count(), right["c"].count()) == (2, 0)


class Message:
    """As confluent-kafka returns it."""

    def __init__(self, headers: list[tuple[str, bytes | None]] | None) -> None:
        self._headers = headers

    def __getattr__(self, name: str) -> Any:
        return lambda: {"partition": 1, "offset": 2, "key": b"k", "value": b"v"}[name]

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


def test_the_targets_of_a_record() -> None:
    assert record_of(Message([("lockstep-targets", b"b, a"), ("other", b"c")])) == (
        1,
        2,
        b"k",
        b"v",
        ["a", "b"],
    )
    nobody: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [],
        [("lockstep-targets", b"")],
        [("lockstep-targets", None)],
    ]
    for headers in nobody:
        assert record_of(Message(headers)).targets == []


def test_one_order_of_all_partitions() -> None:
    one, other = Contents(), Contents()
    one.sequence = [(0, 0), (1, 0), (0, 1), (1, 1)]
    other.sequence = [(1, 0), (0, 1), (0, 7), (1, 1)]
    assert list(order_differences({"a": one, "b": other})) == [], "what one alone has is its own"
    other.sequence = [(0, 1), (1, 0), (0, 7), (1, 1)]
    (told,) = order_differences({"a": one, "b": other})
    assert told.startswith("a and b disagree on the order of 3 records, from [(1, 0), (0, 1), (1, 1)]")
    other.sequence = [*one.sequence, (1, 1)]
    (told,) = order_differences({"a": one, "b": other})
    assert "from [] (partition, offset) and [(1, 1)] on" in told
