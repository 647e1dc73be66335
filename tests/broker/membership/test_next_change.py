"""What is asked of a group in each situation, and what never is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence, Set

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.broker.membership.group_view import DesiredMembers, GroupView
from lockstep.broker.membership.next_change import (
    ChangeMembers,
    Transfer,
    healthier_leader,
    next_step,
    preferred_leader,
    printable_member,
)
from lockstep.storage.group_options import member_of, node_of
from tests.support.cases import each_case

NEW_3 = member_of(3, 7)


def view(
    voters: Sequence[int] = (1, 2, 3),
    learners: Sequence[int] = (),
    *,
    desired: Sequence[int] = (1, 2, 3),
    listening: Sequence[int] = (),
    said: Mapping[int, int] | None = None,
    dead: Set[int] = frozenset(),
    behind: Set[int] = frozenset(),
    leader: int = 1,
    no_change_pending: bool = True,
    is_nearly_committed: bool = True,
    unwritable: Mapping[int, bool] | None = None,
    incomplete: Set[int] = frozenset(),
) -> GroupView:
    """A group led by node 1 in which everyone is well, but for what is named."""
    nodes = {*map(node_of, (*voters, *learners)), *desired, *listening}
    if said is None:
        said = {node: node for node in nodes}
    up_to_date = {member for member in (*voters, *learners) if node_of(member) not in dead} - behind
    return GroupView(
        leader,
        tuple(voters),
        tuple(learners),
        no_change_pending,
        is_nearly_committed,
        up_to_date | {leader},
        DesiredMembers(tuple(desired), tuple(listening), said, nodes - dead, unwritable or {}, incomplete),
    )


def change(seen: GroupView) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The members that are asked for."""
    step = next_step(seen)
    assert not isinstance(step, Transfer), step
    return None if step is None else (step.voters, step.learners)


def heir(seen: GroupView) -> int:
    """To whom leadership goes."""
    step = next_step(seen)
    assert isinstance(step, Transfer), step
    return step.member


def healthier_member(seen: GroupView) -> int:
    """Who leads instead of a leader that cannot write or misses records."""
    transfer = healthier_leader(seen)
    assert transfer is not None
    return transfer.member


def test_nothing_is_done_to_a_group_as_it_should_be() -> None:
    assert next_step(view()) is None
    assert next_step(view(dead={3})) is None
    assert next_step(view([1], desired=[1])) is None


def test_nothing_is_done_while_something_is_under_way() -> None:
    assert next_step(view(desired=[1, 2], no_change_pending=False)) is None


def test_nothing_is_done_as_long_as_nobody_knows_what_is_wanted() -> None:
    assert next_step(view(desired=[], learners=[4])) is None
    assert preferred_leader(view(desired=[], leader=2)) is None


# --- a member that comes back as another -------------------------------------------------------------------


def test_a_wiped_member_listens_first() -> None:
    assert change(view(said={1: 1, 2: 2, 3: NEW_3}, dead=set(), behind={3})) == ((1, 2, 3), (NEW_3,))


def test_it_waits_until_it_has_caught_up() -> None:
    assert next_step(view(learners=[NEW_3], said={3: NEW_3}, behind={3, NEW_3})) is None


def test_then_it_replaces_what_it_was_in_one_change() -> None:
    seen = view(learners=[NEW_3], said={3: NEW_3}, behind={3})
    assert change(seen) == ((1, 2, NEW_3), ())
    step = next_step(seen)
    assert step is not None
    assert step.reason == "3 (incarnation 7) has caught up and replaces 3"


def test_it_replaces_itself_even_where_voters_are_missing() -> None:
    seen = view(learners=[NEW_3], desired=[1, 2, 3, 4, 5], said={3: NEW_3}, behind={3})
    assert change(seen) == ((1, 2, NEW_3), ())


def test_a_node_without_a_status_keeps_its_role() -> None:
    assert next_step(view(said={}, dead={2, 3})) is None
    assert next_step(view(learners=[NEW_3], said={}, behind={3})) is None


def test_other_nodes_reports_of_the_leader_are_ignored() -> None:
    assert next_step(view(said={1: member_of(1, 9)})) is None


def test_a_life_that_is_over_does_not_listen_any_more() -> None:
    assert change(view([1, 2], [3, NEW_3], desired=[1, 2], listening=[3], said={3: NEW_3})) == (
        (1, 2),
        (NEW_3,),
    )


# --- nodes come and go -------------------------------------------------------------------------------------


def test_a_wanted_node_listens_and_then_votes() -> None:
    assert change(view([1], desired=[1, 2])) == ((1,), (2,))
    assert change(view([1], [2], desired=[1, 2])) == ((1, 2), ())


def test_a_wanted_node_that_is_unknown_or_dead_is_left_alone() -> None:
    assert next_step(view([1, 2], desired=[1, 2, 3], said={})) is None
    assert next_step(view([1, 2], desired=[1, 2, 3], dead={3})) is None


def test_a_dead_learner_never_becomes_a_voter() -> None:
    assert next_step(view([1, 2], [3], desired=[1, 2, 3], dead={3})) is None
    assert next_step(view([1, 2], [3], desired=[1, 2, 3], behind={3})) is None
    lately = view([1, 2], [3], desired=[1, 2, 3])
    gone = DesiredMembers((1, 2, 3), (), {3: 3}, {1, 2})  # it answered a moment ago, but its node is gone
    assert next_step(GroupView(1, (1, 2), (3,), True, True, lately.up_to_date, gone)) is None


def test_one_voter_comes_at_a_time() -> None:
    assert change(view([1], [2, 3], desired=[1, 2, 3])) == ((1, 2), (3,))


def test_all_new_learners_are_added_in_one_change() -> None:
    assert change(view(listening=[4, 5], dead={6})) == ((1, 2, 3), (4, 5))
    assert change(view(learners=[4, 5], listening=[4])) == ((1, 2, 3), (4,))
    assert next_step(view(learners=[4], listening=[4], dead={4})) is None


def test_a_node_that_moves_in_takes_the_place_of_one_that_moves_out() -> None:
    assert change(view(desired=[1, 2, 4])) == ((1, 2, 3), (4,))
    assert change(view(learners=[4], desired=[1, 2, 4])) == ((1, 2, 4), ())
    assert next_step(view(learners=[4], desired=[1, 2, 4], behind={4})) is None


def test_a_dead_voter_goes_before_one_that_lives() -> None:
    assert change(view(learners=[4], desired=[1, 4, 5], dead={3})) == ((1, 2, 4), (5,))


def test_a_voter_that_is_only_to_listen_listens() -> None:
    assert change(view([1, 2, 3, 4], desired=[1, 2, 3], listening=[4])) == ((1, 2, 3), (4,))


def test_voters_that_are_too_many_go_one_by_one() -> None:
    assert change(view([1, 2, 3, 4, 5], desired=[1, 2, 3])) == ((1, 2, 3, 5), ())
    assert change(view([1, 2, 3], desired=[1, 2], dead={3})) == ((1, 2), ())


def test_nobody_goes_where_the_rest_would_have_no_majority() -> None:
    assert next_step(view(desired=[1, 3], dead={3})) is None
    assert next_step(view([1, 2, 3, 4, 5], desired=[1, 2, 3], behind={2, 3})) is None


def test_nobody_comes_where_the_new_majority_would_not_be_up_to_date() -> None:
    seen = view([1, 2, 3], [4], desired=[1, 2, 3, 4], behind={2, 3})
    assert next_step(seen) is None


# --- leadership --------------------------------------------------------------------------------------------


def test_a_leader_that_is_to_go_hands_over_first() -> None:
    assert heir(view(desired=[2, 3])) == 2
    assert heir(view(desired=[2, 3], dead={2})) == 3
    assert heir(view(learners=[4], desired=[3, 2, 4])) == 3
    assert next_step(view(desired=[2, 3], behind={2, 3})) is None


def test_others_go_before_the_leader() -> None:
    assert change(view(learners=[4], desired=[4, 5, 2])) == ((1, 2, 4), (5,))


def test_where_nobody_else_could_lead_the_newcomer_votes_beside_the_leader() -> None:
    assert change(view([1], [2], desired=[2])) == ((1, 2), ())
    assert heir(view([1, 2], desired=[2])) == 2
    assert change(view([1, 2], desired=[2], leader=2)) == ((2,), ())


def test_the_preferred_leader_is_the_first_wanted_node() -> None:
    assert preferred_leader(view(leader=2)) == 1
    assert preferred_leader(view(leader=1)) is None
    assert preferred_leader(view(leader=1, desired=[2, 1, 3])) == 2


@each_case(
    "seen",
    [
        view(leader=2, dead={1}),
        view(leader=2, behind={1}),
        view(leader=2, no_change_pending=False),
        view(leader=2, is_nearly_committed=False),
        view(leader=2, said={1: member_of(1, 4)}, dead={1}),
        view([2, 3], leader=2),
        view(leader=2, learners=[4], desired=[1, 2, 4]),
    ],
)
def test_no_leader_by_preference_that_is_not_ready_or_while_others_come(seen: GroupView) -> None:
    assert preferred_leader(seen) is None


def test_a_full_disk_is_not_handed_the_leadership() -> None:
    assert preferred_leader(view(leader=2, unwritable={1: True})) is None
    assert preferred_leader(view(leader=2, unwritable={1: False, 2: True})) == 1
    assert heir(view(desired=[2, 3], unwritable={2: True})) == 3
    assert heir(view(desired=[2, 3], unwritable={2: True, 3: True})) == 2  # who is to go goes all the same


def test_a_leader_with_a_full_disk_transfers_to_a_voter_with_space() -> None:
    assert healthier_member(view(unwritable={1: True, 2: True, 3: False})) == 3
    assert healthier_member(view(unwritable={1: True, 3: False})) == 3
    assert healthier_member(view(leader=3, desired=[2, 1, 3], unwritable={1: False, 2: False, 3: True})) == 2


@each_case(
    "seen",
    [
        view(unwritable={1: False, 2: False, 3: False}),
        view(unwritable={2: False, 3: False}),
        view(unwritable={1: True, 2: True, 3: True}),
        view(unwritable={1: True}),
        view(unwritable={1: True, 2: False}, dead={2}),
        view(unwritable={1: True, 2: False}, behind={2}),
        view(unwritable={1: True, 2: False}, no_change_pending=False),
        view(unwritable={1: True, 4: False}, learners=[4], listening=[4]),
    ],
)
def test_no_transfer_to_a_voter_that_is_behind_or_full_or_silent(seen: GroupView) -> None:
    assert healthier_leader(seen) is None


def test_a_node_that_misses_records_is_not_handed_the_leadership_where_another_could_have_it() -> None:
    assert preferred_leader(view(leader=2, incomplete={1})) is None
    assert preferred_leader(view(leader=2, incomplete={2})) == 1
    assert heir(view(desired=[2, 3], incomplete={2})) == 3
    assert heir(view(desired=[2, 3], unwritable={3: True}, incomplete={2})) == 2
    assert heir(view(desired=[2, 3], incomplete={2, 3})) == 2
    assert healthier_member(view(unwritable={1: True, 2: False, 3: False}, incomplete={2})) == 3
    assert healthier_member(view(unwritable={1: True, 2: False}, incomplete={2})) == 2


def test_a_leader_that_misses_records_transfers_to_a_voter_with_them() -> None:
    assert healthier_member(view(incomplete={1})) == 2
    assert healthier_member(view(incomplete={1, 2}, unwritable={3: False})) == 3
    assert healthier_member(view(leader=3, desired=[2, 1, 3], incomplete={3}, unwritable={2: True})) == 1


@each_case(
    "seen",
    [
        view(),
        view(incomplete={2, 3}),
        view(incomplete={1, 2, 3}),
        view(incomplete={1, 2}, unwritable={3: True}),
        view(incomplete={1, 2}, dead={3}),
        view(incomplete={1, 2}, behind={3}),
        view(incomplete={1}, no_change_pending=False),
    ],
)
def test_no_transfer_to_a_voter_that_is_behind_or_misses_records_as_well(seen: GroupView) -> None:
    assert healthier_leader(seen) is None


def test_node_0_is_a_node() -> None:
    assert preferred_leader(view([0, 1, 2], desired=[0, 1, 2])) == 0
    assert preferred_leader(view([1, 2, 3], [0], desired=[1, 2, 0], leader=2)) is None
    assert change(view([1, 2], [0], desired=[0, 1, 2])) == ((0, 1, 2), ())


def test_members_in_words() -> None:
    assert [printable_member(3), printable_member(NEW_3), printable_member(0)] == [
        "3",
        "3 (incarnation 7)",
        "0",
    ]


# --- whatever the situation --------------------------------------------------------------------------------

NODES = st.integers(1, 6)
MEMBERS = st.builds(member_of, NODES, st.integers(0, 1))


@st.composite
def views(draw: st.DrawFn) -> GroupView:
    voters = draw(st.sets(MEMBERS, min_size=1, max_size=5))
    leader = draw(st.sampled_from(sorted(voters)))
    learners = draw(st.sets(MEMBERS, max_size=3)) - voters
    desired = draw(st.lists(NODES, unique=True, max_size=5))
    listening = draw(st.sets(NODES)) - set(desired)
    said = {node: member_of(node, draw(st.integers(0, 1))) for node in draw(st.sets(NODES))}
    up_to_date = {leader, *draw(st.sets(st.sampled_from(sorted(voters | learners))))}
    alive = draw(st.sets(NODES))
    return GroupView(
        leader,
        tuple(sorted(voters)),
        tuple(sorted(learners)),
        True,
        True,
        up_to_date,
        DesiredMembers(tuple(desired), tuple(sorted(listening)), said, alive),
    )


@settings(deadline=None)
@given(views())
def test_no_step_is_unsafe(seen: GroupView) -> None:
    step = next_step(seen)
    if isinstance(step, Transfer):
        assert step.member in seen.voters
        assert step.member in seen.up_to_date
        assert step.member != seen.leader
    elif isinstance(step, ChangeMembers):
        before, after = set(seen.voters), set(step.voters)
        assert seen.leader in after
        assert len(after - before) <= 1
        assert len(before - after) <= 1
        assert not after & set(step.learners)
        assert (before, set(seen.learners)) != (after, set(step.learners))  # a group refuses what is so
        if before != after:
            assert after - before <= seen.up_to_date & set(seen.learners)
            assert 2 * len(after & seen.up_to_date) > len(after)
        if len(after) < len(before):
            assert len(after) >= len(seen.desired.voter_nodes)
        for gone in before - after:
            said = {**seen.desired.member_of_node, node_of(seen.leader): seen.leader}.get(node_of(gone), gone)
            assert node_of(gone) not in seen.desired.voter_nodes or said != gone


def advance(seen: GroupView, step: ChangeMembers | Transfer) -> GroupView:
    """The group did it, and everyone has caught up."""
    desired = seen.desired
    if isinstance(step, Transfer):
        return GroupView(step.member, seen.voters, seen.learners, True, True, seen.up_to_date, desired)
    members = {*step.voters, *step.learners}
    return GroupView(seen.leader, step.voters, step.learners, True, True, members, desired)


@settings(deadline=None)
@given(
    st.sets(NODES, min_size=1, max_size=5),
    st.lists(NODES, unique=True, min_size=1, max_size=5),
    st.sets(NODES),
    st.sets(NODES),
)
def test_with_everyone_well_each_group_gets_there(
    nodes: set[int], desired: list[int], listening: set[int], reborn: set[int]
) -> None:
    voters = tuple(sorted(nodes))
    said = {node: member_of(node, int(node in reborn and node != voters[0])) for node in range(1, 7)}
    goal = DesiredMembers(
        tuple(desired), tuple(sorted(listening - set(desired))), said, frozenset(range(1, 7))
    )
    seen = GroupView(voters[0], voters, (), True, True, frozenset(voters), goal)
    for _ in itertools.takewhile(lambda turn: turn < 40, itertools.count()):
        step = next_step(seen)
        if step is None:
            break
        seen = advance(seen, step)
    else:
        raise AssertionError(f"it never ends: {seen}")
    assert set(seen.voters) == {said[node] for node in desired}
    assert set(seen.learners) == {said[node] for node in goal.learner_nodes}
