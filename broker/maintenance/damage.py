"""The damaged offset ranges of this node by topic and partition, for status, health, metrics and the log.

Owns: which damaged ranges are reported, giving them up on an operator's request, and log lines for healed
ones. Missing records are damaged ranges without a log file. Ranges below a partition's log start and those of
deleted topics are not reported. Does not: find damage (`storage/log/batch_reader.py`, `scrub.py`,
`storage/missing_records.py`) or send requests to other nodes (`broker/controller/damage_reports.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from lockstep.storage.missing_records import is_still_missing
from lockstep.storage.types import NO_PARTITION, NO_SEGMENT

if TYPE_CHECKING:
    from lockstep.broker.metadata.metadata_cache import MetadataCache
    from lockstep.storage.log.damage import DamagedRange
    from lockstep.storage.log_group import LogGroup

log = logging.getLogger("lockstep.damage")

Document = dict[str, Any]

MAX_REPORTED_RANGES: Final = 200
"""LIMIT. Ranges of one node in the cluster's status."""


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


def where_damaged(damage: Document) -> str:
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
    first, last = damage["first_offset"], damage["last_offset"]
    where = where_damaged(damage)
    if damage["topic"] is None:
        return f"log entries {first} to {last} are {state} ({where})"
    offsets = f"offset {first} is" if first == last else f"offsets {first} to {last} are"
    return f"{damage['topic']}-{damage['partition']}: {offsets} {state} ({where})"


class HealedDamageLog:
    """Logs each damaged range of this node that was known at the last update and is not any more."""

    def __init__(self, cluster: MetadataCache) -> None:
        self._cluster = cluster
        self._known: list[Document] = []

    def update(self) -> None:
        """Compare the known ranges with those of the last update."""
        before, self._known = self._known, []
        for group_id, group in sorted(self._cluster.groups.items()):
            self._known += group_damage(self._cluster, group_id, group)
        for each in before:
            if not any(_overlap(each, other) for other in self._known):
                state = "no longer missing" if each["segment"] == NO_SEGMENT else "no longer damaged"
                log.warning("%s: %s", _text(each, state), self._reason(each))

    def _reason(self, damage: Document) -> str:
        group, sequence = self._cluster.groups.get(damage["group"]), damage["segment"]
        if sequence == NO_SEGMENT:
            return "they are deleted, or a snapshot has brought them"
        if group is None or all(sequence != each.sequence for each in group.log.segments()):
            return "the log file was deleted"
        return "the records are deleted" if group.log.damage.is_damaged(sequence) else "the log file verifies"


def _overlap(a: Document, b: Document) -> bool:
    return (
        (a["group"], a["topic"], a["partition"]) == (b["group"], b["topic"], b["partition"])
        and a["first_offset"] <= b["last_offset"]
        and b["first_offset"] <= a["last_offset"]
    )


def skip_damage(cluster: MetadataCache, topic: str, index: int) -> list[Document]:
    """Have readers pass over the damaged ranges of a partition on this node; returns them. Raises OSError."""
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
