"""Member ids: a node's number and which of its lives it is."""

from __future__ import annotations

from lockstep.storage.group_options import GroupOptions, fresh_incarnation, member_of, node_of
from tests.support.cases import each_case

A_DAY_MS = 86_400_000
IN_2026_MS = 1_790_000_000_000


@each_case("node_id", [0, 1, 7, (1 << 31) - 1])
@each_case("incarnation", [0, 1, fresh_incarnation(IN_2026_MS)])
def test_a_member_id_has_its_node(node_id: int, incarnation: int) -> None:
    assert node_of(member_of(node_id, incarnation)) == node_id


def test_a_first_life_has_the_node_s_own_number() -> None:
    assert member_of(5) == 5


def test_another_life_is_another_member() -> None:
    lives = {member_of(node, life) for node in (1, 2, 3) for life in (0, 1, 2)}
    assert len(lives) == 9


def test_nobody_stays_nobody() -> None:
    assert node_of(-1) == -1


def test_a_later_second_is_a_fresh_incarnation() -> None:
    first = fresh_incarnation(IN_2026_MS)
    assert fresh_incarnation(IN_2026_MS + 999) == first
    assert fresh_incarnation(IN_2026_MS + 1000) == first + 1
    in_2080 = fresh_incarnation(IN_2026_MS + 54 * 365 * A_DAY_MS)
    assert member_of(1, in_2080) < 1 << 63  # ids are signed on the wire


def test_a_clock_that_was_never_set_still_gives_a_new_life() -> None:
    """0 is the first life: coming back as that would break what it promised."""
    assert [fresh_incarnation(ms) for ms in (0, 1_577_836_800_000, -A_DAY_MS)] == [1, 1, 1]


def test_a_group_has_one_member_by_default() -> None:
    options = GroupOptions(3, 7)
    assert (options.voters, options.incarnation, options.salvage) == (None, 0, False)
    assert options.log is not GroupOptions(3, 7).log
