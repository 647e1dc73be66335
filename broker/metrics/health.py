"""The reason why a node is unhealthy. Reads this node's own state and sends no request."""

from __future__ import annotations

from typing import Final

from lockstep.broker.maintenance.damage import damage_text, node_damage
from lockstep.broker.metadata.metadata_cache import MetadataCache
from lockstep.broker.peers.node_registry import NodeRegistry

MAX_NAMED_RANGES: Final = 5
"""LIMIT. Damaged ranges in the reason; `lockstep cluster status` has all."""


def unhealthy_reason(
    cluster: MetadataCache, nodes: NodeRegistry, is_stopping: bool, failed: BaseException | None
) -> str:
    """The first reason, in one line, of damage several ranges; "" where it serves.

    Args: failed: what ended the broker, if anything.
    """
    return " ".join(_unhealthy_reason(cluster, nodes, is_stopping, failed).split())


def _unhealthy_reason(
    cluster: MetadataCache, nodes: NodeRegistry, is_stopping: bool, failed: BaseException | None
) -> str:
    if failed is not None:
        return f"the log cannot be trusted any more: {failed}"
    if is_stopping:
        return "stopping"
    groups = cluster.groups
    if nodes.is_removed:
        return "this node was removed from its cluster"
    if not groups:
        return "this node has no log group of its cluster yet"
    for group_id, group in sorted(groups.items()):
        if group.failed is not None:
            return f"log group {group_id} has failed: {group.failed}"
        if group.log.disk_full:
            return f"log group {group_id}: the disk is full: {group.log.disk_error}"
        if group.log.write_error:
            return f"log group {group_id}: the log cannot be written: {group.log.write_error}"
        if nodes.live_leader_of(group_id) < 0:
            return f"log group {group_id}: no leader is known"
    damage = [damage_text(each) for each in node_damage(cluster) if not each["given_up"]]
    more = len(damage) - MAX_NAMED_RANGES
    return "; ".join(damage[:MAX_NAMED_RANGES]) + (f"; and {more} more ranges" if more > 0 else "")
