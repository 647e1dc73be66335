"""The replicas of a log group that are in sync, as its leader sees them and clients are shown. Pure.

Owns: the rule, Kafka's (`replica.lag.time.max.ms`). A node that does not live or does not vote is behind at
once, and one that lives once it has not reached an end that the log had LAG_SECONDS ago: neither a busy
moment nor a delay that does not grow, such as a deferred voter's (`storage/raft/deferred_voters.py`), is a
lag. It is in sync again when it lives, votes and is up to date. A new leader takes its predecessor's word,
for nobody catches up by a change of leaders. Invariant: a leader is never behind. Decides nothing: what is
committed, and who may lead, is Raft's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from lockstep.broker.membership.group_view import is_up_to_date
from lockstep.storage.group_options import node_of
from lockstep.storage.raft.raft import Raft

LAG_SECONDS: Final = 30.0
"""As Kafka's default."""


class _Led:
    """One group, while it is led here in one term."""

    __slots__ = ("behind", "since", "term")

    def __init__(self, term: int, behind: Iterable[int]) -> None:
        self.term = term
        self.behind = set(behind)
        self.since: dict[int, tuple[float, int]] = {}
        """Of each node that is not up to date: since when it has not reached the end that there was then."""


class InSyncReplicas:
    """The groups that one node leads."""

    __slots__ = ("_led",)

    def __init__(self) -> None:
        self._led: dict[int, _Led] = {}

    def look(
        self,
        number: int,
        raft: Raft,
        placed: Iterable[int],
        is_alive: Callable[[int], bool],
        before: Iterable[int],
        now: float,
    ) -> tuple[int, ...]:
        """The nodes that are behind in a group that is led here, in order; to be asked every so often.

        Args:
            placed: the nodes that are to hold it; those that vote in it count as well.
            before: who was behind as its last leader said; heeded at the first look of a term.
            now: seconds of a monotonic clock.
        """
        led = self._led.get(number)
        if led is None or led.term != raft.term:
            led = self._led[number] = _Led(raft.term, before)
        voters = raft.configuration.voters
        voting = {node_of(each) for each in voters}
        up_to_date = {node_of(each) for each in voters if is_up_to_date(raft, each)}
        matched = {node_of(each): _match_index(raft, each) for each in voters}
        replicas = sorted({*placed, *voting} - {node_of(raft.member_id)})
        for node in replicas:
            if not is_alive(node) or node not in voting:
                led.behind.add(node)
            elif node in up_to_date:
                led.behind.discard(node)
                led.since.pop(node, None)
            else:
                began, end_index = led.since.get(node, (now, raft.last_index))
                if matched[node] >= end_index:
                    began, end_index = now, raft.last_index
                led.since[node] = began, end_index
                if now - began >= LAG_SECONDS:
                    led.behind.add(node)
        return tuple(each for each in replicas if each in led.behind)


def _match_index(raft: Raft, member: int) -> int:
    progress = raft.progress(member)
    return 0 if progress is None else progress.match_index
