"""A log group that this node does not serve: it has no replica of it, or has not opened it yet.

Takes the place of a `LogGroup` in a partition. Invariant: it never leads here, so every request gets
NOT_LEADER_OR_FOLLOWER before the log is read. Its leader is the one that the nodes reported last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Never

from lockstep.storage.partition import PartitionLog
from lockstep.storage.types import NotLeader


class RemoteLeader:
    """Args: leader: the known leader of the group, (node id or -1, term)."""

    __slots__ = ("_leader", "group_id")

    def __init__(self, group_id: int, leader: Callable[[int], tuple[int, int]]) -> None:
        self.group_id = group_id
        self._leader = leader

    is_leader = False
    has_lease = False

    @property
    def leader_id(self) -> int:
        """The known leader; -1 for none."""
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
    """The empty log of a partition that its group has not opened here."""
    return PartitionLog(UNBOUND, topic_id, index)


UNBOUND = -1
"""The local id of such a log."""
