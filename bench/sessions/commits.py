"""Group commits in a stopped Lockstep node's logs: frames that hold batches of a topic.

Owns: counting; reads the logs as `lockstep log` does, and changes nothing in them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.exit_status import log_progress
from bench.sessions.cluster import NodesSession
from compat_tests.targets import TargetFailed
from lockstep.broker.metadata.metadata_cache import METADATA_GROUP
from lockstep.stopped_broker import PartitionNames, groups_of, topic_names
from lockstep.storage.log.inspect import GroupLog


def commits_by_topic(data_dir: Path) -> Counter[str]:
    """Frames with at least one batch of each topic; one with several topics counts for each."""
    logs = [GroupLog(directory, group_id) for group_id, directory in groups_of(data_dir)]
    topics = topic_names(next(log for log in logs if log.group_id == METADATA_GROUP).directory)
    found: Counter[str] = Counter()
    for log in logs:
        names = PartitionNames(log.group_id, log.checkpoint, topics)
        for _, scanned in log.frames():
            frame = scanned.frame()
            for entry, payload in zip(frame.directory, frame.payloads, strict=True):
                names.replay(entry.partition, payload)
            found.update({names.name(entry.partition).rpartition("-")[0] for entry in frame.directory})
    del found[""]  # the control partitions
    return found


def count_commits(session: NodesSession) -> None:
    """Stop a Lockstep session's nodes and put to each block how many group commits it was.

    Read from the logs of every node: what one did not hold is not counted for it.
    """
    if session.kind != "lockstep":
        return
    for node in session.cluster.nodes.values():
        try:
            node.stop()
        except TargetFailed as error:
            log_progress(f"  group commits are not counted: {error}")
            return
    found = [commits_by_topic(node.data_dir) for node in session.cluster.nodes.values()]
    for block in session.blocks:
        counts = [commits.get(block.get("topic", ""), 0) for commits in found]
        if any(counts) and "device" in block:
            block["group_commits"] = max(counts)
            block["flushes_per_replica_and_commit"] = round(block["device"]["flushes"] / sum(counts), 3)
