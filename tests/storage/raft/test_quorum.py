"""Majorities, against counting."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.storage.raft import quorum

MATCH = st.dictionaries(st.integers(1, 7), st.integers(0, 9))
VOTERS = st.lists(st.integers(1, 7), unique=True, max_size=7)


@given(VOTERS, MATCH)
def test_committed_index_is_what_a_majority_holds(voters: list[int], match: dict[int, int]) -> None:
    held = [
        index
        for index in range(10)
        if sum(match.get(voter, 0) >= index for voter in voters) * 2 > len(voters)
    ]
    assert quorum.committed_index(voters, match) == max(held, default=0)


@given(st.lists(VOTERS, max_size=2), MATCH)
def test_joint_needs_every_configuration(configurations: list[list[int]], match: dict[int, int]) -> None:
    singly = [quorum.committed_index(voters, match) for voters in configurations]
    assert quorum.joint_committed_index(configurations, match) == (min(singly) if singly else 0)


def test_votes() -> None:
    assert quorum.vote_won([[1]], {1: True})
    assert not quorum.vote_won([[1, 2]], {1: True})
    assert quorum.vote_won([[1, 2, 3]], {1: True, 3: True})
    assert not quorum.vote_won([[1, 2, 3], [4, 5, 6]], {1: True, 3: True, 4: True, 5: False})
    assert not quorum.vote_won([], {1: True})
    assert not quorum.vote_won([[]], {1: True})
