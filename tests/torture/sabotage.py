"""`python -m tests.torture.sabotage serve ...`: Lockstep that waits for no majority, for one test.

Owns: a fault planted into real processes, to show that a torture run notices it: an entry counts as
committed when the quickest member has it, which is the leader itself.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from lockstep.cli import main
from lockstep.storage.raft import replication


def commit_alone() -> None:
    """From now on one copy is enough."""

    def quickest(configurations: Sequence[Sequence[int]], match: Mapping[int, int]) -> int:
        return max(match.get(member, 0) for voters in configurations for member in voters)

    replication.joint_committed_index = quickest  # type: ignore[attr-defined]


if __name__ == "__main__":
    commit_alone()
    sys.exit(main())
