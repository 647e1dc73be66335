"""What a node with an empty directory is, by what the others tell."""

from __future__ import annotations

from dataclasses import replace

from lockstep.broker.node.first_start import FOUNDING_TIMEOUT_SECONDS, ClusterPart, explain, part_of
from lockstep.broker.peers.node_status import Status
from tests.support.cases import each_case

BLANK = Status()
JOINED = Status(joined=True)
FOUNDERS = (1, 2, 3)
LONG = FOUNDING_TIMEOUT_SECONDS


def cluster(
    *registered: int, voters: tuple[int, ...] = FOUNDERS, applied: int = 9, leads: bool = False
) -> Status:
    return Status(True, True, "id", registered, voters, {0: 7} if leads else {1: 7}, applied=applied)


def test_founders_wait_for_each_other() -> None:
    assert part_of(1, FOUNDERS, {}, 0) is None
    assert part_of(1, FOUNDERS, {2: BLANK}, 0) is None
    assert part_of(1, FOUNDERS, {2: BLANK, 3: BLANK}, 0) is ClusterPart.FOUNDER
    assert part_of(1, FOUNDERS, {2: JOINED, 3: BLANK}, 0) is ClusterPart.FOUNDER, (
        "another was a little faster"
    )


def test_a_majority_goes_on_without_the_rest_after_a_while() -> None:
    assert part_of(1, FOUNDERS, {}, LONG) is None
    assert part_of(1, FOUNDERS, {2: BLANK}, LONG) is ClusterPart.FOUNDER
    assert part_of(1, (1, 2, 3, 4, 5), {2: BLANK, 9: BLANK}, LONG) is None, "strangers do not count"


def test_who_lost_its_disk_is_a_stranger() -> None:
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


def test_who_lost_its_disk_is_no_founder_by_the_word_of_one_that_is_behind() -> None:
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


def test_a_stranger_is_told_what_to_do() -> None:
    assert explain(1, ClusterPart.FOUNDER) == "node 1 is a founder of its cluster"
    assert explain(4, ClusterPart.STRANGER) == (
        "node 4 is not a founder of its cluster: if it is new or was removed, `lockstep cluster add 4` gives "
        "it its share; if it lost its disk, it gets it back by itself"
    )


def test_a_newcomer_is_a_stranger() -> None:
    assert part_of(4, (1, 2, 3, 4), {1: cluster(1, 2, 3)}, 0) is ClusterPart.STRANGER


def test_who_was_told_of_other_nodes_does_not_vote_by_itself() -> None:
    assert part_of(1, (1, 2), {2: cluster(2, 3)}, 0) is ClusterPart.STRANGER


@each_case("waited", [0, LONG])
def test_a_log_without_a_record_of_nodes_decides_nothing(waited: float) -> None:
    """Its node may have forgotten, or not heard, who is part of the cluster."""
    unknown = Status(joined=True, has_log=True)
    assert part_of(1, FOUNDERS, {2: unknown, 3: BLANK}, waited) is None


def test_one_that_is_not_among_the_founders_waits_for_them() -> None:
    assert part_of(4, FOUNDERS, {1: BLANK, 2: BLANK, 3: BLANK}, LONG) is None
