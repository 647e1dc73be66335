"""Where the partitions begin and end now, and where the options want reading to begin and end.

Owns: what a `Position` means for each partition; how it is asked is `connection.offsets`.

Invariants: what is answered for LATEST is the last stable offset where only committed records are read, so no
task ever waits for a transaction that is open. A given offset is taken as it is: whether it is still there
shows when it is read, because it may be gone by then.

Does not: divide anything into tasks (`planning`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from protocol.errors import ErrorCode
from spark_connector.connection import BrokerError, Cluster, list_offsets
from spark_connector.options import EARLIEST, LATEST, Chosen, OptionError, Position, TopicPartition

_NO_OFFSET = -1


def partitions_of(cluster: Cluster, chosen: Chosen) -> list[TopicPartition]:
    """The partitions that are read, as the cluster has them now; sorted. BrokerError for one unknown."""
    if chosen.partitions:
        there = {
            (topic.name, each.index)
            for topic in cluster.topics({name for name, _ in chosen.partitions})
            for each in topic.partitions
        }
        for topic_name, index in chosen.partitions:
            if (topic_name, index) not in there:
                about = f"topic {topic_name}, partition {index}"
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about, "there is no such partition")
        return sorted(chosen.partitions)
    if chosen.pattern:
        pattern = re.compile(chosen.pattern)
        topics = [each for each in cluster.topics() if not each.is_internal and pattern.fullmatch(each.name)]
    else:
        topics = cluster.topics(chosen.topics)
    return sorted((topic.name, each.index) for topic in topics for each in topic.partitions)


def ends(
    cluster: Cluster, partitions: Iterable[TopicPartition], which: int, *, committed: bool
) -> dict[TopicPartition, int]:
    """Where each partition begins (EARLIEST) or ends (LATEST)."""
    return list_offsets(cluster, dict.fromkeys(partitions, which), committed=committed)


def resolved(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    position: Position,
    *,
    default: int,
    committed: bool,
) -> dict[TopicPartition, int]:
    """The offset of each partition that `position` means; `default` is EARLIEST or LATEST, where it says
    nothing. OptionError where it names other partitions than are read, or a time after the last record."""
    parts = list(partitions)
    if position.offsets is not None:
        _same_partitions(position.offsets, parts, position.option)
        wanted = {part: offset for part, offset in position.offsets.items() if offset in (EARLIEST, LATEST)}
        return dict(position.offsets) | list_offsets(cluster, wanted, committed=committed)
    times: Mapping[TopicPartition, int]
    if position.timestamp_ms is not None:
        times = dict.fromkeys(parts, position.timestamp_ms)
    elif position.timestamps_ms is not None:
        _same_partitions(position.timestamps_ms, parts, position.option)
        times = position.timestamps_ms
    else:
        which = default if position.everywhere is None else position.everywhere
        return ends(cluster, parts, which, committed=committed)
    found = list_offsets(cluster, times, committed=committed)
    late = [part for part, offset in found.items() if offset == _NO_OFFSET]
    if late and not position.or_latest:
        topic, index = min(late)
        raise OptionError(
            position.option,
            f"{topic}, partition {index}: no record is as late as {times[topic, index]}; "
            "choose an earlier time, or set startingOffsetsByTimestampStrategy=latest",
        )
    return found | ends(cluster, late, LATEST, committed=committed)


def moves(position: Position, part: TopicPartition, *, default: int) -> bool:
    """Whether `resolved` may say where a partition ends, which is another offset whenever it is asked."""
    if position.offsets is not None:
        return position.offsets.get(part) == LATEST
    if position.timestamp_ms is not None or position.timestamps_ms is not None:
        return position.or_latest
    return (default if position.everywhere is None else position.everywhere) == LATEST


def _same_partitions(given: Mapping[TopicPartition, int], parts: list[TopicPartition], option: str) -> None:
    missing, unknown = sorted(set(parts) - set(given)), sorted(set(given) - set(parts))
    if missing:
        raise OptionError(option, f"{_named(missing)} are read, too: each partition needs its own")
    if unknown:
        raise OptionError(option, f"{_named(unknown)} are not among the partitions that are read")


def _named(parts: list[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in parts[:5]) + (" …" if len(parts) > 5 else "")
