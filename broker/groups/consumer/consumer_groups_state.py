"""The consumer groups of one data log group, replayed from their committed records.

Owns: `ConsumerGroupsState`, a part of `GroupsState`: the groups by id, and their memory. Invariants: it
changes in `apply` and `restore` alone; a group is there as long as one of its records is; `restore` of
`rows` gives an equal state. Does not: read batches (`broker/groups/group_state.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lockstep.broker.groups.consumer.consumer_group import ConsumerGroup
from lockstep.broker.groups.consumer.consumer_group_records import read_key


class ConsumerGroupsState:
    """Empty at first."""

    __slots__ = ("_groups", "memory_bytes")

    def __init__(self) -> None:
        self._groups: dict[str, ConsumerGroup] = {}
        self.memory_bytes = 0
        """The estimated memory of all groups."""

    def __bool__(self) -> bool:
        return bool(self._groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def __iter__(self) -> Iterator[ConsumerGroup]:
        return iter(self._groups.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConsumerGroupsState) and self._groups == other._groups

    __hash__ = None  # type: ignore[assignment]

    def ids(self) -> Iterable[str]:
        """The ids of all groups."""
        return self._groups

    def group(self, group_id: str) -> ConsumerGroup | None:
        """One group; None if there is none."""
        return self._groups.get(group_id)

    def apply(self, kind: int, key: bytes, value: bytes | None) -> None:
        """Replays one record. Raises MalformedMessage, UnknownGroupRecord."""
        group_id, name = read_key(kind, key)
        group = self._groups.get(group_id)
        if group is None:
            if value is None:
                return
            group = ConsumerGroup(group_id)
            before = 0
        else:
            before = group.memory_bytes
        group.apply(kind, key, name, value)
        if group.records:
            self._groups[group_id] = group
            self.memory_bytes += group.memory_bytes - before
        else:
            self._groups.pop(group_id, None)
            self.memory_bytes -= before

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """The newest records of all groups, for a snapshot."""
        for group in self._groups.values():
            yield from group.records.items()

    def restore(self, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """Takes over a snapshot's records."""
        for key, value in rows:
            self.apply(int.from_bytes(key[:2], "big"), key, value)
