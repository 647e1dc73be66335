"""Damaged log files in the words of topics: what status, health and metrics say of this node until it heals.

Owns: which known damage still matters, and giving it up at an operator's word. Damage below a partition's log
start, or of a topic that was deleted, matters to nobody. Does not: find damage (`storage/log/reading.py`,
`scrubbing`) or ask other nodes (`broker/cluster/damage_reports.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from storage.types import NO_PARTITION

if TYPE_CHECKING:
    from broker.metadata import Cluster
    from storage.group import LogGroup
    from storage.log.damage import Damage

Document = dict[str, Any]

MOST_TOLD: Final = 200
"""LIMIT. Ranges that one node tells of."""


def damage_of(cluster: Cluster, number: int, group: LogGroup) -> list[Document]:
    """What is damaged of one log group here, by file, partition and offset."""
    return [each for damage in group.log.damage.known() if (each := _told(cluster, number, group, damage))]


def damage_here(cluster: Cluster) -> list[Document]:
    """What is damaged here."""
    found: list[Document] = []
    for number, group in sorted(cluster.groups.items()):
        found += damage_of(cluster, number, group)
    return found[:MOST_TOLD]


def damage_text(damage: Document) -> str:
    """One entry in words."""
    first, last = damage["first_offset"], damage["last_offset"]
    where = f"log group {damage['group']}, log file {damage['segment']}"
    if damage["topic"] is None:
        return f"frames {first} to {last} are damaged ({where})"
    offsets = f"offset {first} is" if first == last else f"offsets {first} to {last} are"
    given_up = " and given up" if damage["given_up"] else ""
    return f"{damage['topic']}-{damage['partition']}: {offsets} damaged{given_up} ({where})"


def give_up(cluster: Cluster, topic: str, index: int) -> list[Document]:
    """Have readers of a partition pass over what is damaged of it here; what that is. OSError."""
    partition = cluster.partition(topic, index)
    if partition is None:
        return []
    for number, group in sorted(cluster.groups.items()):
        if group is partition.group:
            given = group.log.damage.give_up(partition.log.number)
            return [each for damage in given if (each := _told(cluster, number, group, damage))]
    return []


def _told(cluster: Cluster, number: int, group: LogGroup, damage: Damage) -> Document | None:
    document = {
        "group": number,
        "segment": damage.sequence,
        "topic": None,
        "partition": -1,
        "first_offset": damage.first_offset,
        "last_offset": damage.end_offset - 1,
        "given_up": damage.given_up,
        "problem": damage.problem,
    }
    if damage.partition == NO_PARTITION:
        return document
    partition = group.partitions.get(damage.partition)
    if partition is None or damage.end_offset <= partition.log_start_offset:
        return None
    topic = cluster.topic_by_id(partition.topic_id)
    if topic is None:
        return None
    return document | {"topic": topic.name, "partition": partition.index}
