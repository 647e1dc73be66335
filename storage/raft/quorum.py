"""Majorities: the index a set of voters has persisted, and whether votes win.

A joint configuration is two voter sets; both must agree. Source: Raft paper, sections 5.4 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def committed_index(voters: Sequence[int], match: Mapping[int, int]) -> int:
    """The highest index that a majority of `voters` holds; 0 where there are no voters.

    `match` is each voter's highest persisted index; a voter without one counts as 0.
    """
    if not voters:
        return 0
    if len(voters) == 1:
        return match.get(voters[0], 0)
    persisted = sorted([match.get(voter, 0) for voter in voters])
    return persisted[(len(persisted) - 1) // 2]


def joint_committed_index(configurations: Sequence[Sequence[int]], match: Mapping[int, int]) -> int:
    """The highest index that a majority of every configuration holds."""
    return min([committed_index(voters, match) for voters in configurations], default=0)


def vote_won(configurations: Sequence[Sequence[int]], granted: Mapping[int, bool]) -> bool:
    """Returns whether a majority of every configuration granted its vote; False where one has no voters."""
    return bool(configurations) and all(
        sum(1 for voter in voters if granted.get(voter, False)) * 2 > len(voters) for voters in configurations
    )
