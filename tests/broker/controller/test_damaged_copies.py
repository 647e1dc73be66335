"""Which other nodes have, or may have, the records of a damaged range."""

from __future__ import annotations

import pytest

from lockstep.broker.controller.damaged_copies import copies_of
from lockstep.broker.maintenance.damage import MAX_REPORTED_RANGES, Document, remedy_text

REPLICAS = {1, 2, 3}


def damage(node: int, first: int, last: int, **others: object) -> Document:
    place = {"node": node, "group": 1, "segment": 4, "topic": "t", "partition": 0, "given_up": False}
    return {**place, "first_offset": first, "last_offset": last, **others}


@pytest.mark.parametrize(
    ("reports", "intact_on", "unknown_on"),
    [
        ({2: [], 3: []}, [2, 3], []),
        ({2: []}, [2], [3]),
        ({}, [], [2, 3]),
        ({2: [damage(2, 10, 19)], 3: []}, [3], []),
        ({2: [damage(2, 10, 19)]}, [], [3]),
        ({2: [damage(2, 10, 19)], 3: [damage(3, 0, 40)]}, [], []),
        ({2: [damage(2, 10, 19, given_up=True)], 3: [damage(3, 10, 19)]}, [], []),
        ({2: [damage(2, 10, 14), damage(2, 14, 19)], 3: [damage(3, 5, 30)]}, [], []),
        ({2: [damage(2, 10, 14)], 3: [damage(3, 15, 19)]}, [2, 3], []),  # both together have all
        ({2: [damage(2, 10, 15)], 3: [damage(3, 15, 19)]}, [], []),  # nobody has offset 15
        ({2: [damage(2, 10, 19, partition=1)], 3: [damage(3, 10, 19, group=2)]}, [2, 3], []),
        ({2: [damage(2, n, n) for n in range(100, 100 + MAX_REPORTED_RANGES)], 3: []}, [3], [2]),
    ],
)
def test_only_a_report_of_the_damage_shows_that_a_node_lacks_records(
    reports: dict[int, list[Document]], intact_on: list[int], unknown_on: list[int]
) -> None:
    assert copies_of(damage(1, 10, 19), REPLICAS, reports) == (intact_on, unknown_on)


@pytest.mark.parametrize(
    ("segment", "intact_on", "unknown_on", "text"),
    [
        (4, [1, 3], [], "node 2 fetches them from nodes 1, 3"),
        (4, [], [3], "the repair waits for node 3, which is not reached: start it first"),
        (4, [], [1, 3], "the repair waits for nodes 1, 3, which are not reached: start them first"),
        (
            4,
            [],
            [],
            "put the log file back from a copy, or `lockstep log skip-damage t-0` makes consumers skip them",
        ),
        (0, [1], [], "node 1 can have them: node 2 gets them back when it starts with an empty directory"),
        (0, [], [3], "node 3 may have them, and is not reached: start it first"),
        (0, [], [], "`lockstep log skip-damage t-0` makes consumers skip them"),
    ],
)
def test_records_are_given_up_only_where_no_node_can_have_them(
    segment: int, intact_on: list[int], unknown_on: list[int], text: str
) -> None:
    found = damage(2, 0, 5, segment=segment, intact_on=intact_on, unknown_on=unknown_on)
    assert remedy_text(found) == text


def test_a_damaged_file_without_damaged_records_can_only_be_put_back() -> None:
    found = damage(2, 0, 5, topic=None, intact_on=[], unknown_on=[])
    assert remedy_text(found) == "put the log file back from a copy"
