"""A log group as a node sees it that cannot serve from it: it has no part in it, or not all of it yet.

Stands where a `LogGroup` stands in a partition. Invariant: it never leads here, so whoever asks is told to go
elsewhere before anything of the log is looked at. Who leads is what the nodes told each other last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from storage.partition import PartitionLog
from storage.types import NotLeader


class RemoteGroup:
    """Args: leader: who leads the group as far as is known, (node id or -1, term)."""

    __slots__ = ("_leader", "group_id")

    def __init__(self, group_id: int, leader: Callable[[int], tuple[int, int]]) -> None:
        self.group_id = group_id
        self._leader = leader

    is_leader = False
    has_lease = False

    @property
    def leader_id(self) -> int:
        """The node that leads as far as is known; -1 for none."""
        return self._leader(self.group_id)[0]

    @property
    def term(self) -> int:
        return self._leader(self.group_id)[1]

    def leader_epoch(self, partition: PartitionLog) -> int:
        """The leader epoch of a partition on the Kafka wire."""
        return self.term + partition.epoch_base

    def append(self, *unused: object, **unused_too: object) -> Never:
        """Raises NotLeader."""
        raise NotLeader(f"group {self.group_id} is not led here")


def unbound(topic_id: bytes, index: int) -> PartitionLog:
    """What a partition has for a log until its group has opened it here: an empty one."""
    return PartitionLog(UNBOUND, topic_id, index)


UNBOUND = -1
"""The number of such a log in its group."""
