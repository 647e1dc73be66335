"""What a node with an empty directory is, by what the others tell."""

from __future__ import annotations

from dataclasses import replace

from lockstep.broker.node.first_start import FOUNDING_TIMEOUT_SECONDS, ClusterPart, explain, part_of
from lockstep.broker.peers.node_status import Status
from tests.support.cases import each_case

BLANK = Status()
FOUNDING = Status(joined=True, founding=True, has_unapplied=False)
OPENING = Status(joined=True, has_log=True, founding=False, has_unapplied=True)
"""So is one whose log has entries and no record of nodes yet."""
NEWCOMER = Status(joined=True, founding=False, has_unapplied=False)
"""A stranger that has got nothing of group 0 yet."""
OLDER = Status(joined=True)
"""Of a version that does not report whether it founds: it may be opening a log of any length."""
FOUNDERS = (1, 2, 3)
LONG = FOUNDING_TIMEOUT_SECONDS


def cluster(
    *registered: int, voters: tuple[int, ...] = FOUNDERS, applied: int = 9, leads: bool = False
) -> Status:
    led = {0: 7} if leads else {1: 7}
    return Status(True, True, "id", registered, voters, led, applied=applied, has_unapplied=False)


def test_founders_wait_for_each_other() -> None:
    assert part_of(1, FOUNDERS, {}, 0) is None
    assert part_of(1, FOUNDERS, {2: BLANK}, 0) is None
    assert part_of(1, FOUNDERS, {2: BLANK, 3: BLANK}, 0) is ClusterPart.FOUNDER
    assert part_of(1, FOUNDERS, {2: FOUNDING, 3: BLANK}, 0) is ClusterPart.FOUNDER, (
        "another was a little faster"
    )


def test_a_majority_goes_on_without_the_rest_after_a_while() -> None:
    assert part_of(1, FOUNDERS, {}, LONG) is None
    assert part_of(1, FOUNDERS, {2: BLANK}, LONG) is ClusterPart.FOUNDER
    assert part_of(1, (1, 2, 3, 4, 5), {2: BLANK, 9: BLANK}, LONG) is None, "strangers do not count"


def test_a_node_that_lost_its_disk_is_unknown() -> None:
    assert part_of(1, FOUNDERS, {2: cluster(1, 2, 3)}, 0) is ClusterPart.STRANGER
    assert part_of(1, FOUNDERS, {2: cluster(1, 2, 3), 3: BLANK}, LONG) is ClusterPart.STRANGER


def test_a_founder_that_is_late_is_one_all_the_same() -> None:
    assert part_of(1, FOUNDERS, {2: cluster(2, 3, leads=True)}, 0) is ClusterPart.FOUNDER
    assert part_of(1, FOUNDERS, {2: cluster(2, 3), 3: cluster(2, 3, leads=True)}, 0) is ClusterPart.FOUNDER
    assert part_of(1, FOUNDERS, {2: cluster(2, 3, applied=3), 3: cluster(1, 2, 3)}, 0) is ClusterPart.STRANGER


def test_a_late_founder_that_would_make_other_log_groups_is_a_stranger() -> None:
    there = replace(cluster(2, 3, leads=True), data_groups=3)
    assert part_of(1, FOUNDERS, {2: there}, 0, 3) is ClusterPart.FOUNDER
    assert part_of(1, FOUNDERS, {2: there}, 0, 6) is ClusterPart.STRANGER
    assert part_of(1, FOUNDERS, {2: replace(there, data_groups=0)}, 0, 6) is ClusterPart.FOUNDER, (
        "not recorded yet"
    )
    assert Status.decode(there.encode()) == there


def test_a_node_that_lost_its_disk_is_no_founder_by_an_outdated_report() -> None:
    """It may have registered with the third: both together committed what the second has not heard of."""
    assert part_of(1, FOUNDERS, {2: cluster(2)}, 0) is None
    assert part_of(1, FOUNDERS, {2: cluster(2)}, LONG) is None
    assert part_of(1, FOUNDERS, {2: cluster(2), 3: cluster(2)}, 0) is None, "they may elect one that knows"
    assert part_of(1, FOUNDERS, {2: cluster(2), 3: cluster(2)}, LONG) is ClusterPart.FOUNDER
    assert part_of(1, (1, 2), {2: cluster(2, voters=(1, 2))}, LONG) is ClusterPart.FOUNDER


def test_founders_without_a_controller_do_not_wait_for_ever() -> None:
    five = (1, 2, 3, 4, 5)
    heard = {2: cluster(2, voters=five), 3: cluster(2, voters=five)}
    assert part_of(1, five, heard, LONG) is None, "4 and 5 may have known it"
    assert part_of(1, five, {**heard, 4: BLANK}, LONG) is ClusterPart.FOUNDER


def test_the_newest_word_counts() -> None:
    assert (
        part_of(1, FOUNDERS, {2: cluster(1, applied=8), 3: cluster(2, applied=7)}, 0) is ClusterPart.STRANGER
    )


def test_an_unknown_node_logs_how_to_add_it() -> None:
    assert explain(1, ClusterPart.FOUNDER) == "node 1 is a founder of its cluster"
    assert explain(4, ClusterPart.STRANGER) == (
        "node 4 is not a founder of its cluster: if it is new or was removed, `lockstep cluster add 4` gives "
        "it its share; if it lost its disk, it gets it back by itself"
    )


def test_a_newcomer_is_a_stranger() -> None:
    assert part_of(4, (1, 2, 3, 4), {1: cluster(1, 2, 3)}, 0) is ClusterPart.STRANGER


def test_a_node_that_knows_of_others_does_not_vote_by_itself() -> None:
    assert part_of(1, (1, 2), {2: cluster(2, 3)}, 0) is ClusterPart.STRANGER


@each_case(
    ("second", "third", "at_once", "later"),
    [
        # all three are fresh, or took part a moment ago, or crashed in the middle of that
        (BLANK, BLANK, ClusterPart.FOUNDER, ClusterPart.FOUNDER),
        (FOUNDING, BLANK, ClusterPart.FOUNDER, ClusterPart.FOUNDER),
        (FOUNDING, FOUNDING, ClusterPart.FOUNDER, ClusterPart.FOUNDER),
        (BLANK, None, None, ClusterPart.FOUNDER),
        (FOUNDING, None, None, ClusterPart.FOUNDER),
        # this one is fresh, the others are opening their logs
        (OPENING, OPENING, None, None),
        (OPENING, None, None, None),
        # two are fresh, the third is opening its log
        (BLANK, OPENING, None, None),
        (FOUNDING, OPENING, None, None),
        # a node that lost its disk earlier, and has got nothing from the cluster yet
        (NEWCOMER, OPENING, None, None),
        (NEWCOMER, BLANK, None, None),
        (NEWCOMER, FOUNDING, None, None),
        (NEWCOMER, None, None, None),
        # the others run an older version
        (OLDER, OLDER, None, None),
        (OLDER, BLANK, None, None),
        (OLDER, FOUNDING, None, None),
        (OLDER, None, None, None),
        # a cluster is recorded with this node
        (cluster(1, 2, 3), OPENING, ClusterPart.STRANGER, ClusterPart.STRANGER),
        # one is recorded without it: the third may know of its registration
        (cluster(2), OPENING, None, None),
        (cluster(2), OLDER, None, None),
        (cluster(2), None, None, None),
        (cluster(2), BLANK, None, ClusterPart.FOUNDER),
        (cluster(2), FOUNDING, None, ClusterPart.FOUNDER),
        (cluster(2), NEWCOMER, None, ClusterPart.FOUNDER),
        (cluster(2), replace(cluster(2, 3), has_unapplied=True), None, None),
        (replace(cluster(2), has_unapplied=True), BLANK, None, None),
        (replace(cluster(2), has_unapplied=None), BLANK, None, None),
        (cluster(2), cluster(2, 3), None, ClusterPart.FOUNDER),
        (cluster(2, leads=True), OPENING, ClusterPart.FOUNDER, ClusterPart.FOUNDER),
    ],
)
def test_the_decision_table(
    second: Status, third: Status | None, at_once: ClusterPart | None, later: ClusterPart | None
) -> None:
    """The part of node 1, by the statuses of nodes 2 and 3."""
    for one, other in ((2, 3), (3, 2)):
        statuses = {one: second} if third is None else {one: second, other: third}
        statuses = {node: Status.decode(each.encode()) for node, each in statuses.items()}
        assert part_of(1, FOUNDERS, statuses, 0) is at_once
        assert part_of(1, FOUNDERS, statuses, LONG) is later


@each_case("waited", [0, LONG])
def test_a_log_without_a_record_of_nodes_decides_nothing(waited: float) -> None:
    """Its node may have forgotten, or not heard, who is part of the cluster."""
    unknown = Status(joined=True, has_log=True)
    assert part_of(1, FOUNDERS, {2: unknown, 3: BLANK}, waited) is None


def test_one_that_is_not_among_the_founders_waits_for_them() -> None:
    assert part_of(4, FOUNDERS, {1: BLANK, 2: BLANK, 3: BLANK}, LONG) is None
