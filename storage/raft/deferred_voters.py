"""Deferred voters: a majority commits without them, so the leader sends them entries a little later.

The leader and half of the other voters, the immediate ones, are enough for a commit. The leader sends the
deferred voters their missing entries in fewer and larger requests: `deferral_ms` after the oldest of these,
or at once where entries wait and none was committed for `hedge_ms`. Probes choose the immediate voters: for
some commits all voters are sent everything, and a voter that was late for most of them becomes a deferred
one. Nothing here decides what is committed. With few commits a second there is always a probe, which is plain
Raft. Sources: EPaxos, "thrifty"; The Tail at Scale, hedged requests; `docs/decisions/0034-spares.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lockstep.storage.raft.progress import Progress, SendState
from lockstep.storage.raft.settings import NEVER_MS, RaftSettings
from lockstep.storage.raft.term_index import TermIndex

NONE_DEFERRED: frozenset[int] = frozenset()
PROBE_INTERVAL_MS = 1000


class ReplicatedLog(Protocol):
    """A member's log, as far as deferring depends on it; `RaftState` is one."""

    member_id: int
    now_ms: int
    settings: RaftSettings
    terms: TermIndex
    commit_index: int
    persisted_index: int

    @property
    def is_transferring(self) -> bool:
        """True while this leader transfers its leadership."""


class Replication(Protocol):
    """A leader's view of the other members; `LeaderState` is one."""

    deferred_voters: DeferredVoters
    progress: dict[int, Progress]
    change_pending: bool


class DeferredVoters:
    """The deferred voters of one leader, as long as the voters stay the same.

    Args:
        voters: of a configuration with one voter set; none where there are two: then no voter is deferred.
        member: the leader.
    """

    __slots__ = (
        "_commits",
        "_from_index",
        "_late",
        "_needed",
        "_order",
        "_skippable_commits",
        "deferred",
        "due_ms",
        "immediate",
        "probe_commits_left",
        "probe_due_ms",
        "waiting_ms",
    )

    def __init__(self, voters: Sequence[int], member: int) -> None:
        # A ring, so that leaders of several groups spread what they send at once over the nodes, in the order
        # in which they would stand after the leader's end (`role_changes.on_leader_stopped`).
        others = sorted(voters) if member in voters else []
        self._order = [each for each in others if each > member] + [each for each in others if each < member]
        self._needed = len(voters) // 2
        self._late = dict.fromkeys([member, *self._order], 0)
        """The number of commits of this probe for which each voter was too late."""
        self._commits = 0
        """The number of commits of the probe."""
        self._from_index = self._skippable_commits = 0
        """The probe counts once the deferred voters hold this entry, or after so many commits without
        that."""
        self.immediate = self._order[: self._needed]
        """The voters that are sent everything at once."""
        self.deferred = frozenset(self._order[self._needed :])
        """The deferred voters."""
        self.probe_commits_left = 0
        """Commits until the probe is over; 0 between probes."""
        self.probe_due_ms = 0
        self.waiting_ms = NEVER_MS
        """Since when the oldest entry without a commit waits, or the last commit was."""
        self.due_ms = NEVER_MS
        """When a deferred voter is sent what is held back."""

    def probe_all(self, commits: int, last_index: int) -> None:
        """Sends all voters everything for so many commits; the deferred ones catch up to `last_index`
        first."""
        self._commits = self.probe_commits_left = commits
        self._from_index, self._skippable_commits = last_index, 2 * commits
        for member in self._late:
            self._late[member] = 0

    def on_commit(self, raft: ReplicatedLog, progress: Mapping[int, Progress]) -> None:
        """Counts the late voters of a probe when the commit index rose."""
        index, late = raft.commit_index, self._late
        if self._skippable_commits and any(
            progress[each].match_index < self._from_index for each in self.deferred
        ):
            self._skippable_commits -= 1
            return
        self._skippable_commits = 0
        for member in self._order:
            late[member] += progress[member].match_index < index
        late[raft.member_id] += raft.persisted_index < index
        self.probe_commits_left -= 1
        if self.probe_commits_left == 0:
            self._decide(raft)

    def _decide(self, raft: ReplicatedLog) -> None:
        """Swaps an immediate voter with a deferred one that was late less often, by half of the probe."""
        order, late, commits = self._order, self._late, self._commits
        member, probe_commits = raft.member_id, raft.settings.probe_commits
        if commits < probe_commits:  # a hedge: was it needed?
            if late[member] or any(late[each] for each in self.immediate):
                self.probe_all(probe_commits, 0)
            return
        slowest = sorted(order[: self._needed], key=lambda each: -late[each])
        quickest = sorted(order[self._needed :], key=lambda each: late[each])
        for slow, quick in zip(slowest, quickest, strict=False):
            if 2 * (late[slow] - late[quick]) >= commits:
                here, there = order.index(slow), order.index(quick)
                order[here], order[there] = quick, slow
        # Where commits do not wait for our own disk, they need others than the first.
        needed = self._needed if 2 * late[member] < commits else len(order)
        self.immediate, self.deferred = order[:needed], frozenset(order[needed:])


def deferred_now(raft: ReplicatedLog, leader_state: Replication) -> frozenset[int]:
    """Returns the voters that need no entries at once; none while a change that may need them is under
    way."""
    voters, settings = leader_state.deferred_voters, raft.settings
    now_ms, last_index = raft.now_ms, raft.terms.last_index
    if not settings.deferral_ms:
        return NONE_DEFERRED
    voters.due_ms = NEVER_MS
    if raft.commit_index == last_index:
        voters.waiting_ms = NEVER_MS
    elif voters.waiting_ms == NEVER_MS:
        voters.waiting_ms = now_ms
    if leader_state.change_pending or raft.is_transferring:
        return NONE_DEFERRED
    if now_ms >= voters.probe_due_ms:
        voters.probe_due_ms = now_ms + PROBE_INTERVAL_MS
        voters.probe_all(settings.probe_commits, last_index)
    if voters.probe_commits_left or not voters.deferred:
        return NONE_DEFERRED
    progress = leader_state.progress
    if any(progress[each].state is not SendState.REPLICATE for each in voters.immediate):
        return NONE_DEFERRED
    if now_ms >= voters.waiting_ms + settings.hedge_ms:
        voters.probe_all(1, 0)
        return NONE_DEFERRED
    return voters.deferred


def should_delay(raft: ReplicatedLog, voters: DeferredVoters, progress: Progress) -> bool:
    """Returns whether the entries of this deferred voter have to wait; `due_ms` is when to look again."""
    now_ms, settings, terms = raft.now_ms, raft.settings, raft.terms
    if progress.state is not SendState.REPLICATE or progress.next_index <= terms.base_index:
        return False
    if progress.deferred_since_ms == NEVER_MS:
        progress.deferred_since_ms = now_ms
    due_ms = progress.deferred_since_ms + settings.deferral_ms
    size = terms.size_between(progress.next_index, terms.last_index)
    if now_ms >= due_ms or size >= settings.max_append_bytes // 2:
        return False
    voters.due_ms = min(voters.due_ms, due_ms, voters.waiting_ms + settings.hedge_ms)
    return True
