"""What a node with an empty directory is: one of the founders, one that lost its disk, or a newcomer.

Pure. A founder votes from the start; of the others nobody may take the vote for one that was promised before
(`docs/decisions/0018-the-first-start.md`). Invariant: while it cannot be told, nothing is decided.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from broker.cluster.node_status import Status
from broker.membership.placement import MAX_METADATA_VOTERS
from broker.metadata import METADATA_GROUP

FOUNDING_PATIENCE_SECONDS: Final = 3.0
"""How long founders wait for the rest of them; a majority of founders goes on without."""


class Part(Enum):
    """What a node is in its cluster."""

    FOUNDER = "founder"
    STRANGER = "stranger"


def part_of(
    node_id: int,
    founders: Sequence[int],
    told: Mapping[int, Status],
    waited_seconds: float,
    data_groups: int = 0,
) -> Part | None:
    """What this node is by what the others told; None where that is not known yet.

    A stranger comes in as a learner under a member id that nobody has had. `founders` are the nodes that this
    one was told of at its start, in order; `data_groups` how many log groups it would make: where others have
    made another number, what it would make would have voters that know nothing of it.
    """
    known = [each for each in told.values() if each.joined and each.cluster_id is not None]
    if known:
        newest = max(known, key=lambda each: (each.applied, METADATA_GROUP in each.leads))
        agreed = set(newest.voters) == set(founders[:MAX_METADATA_VOTERS])
        agreed = agreed and newest.data_groups in (0, data_groups)
        first_start = node_id in newest.voters and node_id not in newest.registered
        if not first_start or not agreed:
            return Part.STRANGER
        return Part.FOUNDER if _never_registered(node_id, newest, known, waited_seconds, told) else None
    if any(each.joined and each.has_log for each in told.values()):
        return None
    if node_id not in founders:
        return None
    heard = {node_id, *told}.intersection(founders)
    if len(heard) == len(founders):
        return Part.FOUNDER
    majority = len(founders) // 2 + 1
    return Part.FOUNDER if len(heard) >= majority and waited_seconds >= FOUNDING_PATIENCE_SECONDS else None


def told_of(node_id: int, part: Part) -> str:
    """A line of the log: what a node is, and what may be left to do."""
    if part is Part.FOUNDER:
        return f"node {node_id} is a founder of its cluster"
    return (
        f"node {node_id} is not a founder of its cluster: if it is new or was removed, `lockstep cluster add "
        f"{node_id}` gives it its share; if it lost its disk, it gets it back by itself"
    )


def _never_registered(
    node_id: int,
    newest: Status,
    known: Sequence[Status],
    waited_seconds: float,
    told: Mapping[int, Status],
) -> bool:
    """Whether it is certain that no record of this node was committed: who says so may be behind.

    The controller is not. Without one, those that have not been heard must be too few to have committed the
    record together with this node; and whoever was heard had the time to elect a controller.
    """
    if any(METADATA_GROUP in each.leads for each in known):
        return True
    unheard = [each for each in newest.voters if each != node_id and each not in told]
    majority = len(newest.voters) // 2 + 1
    return len(unheard) < majority - 1 and waited_seconds >= FOUNDING_PATIENCE_SECONDS
