"""The present beginnings and ends of partitions, and those that the options choose.

Owns: the offsets that an `OffsetRangeLimit` means; the requests are `connection.offsets`'.

Invariants: LATEST is the last stable offset where only committed records are read, so no task ever waits for
an open transaction. A given offset is not verified: it may be deleted before it is read.

Does not: divide anything into tasks (`range_plan`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lockstep.protocol.errors import ErrorCode
from spark_connector.connection import BrokerError, ClusterClient, list_offsets
from spark_connector.options import (
    EARLIEST,
    LATEST,
    OffsetRangeLimit,
    OptionError,
    PartitionSelection,
    TopicPartition,
)

_NO_OFFSET = -1


def partitions_of(cluster: ClusterClient, chosen: PartitionSelection) -> list[TopicPartition]:
    """The partitions to read, from the present metadata; sorted. BrokerError for one unknown."""
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


def offsets_at(
    cluster: ClusterClient, partitions: Iterable[TopicPartition], which: int, *, committed: bool
) -> dict[TopicPartition, int]:
    """The beginning (EARLIEST) or the end (LATEST) of each partition."""
    return list_offsets(cluster, dict.fromkeys(partitions, which), committed=committed)


def resolve_offsets(
    cluster: ClusterClient,
    partitions: Iterable[TopicPartition],
    position: OffsetRangeLimit,
    *,
    default: int,
    committed: bool,
) -> dict[TopicPartition, int]:
    """Resolves `position` to an offset of each partition; `default` is EARLIEST or LATEST, for an unset one.
    OptionError where it names other partitions than are read, or a time after the last record."""
    parts = list(partitions)
    if position.offsets is not None:
        _check_partitions(position.offsets, parts, position.option)
        timestamps = {
            part: offset for part, offset in position.offsets.items() if offset in (EARLIEST, LATEST)
        }
        return dict(position.offsets) | list_offsets(cluster, timestamps, committed=committed)
    times: Mapping[TopicPartition, int]
    if position.timestamp_ms is not None:
        times = dict.fromkeys(parts, position.timestamp_ms)
    elif position.timestamps_ms is not None:
        _check_partitions(position.timestamps_ms, parts, position.option)
        times = position.timestamps_ms
    else:
        which = default if position.everywhere is None else position.everywhere
        return offsets_at(cluster, parts, which, committed=committed)
    found = list_offsets(cluster, times, committed=committed)
    late = [part for part, offset in found.items() if offset == _NO_OFFSET]
    if late and not position.or_latest:
        topic, index = min(late)
        raise OptionError(
            position.option,
            f"{topic}, partition {index}: no record is as late as {times[topic, index]}; "
            "choose an earlier time, or set startingOffsetsByTimestampStrategy=latest",
        )
    return found | offsets_at(cluster, late, LATEST, committed=committed)


def is_moving(position: OffsetRangeLimit, part: TopicPartition, *, default: int) -> bool:
    """Returns whether `resolve_offsets` may return the partition's end, which changes with every call."""
    if position.offsets is not None:
        return position.offsets.get(part) == LATEST
    if position.timestamp_ms is not None or position.timestamps_ms is not None:
        return position.or_latest
    return (default if position.everywhere is None else position.everywhere) == LATEST


def _check_partitions(given: Mapping[TopicPartition, int], parts: list[TopicPartition], option: str) -> None:
    missing, unknown = sorted(set(parts) - set(given)), sorted(set(given) - set(parts))
    if missing:
        raise OptionError(option, f"{_join_names(missing)} are read, too: each partition needs its own")
    if unknown:
        raise OptionError(option, f"{_join_names(unknown)} are not among the partitions that are read")


def _join_names(parts: list[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{index}" for topic, index in parts[:5]) + (" …" if len(parts) > 5 else "")
