"""The part of a node with an empty directory: a founder, a node that lost its disk, or a newcomer.

Pure. A founder votes from the start; no vote of the others may be taken for one that was promised before
(`docs/decisions/0018-the-first-start.md`). Invariants: without enough handshakes nothing is decided, nor
while a node that has taken part does not report what its log has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from lockstep.broker.membership.placement import MAX_METADATA_VOTERS
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.broker.peers.node_status import Status

FOUNDING_TIMEOUT_SECONDS: Final = 3.0
"""How long founders wait for the rest of them; a majority of founders continues without."""


class ClusterPart(Enum):
    """The part of a node in its cluster."""

    FOUNDER = "founder"
    STRANGER = "stranger"


def part_of(
    node_id: int,
    founders: Sequence[int],
    statuses: Mapping[int, Status],
    waited_seconds: float,
    data_groups: int = 0,
) -> ClusterPart | None:
    """Returns this node's part by the others' reports; None where that is not known yet.

    A stranger comes in as a learner under a new member id. `founders` are the nodes in this
    one's settings at its start, in order; `data_groups` how many log groups it would make: where others have
    made another number, what it would make would have voters that know nothing of it.
    """
    known = [each for each in statuses.values() if each.joined and each.cluster_id is not None]
    if known:
        newest = max(known, key=lambda each: (each.applied, METADATA_GROUP in each.leads))
        agreed = set(newest.voters) == set(founders[:MAX_METADATA_VOTERS])
        agreed = agreed and newest.data_groups in (0, data_groups)
        first_start = node_id in newest.voters and node_id not in newest.registered
        if not first_start or not agreed:
            return ClusterPart.STRANGER
        return (
            ClusterPart.FOUNDER
            if _never_registered(node_id, newest, known, waited_seconds, statuses)
            else None
        )
    if node_id not in founders or nodes_of_unknown_cluster(statuses):
        return None
    with_status = {node_id, *statuses}.intersection(founders)
    if len(with_status) == len(founders):
        return ClusterPart.FOUNDER
    majority = len(founders) // 2 + 1
    return (
        ClusterPart.FOUNDER
        if len(with_status) >= majority and waited_seconds >= FOUNDING_TIMEOUT_SECONDS
        else None
    )


def nodes_of_unknown_cluster(statuses: Mapping[int, Status]) -> list[int]:
    """Returns the nodes that have taken part in a cluster, do not know it yet, and are not founding it."""
    return sorted(
        node_id
        for node_id, each in statuses.items()
        if each.joined and each.cluster_id is None and not each.founding
    )


def explain(node_id: int, part: ClusterPart) -> str:
    """A line of the log: what a node is, and what may be left to do."""
    if part is ClusterPart.FOUNDER:
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
    statuses: Mapping[int, Status],
) -> bool:
    """Returns whether no record of this node was committed for certain: a reporting node may be behind.

    The controller is not. Without one, the voters without a status, or with entries that they have not
    applied, must be too few to have committed the record together with this node, and the others must have
    had the time to elect a controller.
    """
    if any(METADATA_GROUP in each.leads for each in known):
        return True
    without_status = [
        each
        for each in newest.voters
        if each != node_id and (each not in statuses or _may_know_more(statuses[each]))
    ]
    majority = len(newest.voters) // 2 + 1
    return len(without_status) < majority - 1 and waited_seconds >= FOUNDING_TIMEOUT_SECONDS


def _may_know_more(status: Status) -> bool:
    """Returns whether a node's log may have a record that it has not applied. An older version does not
    report that."""
    return status.joined and status.has_unapplied is not False
