"""The damaged offset ranges of this node by topic and partition, for status, health, metrics and the log.

Owns: which damaged ranges are reported, skipping them on an operator's request, and log lines for repaired
ones. Missing records are damaged ranges without a log file. Ranges below a partition's log start and those of
deleted topics are not reported. Does not: find damage (`storage/log/batch_reader.py`, `scrub.py`,
`storage/missing_records.py`) or send requests to other nodes (`broker/controller/damage_reports.py`).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from lockstep.storage.group_options import node_of
from lockstep.storage.missing_records import is_still_missing
from lockstep.storage.types import NO_PARTITION, NO_SEGMENT

if TYPE_CHECKING:
    from lockstep.broker.metadata.metadata_cache import MetadataCache
    from lockstep.storage.log.damage import DamagedRange
    from lockstep.storage.log_group import LogGroup
    from lockstep.storage.segment_repair import SegmentRepair

log = logging.getLogger("lockstep.damage")

Document = dict[str, Any]

MAX_REPORTED_RANGES: Final = 200
"""LIMIT. Ranges of one node in the cluster's status."""
MAX_NAMED_RANGES: Final = 20
"""LIMIT. Ranges of one log file that one log line names."""


def group_damage(cluster: MetadataCache, group_id: int, group: LogGroup) -> list[Document]:
    """The damaged ranges of one log group on this node, by segment, partition and offset."""
    return [
        each for damage in group.log.damage.known() if (each := _document(cluster, group_id, group, damage))
    ]


def node_damage(cluster: MetadataCache, only: tuple[str, int] | None = None) -> list[Document]:
    """The damaged ranges of this node, by log group; at most `MAX_REPORTED_RANGES`.

    Args: only: a topic and an index, for the ranges of that partition.
    """
    ranges: list[Document] = []
    for group_id, group in sorted(cluster.groups.items()):
        ranges += group_damage(cluster, group_id, group)
    if only is not None:
        ranges = [each for each in ranges if (each["topic"], each["partition"]) == only]
    return ranges[:MAX_REPORTED_RANGES]


def damage_text(damage: Document) -> str:
    """One range as a line of the log, of `/health` or of the status."""
    state = "missing" if damage["segment"] == NO_SEGMENT else "damaged"
    if damage.get("possible") and not damage["given_up"]:
        state = "missing, or compaction removed them"
    return _text(damage, f"{state} and skipped" if damage["given_up"] else state)


def damage_location(damage: Document) -> str:
    """The log group of a range, and its log file where it has one."""
    group = f"log group {damage['group']}"
    return group if damage["segment"] == NO_SEGMENT else f"{group}, log file {damage['segment']}"


def remedy_text(damage: Document) -> str:
    """The next step for a range with `node`, `intact_on` and `unknown_on`
    (`broker/controller/damaged_copies.py`)."""
    node, is_missing = damage["node"], damage["segment"] == NO_SEGMENT
    if damage["intact_on"]:
        others = node_names(damage["intact_on"])
        if not is_missing:
            return f"node {node} fetches them from {others}"
        return f"{others} can have them: node {node} gets them back when it starts with an empty directory"
    if damage["unknown_on"]:
        others = node_names(damage["unknown_on"])
        pronoun, verb = ("it", "is") if len(damage["unknown_on"]) == 1 else ("them", "are")
        if is_missing:
            return f"{others} may have them, and {verb} not reached: start {pronoun} first"
        return f"the repair waits for {others}, which {verb} not reached: start {pronoun} first"
    copy = "" if is_missing else "put the log file back from a copy, or "
    if damage["topic"] is None:
        return "put the log file back from a copy"
    skip = f"`lockstep log skip-damage {damage['topic']}-{damage['partition']}`"
    return f"{copy}{skip} makes consumers skip them"


def node_names(node_ids: Sequence[int]) -> str:
    """`node 3`, or `nodes 1, 3`."""
    return f"node{'s'[: len(node_ids) != 1]} {', '.join(map(str, node_ids))}"


def _text(damage: Document, state: str) -> str:
    return _joint_text([damage], state)


def _joint_text(ranges: Sequence[Document], state: str) -> str:
    """Ranges of one log file in one text: `t-0: offset 5, t-1: offsets 3 to 4 are damaged (...)`."""
    texts = [_range_text(each) for each in ranges[:MAX_NAMED_RANGES]]
    if len(ranges) > MAX_NAMED_RANGES:
        texts.append(f"{len(ranges) - MAX_NAMED_RANGES} more")
    is_one = len(ranges) == 1 and ranges[0]["first_offset"] == ranges[0]["last_offset"]
    verb = "is" if is_one and ranges[0]["topic"] is not None else "are"
    return f"{', '.join(texts)} {verb} {state} ({damage_location(ranges[0])})"


def _range_text(damage: Document) -> str:
    first, last = damage["first_offset"], damage["last_offset"]
    if damage["topic"] is None:
        return f"log entries {first} to {last}"
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    return f"{damage['topic']}-{damage['partition']}: {offsets}"


class HealedDamageLog:
    """Logs the damaged ranges of this node that were known at the last update and are not any more, in one
    line for each log file; and a line for each repair that begins."""

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._known: list[Document] = []
        self._followed: set[SegmentRepair] = set()
        """The repairs of the log groups, which call this object."""
        self._sources: dict[tuple[int, int], Sequence[int]] = {}
        """The nodes that sent the frames of a repaired file, by log group and file, until that is logged."""

    def update(self) -> None:
        """Compare the known ranges with those of the last update."""
        self._follow_repairs()
        before, self._known = self._known, []
        for group_id, group in sorted(self._cluster.groups.items()):
            self._known += group_damage(self._cluster, group_id, group)
        known: defaultdict[tuple[Any, ...], list[Document]] = defaultdict(list)
        for each in self._known:
            known[_partition_of(each)].append(each)
        healed: dict[tuple[int, int, str], list[Document]] = {}
        for each in before:
            if not any(_overlap(each, other) for other in known[_partition_of(each)]):
                healed.setdefault((each["group"], each["segment"], self._reason(each)), []).append(each)
        for (_, sequence, reason), ranges in healed.items():
            state = "no longer missing" if sequence == NO_SEGMENT else "no longer damaged"
            log.info("%s: %s", _joint_text(ranges, state), reason)
        self._sources.clear()

    def _follow_repairs(self) -> None:
        current = {each.read_repair.segment_repair: id_ for id_, each in self._cluster.groups.items()}
        for repair in current.keys() - self._followed:
            repair.on_corrupt = partial(self._on_corrupt, current[repair])
            repair.on_repaired = partial(self._on_repaired, current[repair])
        self._followed = set(current)

    def _on_corrupt(self, group_id: int, sequence: int) -> None:
        group = self._cluster.groups.get(group_id)
        if group is not None:
            found = group_damage(self._cluster, group_id, group)
            known = {tuple(each.items()) for each in self._known}
            self._known += [each for each in found if tuple(each.items()) not in known]
            if not group.raft.alone and (ranges := [each for each in found if each["segment"] == sequence]):
                log.warning("%s: requesting them from other nodes", _joint_text(ranges, "damaged"))

    def _on_repaired(self, group_id: int, sequence: int, members: Sequence[int]) -> None:
        self._sources[group_id, sequence] = sorted({node_of(each) for each in members})
        self.update()

    def _reason(self, damage: Document) -> str:
        group, sequence = self._cluster.groups.get(damage["group"]), damage["segment"]
        if sequence == NO_SEGMENT:
            return "they are deleted, or a snapshot has brought them"
        if sources := self._sources.get((damage["group"], sequence)):
            return f"repaired from {node_names(sources)}"
        if group is None or all(sequence != each.sequence for each in group.log.segments()):
            return "the log file was deleted"
        return "the records are deleted" if group.log.damage.is_damaged(sequence) else "the log file verifies"


def _partition_of(damage: Document) -> tuple[Any, ...]:
    return damage["group"], damage["topic"], damage["partition"]


def _overlap(a: Document, b: Document) -> bool:
    """Returns whether two ranges of one partition have an offset in common."""
    return bool(a["first_offset"] <= b["last_offset"] and b["first_offset"] <= a["last_offset"])


def skip_damage(cluster: MetadataCache, topic: str, index: int) -> list[Document]:
    """Makes readers skip the damaged ranges of a partition on this node; returns them. Raises OSError."""
    partition = cluster.partition(topic, index)
    if partition is None:
        return []
    for group_id, group in sorted(cluster.groups.items()):
        if group is partition.group:
            given_up = group.log.damage.skip_damage(partition.log.local_id)
            return [each for damage in given_up if (each := _document(cluster, group_id, group, damage))]
    return []


def _document(
    cluster: MetadataCache, group_id: int, group: LogGroup, damage: DamagedRange
) -> Document | None:
    """The range as it is reported; None if it is not."""
    document = {
        "group": group_id,
        "segment": damage.sequence,
        "topic": None,
        "partition": -1,
        "first_offset": damage.first_offset,
        "last_offset": damage.end_offset - 1,
        "given_up": damage.is_skipped,
        "problem": damage.problem,
        **({"possible": True} if damage.is_possible else {}),
    }
    if damage.local_id == NO_PARTITION:
        return document
    partition = group.partitions.get(damage.local_id)
    if partition is None or damage.end_offset <= partition.log_start_offset:
        return None
    if damage.sequence == NO_SEGMENT and not is_still_missing(group.log, partition, damage):
        return None
    topic = cluster.topic_by_id(partition.topic_id)
    if topic is None:
        return None
    return document | {"topic": topic.name, "partition": partition.index}
