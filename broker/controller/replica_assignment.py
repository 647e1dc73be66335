"""Manual replica assignments: which brokers a partition may be placed on.

Source: Kafka's ReplicationControlManager.validateManualPartitionAssignment, and its texts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from lockstep.broker.requests.errors import RequestError
from lockstep.protocol.errors import ErrorCode


def check_replicas(broker_ids: Sequence[int], node_ids: Sequence[int]) -> None:
    """The brokers of one partition must be there, each once. Raises RequestError."""
    problem = None
    chosen = sorted(broker_ids)
    strangers = [each for each in chosen if each not in node_ids]
    doubles = [each for place, each in enumerate(chosen[1:]) if each == chosen[place]]
    if not chosen:
        problem = "an empty replica list."
    elif doubles:
        problem = f"the broker {doubles[0]} more than once."
    elif strangers:
        problem = f"broker {strangers[0]}, but no such broker is registered."
    if problem is not None:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {problem}"
        )


def check_assignments(assignments: Mapping[int, Sequence[int]], node_ids: Sequence[int]) -> None:
    """A new topic's partitions are numbered from 0 and each is on brokers that are there. Raises
    RequestError."""
    if sorted(assignments) != list(range(len(assignments))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    for broker_ids in assignments.values():
        check_replicas(broker_ids, node_ids)


def check_groups(assignments: Iterable[Sequence[int]], placed: Collection[set[int]]) -> None:
    """The brokers of each partition must be the nodes of a log group; the cluster chooses which partition
    gets which of them. Raises RequestError."""
    for broker_ids in assignments:
        if set(broker_ids) not in placed:
            known = "; ".join(str(sorted(nodes)) for nodes in placed)
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment names brokers {sorted(broker_ids)}; partitions share the "
                f"replicas of their log group, which are one of {known}",
            )
