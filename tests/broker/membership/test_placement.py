"""Groups are spread evenly over nodes, and a change of the nodes moves little."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.broker.membership.placement import Placement, initial, replicas_of, with_node, without_node

NODES = st.sets(st.integers(1, 50), min_size=1, max_size=9)


def spread(counts: Counter[int], nodes: set[int]) -> int:
    return max(counts[node] for node in nodes) - min(counts[node] for node in nodes)


def check(placement: Mapping[int, tuple[int, ...]], nodes: set[int], replicas: int = 3) -> None:
    data = {number: members for number, members in placement.items() if number}
    assert len(set(placement[0])) == len(placement[0]) == min(5, len(nodes))
    for members in data.values():
        assert len(set(members)) == len(members) == min(replicas, len(nodes))
    assert {node for members in placement.values() for node in members} <= nodes
    assert spread(Counter(node for members in data.values() for node in members), nodes) <= 1
    assert spread(Counter(members[0] for members in data.values()), nodes) <= 1


def moves(before: Placement, after: Placement) -> int:
    """How many logs are shipped to nodes that have not got them."""
    return sum(len(set(after[number]) - set(before[number])) for number in after if number)


def test_the_first_placement_goes_round() -> None:
    assert initial([3, 1, 2, 4, 6, 5], 6) == {
        0: (1, 2, 3, 4, 5),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 5),
        4: (4, 5, 6),
        5: (5, 6, 1),
        6: (6, 1, 2),
    }
    assert initial([1, 2, 3], 3) == {0: (1, 2, 3), 1: (1, 2, 3), 2: (2, 3, 1), 3: (3, 1, 2)}
    assert initial([7], 2) == {0: (7,), 1: (7,), 2: (7,)}


def test_groups_with_one_node_each_keep_one_as_nodes_join_and_leave() -> None:
    assert initial([1, 2], 4, replicas=1) == {0: (1, 2), 1: (1,), 2: (2,), 3: (1,), 4: (2,)}
    placement = with_node(initial([1, 2], 4, replicas=1), [1, 2], 3)
    check(placement, {1, 2, 3}, replicas=1)
    check(without_node(placement, [1, 2, 3], 1), {2, 3}, replicas=1)
    assert replicas_of(placement, 3) == 1
    assert replicas_of(initial([1, 2, 3], 3), 3) == replicas_of(initial([1, 2], 2), 2) == 3
    assert replicas_of(initial([7], 2), 1) == 3, "a node alone says nothing"
    assert replicas_of({0: (1, 2)}, 2) == 3


def test_a_cluster_has_a_node() -> None:
    with pytest.raises(ValueError, match="needs a node"):
        initial([], 1)
    with pytest.raises(ValueError, match="needs a node"):
        without_node({0: (1,), 1: (1,)}, [1], 1)


def test_a_fourth_node_takes_its_share_and_no_more() -> None:
    before = initial([1, 2, 3], 4)
    after = with_node(before, [1, 2, 3], 4)
    check(after, {1, 2, 3, 4})
    assert after[0] == (1, 2, 3, 4)
    assert moves(before, after) == 3


def test_a_node_that_goes_leaves_only_its_copies_to_others() -> None:
    before = initial([1, 2, 3, 4], 4)
    after = without_node(before, [1, 2, 3, 4], 1)
    check(after, {2, 3, 4})
    assert after[0] == (2, 3, 4)
    assert moves(before, after) == 3


def test_a_node_without_data_is_not_placed_first() -> None:
    assert without_node({1: (1, 2, 3)}, [1, 2, 3, 4], 1) == {1: (2, 3, 4)}


def test_a_sixth_node_takes_the_place_of_one_that_leaves_the_metadata() -> None:
    assert without_node({0: (1, 2, 3, 4, 5)}, [1, 2, 3, 4, 5, 6], 2) == {0: (1, 3, 4, 5, 6)}
    assert with_node({0: (1, 2, 3, 4, 5)}, [1, 2, 3, 4, 5], 6) == {0: (1, 2, 3, 4, 5)}


def test_a_group_with_too_many_gives_some_up() -> None:
    assert with_node({1: (1, 2, 3, 4)}, [1, 2, 3], 4) == {1: (1, 2, 3)}


def test_leadership_goes_on_through_a_chain_of_groups() -> None:
    """1 leads two more than 4, with which it shares nothing: 1 hands to 2, 2 to 4."""
    before = {1: (1, 2, 3), 2: (1, 2, 3), 3: (2, 4, 5), 4: (3, 4, 5), 5: (5, 6, 4), 6: (6, 1, 5)}
    after = with_node(before, [1, 2, 3, 4, 5], 6)
    assert spread(Counter(members[0] for members in after.values()), {1, 2, 3, 4, 5, 6}) <= 1
    assert moves({**before}, after) <= 2


@settings(deadline=None)
@given(NODES, st.integers(0, 20))
def test_what_is_placed_first_is_even(nodes: set[int], data_groups: int) -> None:
    placement = initial(nodes, data_groups)
    assert set(placement) == set(range(data_groups + 1))
    check(placement, nodes)


@settings(deadline=None)
@given(NODES, st.integers(0, 20), st.lists(st.integers(1, 50), max_size=12))
def test_it_stays_balanced_as_nodes_join_and_leave(
    nodes: set[int], data_groups: int, turns: list[int]
) -> None:
    placement = initial(nodes, data_groups)
    for node in turns:
        before, had = placement, set(nodes)
        if node not in nodes:
            placement = with_node(placement, nodes, node)
            nodes = nodes | {node}
            share = min(3, len(nodes)) * data_groups // len(nodes)
            assert moves(before, placement) <= share + (len(had) < 3) * data_groups
        elif len(nodes) > 1:
            placement = without_node(placement, nodes, node)
            nodes = nodes - {node}
            held = sum(node in members for number, members in before.items() if number)
            assert moves(before, placement) <= held + 1  # who could take the last one may be there
        check(placement, nodes)


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(1, 12), st.lists(st.integers(1, 9), unique=True, max_size=6).map(tuple)),
    st.sets(st.integers(1, 9), min_size=1),
    st.integers(1, 9),
)
def test_it_becomes_even_from_anything(groups: Placement, nodes: set[int], new: int) -> None:
    before = {0: (), **groups}
    check(with_node(before, nodes, new), nodes | {new}, replicas_of(before, len(nodes)))
