"""The replicas of a log group's partitions during a reassignment, as clients see them (KIP-455)."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.broker.metadata.metadata_cache import MetadataCache


@dataclass(frozen=True)
class ReplicaChange:
    """The replicas of a log group's partitions, of which some are being added and some removed."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def replica_change_of(cluster: MetadataCache, group_id: int) -> ReplicaChange:
    """Returns the change that clients are shown; none added or removed where the group does not move."""
    placed = cluster.nodes_of(group_id)
    origin = cluster.image.moving.get(group_id, placed)
    adding = [each for each in placed if each not in origin]
    removing = [each for each in origin if each not in placed]
    return ReplicaChange([*placed, *removing], adding, removing)
