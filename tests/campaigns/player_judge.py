"""What each target must have, from the topic as confluent-kafka reads it, and what is wrong with what it has.

Owns: who a record is for, said once more and without the player's code: its header `lockstep-targets` names
them, with commas between. Of a target the campaign asks: of each partition it has applied exactly the records
that are for it, once, in order; of each key it has the newest value that was for it.
Does not: read the targets' databases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, takewhile
from typing import Any, Final, NamedTuple

from tests.campaigns.exactly_once import differences

HEADER: Final = "lockstep-targets"
Applied = tuple[int, bytes | None]
"""Offset and key."""


class Record(NamedTuple):
    """As it is in the topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    targets: Sequence[str]


@dataclass
class Contents:
    """Of one target: what it has, or is to have."""

    applied: dict[int, list[Applied]] = field(default_factory=lambda: defaultdict(list))
    """By partition, in order."""
    values: dict[bytes, bytes] = field(default_factory=dict)
    sequence: list[tuple[int, int]] = field(default_factory=list)
    """Of a target alone: partition and offset of all that it has applied, in order."""
    logs: set[str] = field(default_factory=set)
    """Of a target alone: of which its records are; more than one of a partition are too many."""

    def count(self) -> int:
        return sum(map(len, self.applied.values()))


def record_of(message: Any) -> Record:
    """From confluent-kafka."""
    said = [value for name, value in message.headers() or () if name == HEADER]
    names = {name.strip() for value in said for name in (value or b"").decode().split(",")}
    return Record(message.partition(), message.offset(), message.key(), message.value(), sorted(names - {""}))


def wanted(records: Iterable[Record], targets: Iterable[str]) -> tuple[dict[str, Contents], int]:
    """What each target is to have in the end; how many records there were."""
    found = {name: Contents() for name in targets}
    count = 0
    for record in records:
        count += 1
        for name in record.targets:
            contents = found[name]
            contents.applied[record.partition].append((record.offset, record.key))
            if record.key is None:
                continue
            if record.value is None:
                contents.values.pop(record.key, None)
            else:
                contents.values[record.key] = record.value
    return found, count


def judge(name: str, wanted: Contents, found: Contents) -> Iterator[str]:
    """What is not as it must be."""
    for partition in sorted({*wanted.applied, *found.applied}):
        yield from differences(
            f"{name}, partition {partition}",
            wanted.applied.get(partition, []),
            found.applied.get(partition, []),
            "not for it",
        )
    partitions = [log.rpartition("/")[2] for log in found.logs]
    if len(set(partitions)) < len(partitions):
        yield f"{name}: two logs of one partition: {sorted(found.logs)}"
    yield from value_differences(name, wanted.values, found.values)


def order_differences(found: Mapping[str, Contents]) -> Iterator[str]:
    """Targets of a log group that have applied what is for both of them in different orders.

    No client sees LSNs: that all agree on one order over all partitions is what can be asked from outside.
    """
    for (name, one), (other_name, other) in combinations(sorted(found.items()), 2):
        common = {*one.sequence} & {*other.sequence}
        ours = [each for each in one.sequence if each in common]
        theirs = [each for each in other.sequence if each in common]
        if ours != theirs:
            both = zip(ours, theirs, strict=False)
            place = len(list(takewhile(lambda pair: pair[0] == pair[1], both)))
            yield (
                f"{name} and {other_name} disagree on the order of {len(common)} records, from "
                f"{ours[place : place + 3]} (partition, offset) and {theirs[place : place + 3]} on"
            )


def value_differences(
    name: str, wanted: Mapping[bytes, bytes], found: Mapping[bytes, bytes]
) -> Iterator[str]:
    """Keys whose value is not the one it must be."""
    keys = sorted(key for key in {*wanted, *found} if wanted.get(key) != found.get(key))
    if keys:
        first = keys[0]
        yield (
            f"{name}: {len(keys)} keys have another value, "
            f"first {first!r}: {found.get(first)!r}, not {wanted.get(first)!r}"
        )
