"""What a node is told about its group when it starts, and how its member id follows from its disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.storage.log.options import LogOptions
from lockstep.storage.log_group import GroupOptions
from lockstep.storage.raft.settings import RaftSettings

if TYPE_CHECKING:
    from tests.sim.node import Node

GROUP_ID = 1


def log_options(node: Node) -> LogOptions:
    options = node.world.options
    return LogOptions(
        segment_bytes=options.segment_bytes,
        spare_segments=options.spare_segments,
        pool_segments=options.pool_segments,
        tail_cache_bytes=options.tail_cache_bytes,
        index_cache_bytes=16 << 10,
        reserve_bytes=options.segment_bytes // 8,
    )


def group_options(node: Node) -> GroupOptions:
    """The options of this node's `LogGroup.open`."""
    return GroupOptions(
        GROUP_ID,
        node.node_id,
        log_options(node),
        max_uncommitted_bytes=1 << 20,
        voters=() if node.incarnation else tuple(sorted(node.world.nodes)),
        incarnation=node.incarnation,
        salvage=node.salvage,
        kept_entries=node.world.options.kept_entries,
        raft=raft_settings(node),
        straight_commit=node.world.options.straight_commit,
        background=False,
    )


def raft_settings(node: Node) -> RaftSettings:
    options = node.world.options
    return RaftSettings(
        heartbeat_ms=options.heartbeat_ms,
        election_timeout_ms=options.election_timeout_ms,
        max_append_bytes=options.max_append_bytes,
        pipeline_depth=options.pipeline_depth,
        commit_push_ms=options.commit_push_ms,
        deferral_ms=options.spare_wait_ms,
        probe_commits=options.race_commits,
    )
