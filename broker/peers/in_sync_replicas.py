"""The in-sync replicas (ISR) of a log group, as its leader computes them. Pure.

This module computes the ISR; leaders report it to the other nodes, and `broker/metadata/replica_state.py`
shows it to clients.

Owns: the rule, Kafka's (`replica.lag.time.max.ms`). A node that is not alive or does not vote is out of sync
at once; one that is alive is out of sync once it has not reached an end that the log had LAG_SECONDS ago: a
busy moment is no lag, nor is a constant delay such as a deferred voter's (`storage/raft/deferred_voters.py`).
It is in sync again when it is alive, votes and is up to date. A new leader takes over its predecessor's set,
as a change of leaders brings no replica up to date. Invariant: a leader is never out of sync. Decides
nothing: commits and elections are Raft's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from lockstep.broker.membership.group_view import is_up_to_date
from lockstep.storage.group_options import node_of
from lockstep.storage.raft.raft import Raft

LAG_SECONDS: Final = 30.0
"""As Kafka's default."""


class _LedGroup:
    """One group, while it is led here in one term."""

    __slots__ = ("out_of_sync", "since", "term")

    def __init__(self, term: int, out_of_sync: Iterable[int]) -> None:
        self.term = term
        self.out_of_sync = set(out_of_sync)
        self.since: dict[int, tuple[float, int]] = {}
        """By node that is not up to date: since when it has not reached the log's end of that time."""


class InSyncReplicas:
    """The groups that one node leads."""

    __slots__ = ("_led",)

    def __init__(self) -> None:
        self._led: dict[int, _LedGroup] = {}

    def update(
        self,
        group_id: int,
        raft: Raft,
        replica_nodes: Iterable[int],
        is_alive: Callable[[int], bool],
        previous: Iterable[int],
        now: float,
    ) -> tuple[int, ...]:
        """Returns the out-of-sync nodes of a group that is led here, in order. Called at intervals.

        Args:
            replica_nodes: the nodes that are to hold it; its voters count as well.
            previous: the out-of-sync nodes by its last leader; used at the first call of a term.
            now: seconds of a monotonic clock.
        """
        led = self._led.get(group_id)
        if led is None or led.term != raft.term:
            led = self._led[group_id] = _LedGroup(raft.term, previous)
        voters = raft.configuration.voters
        voting = {node_of(each) for each in voters}
        up_to_date = {node_of(each) for each in voters if is_up_to_date(raft, each)}
        matched = {node_of(each): _match_index(raft, each) for each in voters}
        replicas = sorted({*replica_nodes, *voting} - {node_of(raft.member_id)})
        for node in replicas:
            if not is_alive(node) or node not in voting:
                led.out_of_sync.add(node)
            elif node in up_to_date:
                led.out_of_sync.discard(node)
                led.since.pop(node, None)
            else:
                since, end_index = led.since.get(node, (now, raft.last_index))
                if matched[node] >= end_index:
                    since, end_index = now, raft.last_index
                led.since[node] = since, end_index
                if now - since >= LAG_SECONDS:
                    led.out_of_sync.add(node)
        return tuple(each for each in replicas if each in led.out_of_sync)


def _match_index(raft: Raft, member: int) -> int:
    progress = raft.progress(member)
    return 0 if progress is None else progress.match_index
